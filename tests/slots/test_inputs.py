"""The channels that feed a slot directly, and the alignment of their barriers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from support_runtime import PATIENCE_S

from pyflinkstate.errors import SlotLostError
from pyflinkstate.runtime.slots import BARRIER, MARKER, Inputs
from pyflinkstate.runtime.slots.inputs import FRAMES_AHEAD, NOTHING
from pyflinkstate.runtime.wire import Channel, ChannelEvent, FrameTime, InputFrame


def opening(branch: int) -> bytes:
    """Return the opening of a partition."""
    return InputFrame(b"", (), (), time=FrameTime(branch, 0, 7, ChannelEvent.OPEN)).encode()


def frame(*values: object) -> bytes:
    """Return a frame of records."""
    return InputFrame(b"", (), values, time=FrameTime(0, 0, 7)).encode()


class Senders:
    """Two processes that send to one subtask."""

    def __init__(self) -> None:
        self.end: EOFError | None = None
        self.inputs = Inputs(lambda: self.end)
        self.to: dict[str, Channel] = {}
        self._threads: list[threading.Thread] = []
        for name in ("one", "other"):
            ours, theirs = socket.socketpair()
            self.to[name] = Channel(ours)
            thread = threading.Thread(target=self._read, args=(name, Channel(theirs)), daemon=True)
            thread.start()
            self._threads.append(thread)

    def _read(self, name: str, channel: Channel) -> None:
        with channel, suppress(EOFError):
            self.inputs.read(name, channel)

    def send(self, name: str, *frames: bytes) -> None:
        """Send frames over the channel of one of them."""
        for data in frames:
            self.to[name].send_bytes(data)

    def epoch(self, openings: int = 0) -> Iterator[bytes]:
        """Return the frames of an epoch."""
        return self.inputs.epoch(frozenset(self.to), openings)

    def close(self) -> None:
        """End both, and wait for the threads that read them."""
        self.end = EOFError("the test is over")
        for channel in self.to.values():
            channel.close()
        for thread in self._threads:
            thread.join(PATIENCE_S)


@pytest.fixture
def senders() -> Iterator[Senders]:
    made = Senders()
    yield made
    made.close()


def test_an_epoch_has_the_frames_of_all_channels_each_in_order(senders: Senders) -> None:
    senders.send("one", b"a1", b"a2", BARRIER)
    senders.send("other", b"b1", BARRIER)
    found = [*senders.epoch()]
    assert sorted(found) == [b"a1", b"a2", b"b1"]
    assert found.index(b"a1") < found.index(b"a2")


def test_a_channel_that_is_ahead_waits_for_the_barriers_of_all(senders: Senders) -> None:
    senders.send("one", b"a1", BARRIER, b"a2", BARRIER)
    epoch = senders.epoch()
    assert next(epoch) == b"a1"
    senders.send("other", b"b1", BARRIER)
    assert [*epoch] == [b"b1"]
    senders.send("other", BARRIER)
    assert [*senders.epoch()] == [b"a2"]


def test_no_records_come_before_all_partitions_are_open(senders: Senders) -> None:
    first, second = opening(0), opening(1)
    senders.send("one", first, frame(1), BARRIER)
    epoch = senders.epoch(openings=2)
    assert next(epoch) == first
    senders.send("other", second, BARRIER)
    assert [*epoch] == [second, NOTHING, frame(1)]


def test_an_opening_may_come_behind_the_records_of_another_partition(senders: Senders) -> None:
    records = [frame(number) for number in range(2 * FRAMES_AHEAD)]
    senders.send("one", opening(0), *records, opening(1), BARRIER)
    senders.send("other", BARRIER)
    assert [*senders.epoch(openings=2)] == [opening(0), opening(1), NOTHING, *records]


def test_a_marker_of_latency_has_its_turn_among_the_frames_and_is_none_of_them(senders: Senders) -> None:
    noted: list[bytes] = []
    senders.inputs.marked = noted.append
    senders.send("one", MARKER + b"1", frame(1), opening(0), MARKER + b"2", BARRIER)
    senders.send("other", BARRIER)
    found = [(data, len(noted)) for data in senders.epoch(openings=1)]
    assert found == [(opening(0), 0), (NOTHING, 0), (frame(1), 1)]
    assert noted == [MARKER + b"1", MARKER + b"2"]


def test_while_nothing_comes_the_slot_looks_what_is_due(senders: Senders) -> None:
    senders.send("one", opening(0))
    epoch = senders.inputs.epoch(frozenset(senders.to), 1, lambda: 0.001)
    assert [next(epoch), next(epoch), next(epoch)] == [opening(0), NOTHING, NOTHING]
    senders.send("one", frame(1), BARRIER)
    senders.send("other", BARRIER)
    assert [data for data in epoch if data != NOTHING] == [frame(1)]


def test_frames_wait_in_their_channel_while_the_slot_is_behind(senders: Senders) -> None:
    sent = threading.Semaphore(0)

    def send() -> None:
        for _ in range(200):
            senders.send("one", b"x" * 100_000)
            sent.release()
        senders.send("one", BARRIER)

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    senders.send("other", BARRIER)
    epoch = senders.epoch()
    for taken in range(200):
        assert len(next(epoch)) == 100_000
        # What is in the socket, what is read ahead, and what this test has taken.
        assert sent._value <= taken + FRAMES_AHEAD + 20
    assert [*epoch] == []
    thread.join(PATIENCE_S)


def test_a_channel_that_ends_before_its_barrier_is_an_error(senders: Senders) -> None:
    senders.send("one", b"a1")
    senders.to["one"].close()
    epoch = senders.epoch()
    assert next(epoch) == b"a1"
    with pytest.raises(SlotLostError, match="from one has ended"):
        next(epoch)


def test_who_waits_for_frames_hears_that_the_attempt_is_over(senders: Senders) -> None:
    heard: list[Any] = []

    def wait() -> None:
        with pytest.raises(EOFError):
            heard.extend(senders.epoch())
        heard.append("over")

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    senders.end = EOFError("the attempt is over")
    senders.inputs.wake_up()
    thread.join(PATIENCE_S)
    assert heard == ["over"]
