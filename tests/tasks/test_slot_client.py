"""What a task does with a state slot: it starts the process, and closes the connection that nobody needs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from slot_functions import Count
from support_runtime import PATIENCE_S, wait_for_exit
from support_slots import SLOT, Driver, Slot, collect, frames_for

from pyflinkstate.errors import SlotLostError, StaleSlotError
from pyflinkstate.runtime.tasks import slot_client
from pyflinkstate.runtime.tasks.slot_client import ASK_AGAIN_S, ASKS_AFTER_THE_END, run_epoch
from pyflinkstate.runtime.wire import Channel


@pytest.fixture
def slot(driver: Driver, forked_slots: None) -> Slot:
    return driver.start_slot(Count())


@pytest.fixture
def connections(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """The connections that tasks make to slots."""
    made: list[Channel] = []
    connect = slot_client.connect

    def noting(*arguments: Any) -> Channel:
        made.append(connect(*arguments))
        return made[-1]

    monkeypatch.setattr(slot_client, "connect", noting)
    return made


def test_it_is_closed_at_the_end_of_an_epoch(slot: Slot, connections: list[Channel]) -> None:
    slot.feed(1, [("a", 1)])
    assert [connection.fileno() for connection in connections] == [-1]


def test_whoever_reads_no_further_leaves_it_to_the_writer(slot: Slot, connections: list[Channel]) -> None:
    goes_on = threading.Event()

    def frames() -> Iterator[bytes]:
        for number in range(3):
            yield frames_for([("a", number)])[0][0]
        goes_on.wait(PATIENCE_S)

    results = slot.run(1, frames())
    next(results)
    (writer,) = [thread for thread in threading.enumerate() if isinstance(thread, slot_client._FrameWriter)]
    results.close()
    assert connections[0].fileno() >= 0, "the writer may be using it"
    goes_on.set()
    writer.join(PATIENCE_S)
    assert connections[0].fileno() == -1


def dying(program: str) -> Callable[..., subprocess.Popen[bytes]]:
    """Return what starts another program in the place of a slot, and waits for its end."""

    def start(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
        process = subprocess.Popen([sys.executable, "-c", program], **settings)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        return process

    return start


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("raise SystemExit(3)", r"; it has printed nothing"),
        ("import sys; print('printed'); sys.exit('and why')", r"; its last lines are:\n.*and why"),
    ],
)
def test_a_slot_that_ends_before_it_reads_what_it_is_to_be_is_lost(
    driver: Driver, monkeypatch: pytest.MonkeyPatch, program: str, said: str
) -> None:
    processes = SimpleNamespace(Popen=dying(program), PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(slot_client, "subprocess", processes)
    with pytest.raises(
        SlotLostError, match=rf"(?s)slot count-1\[0\] ended with exit code [13] while it was starting{said}"
    ):
        driver.link.acquire_slot(SLOT)


class EndsItsProcess(Count):
    """Dies as a fault in compiled code does: without a word of Python's."""

    def open(self, context: Any) -> None:
        os.write(2, b"out of luck\n")
        os._exit(7)


def test_a_slot_that_dies_while_it_opens_its_function_says_its_last_lines(driver: Driver) -> None:
    with pytest.raises(SlotLostError, match=r"(?s)exit code 7 while it was starting; .*out of luck"):
        driver.start_slot(EndsItsProcess())
    lost = driver.events.get(timeout=PATIENCE_S)
    assert "out of luck" in str(lost.error)


# --- two copies of a task ------------------------------------------------------------------------------


class FirstCopy:
    """A task that is in the middle of an epoch until it is told to go on."""

    def __init__(self, slot: Slot, epoch: int = 1) -> None:
        self._goes_on = threading.Event()
        self._results = slot.run(epoch, self._frames())
        next(self._results)

    def _frames(self) -> Iterator[bytes]:
        yield frames_for([("a", 1)])[0][0]
        self._goes_on.wait(PATIENCE_S)

    def end(self) -> None:
        self._goes_on.set()
        list(self._results)

    def die(self) -> None:
        self._results.close()
        self._goes_on.set()


class SecondCopy:
    """A task whose waits do not last: in each of them the next thing happens."""

    def __init__(self, slot: Slot, epoch: int, *happens: Callable[[], object]) -> None:
        self.waits: list[float] = []
        self._happens = iter(happens)
        begin, frames = slot.begin(epoch), frames_for([("a", 1)])[0]
        self.results = run_epoch(slot.address, slot.driver.secret, slot.slot_id, begin, frames, self._wait)

    def _wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        happen = next(self._happens, None)
        if happen is not None:
            happen()


def nothing() -> None:
    """Happens."""


@pytest.mark.usefixtures("forked_slots")
class TestTwoCopies:
    def test_the_second_waits_until_the_first_has_ended_the_epoch_and_for_its_own_end(
        self, slot: Slot, connections: list[Channel]
    ) -> None:
        first = FirstCopy(slot)
        second = SecondCopy(slot, 1, nothing, nothing, first.end)
        with pytest.raises(StaleSlotError, match="cannot take epoch 1: it is at version 1"):
            next(second.results)
        assert second.waits == [ASK_AGAIN_S] * (3 + ASKS_AFTER_THE_END)
        assert {connection.fileno() for connection in connections} == {-1}
        assert slot.feed(2, [("a", 1)])[0] == [("a", 2)]

    def test_it_waits_no_longer_once_the_first_is_lost(self, slot: Slot) -> None:
        second = SecondCopy(slot, 1, nothing, FirstCopy(slot).die)
        with pytest.raises(StaleSlotError, match="it is at version None"):
            next(second.results)

    def test_it_waits_no_longer_once_the_slot_has_gone_on(self, slot: Slot) -> None:
        first, later = FirstCopy(slot), []

        def go_on() -> None:
            first.end()
            later.append(FirstCopy(slot, 2))

        second = SecondCopy(slot, 1, go_on)
        with pytest.raises(StaleSlotError, match="it processes epoch 2"):
            next(second.results)
        assert second.waits == [ASK_AGAIN_S]
        later[0].end()

    def test_it_waits_no_longer_once_the_slot_is_dead(self, slot: Slot) -> None:
        first = FirstCopy(slot)

        def kill() -> None:
            os.kill(slot.pid, signal.SIGKILL)
            wait_for_exit(slot.process_fd)

        second = SecondCopy(slot, 1, nothing, kill)
        with pytest.raises(SlotLostError, match="died or was cut off in epoch 1"):
            next(second.results)
        assert len(second.waits) == 2
        first.die()

    def test_a_task_whose_turn_comes_feeds_its_epoch(self, slot: Slot) -> None:
        second = SecondCopy(slot, 2, FirstCopy(slot).end)
        assert collect(second.results)[0] == [("a", 2)]
        assert second.waits == [ASK_AGAIN_S]

    def test_one_that_has_not_found_the_slot_busy_fails_at_once(self, slot: Slot) -> None:
        """Spark runs it because the task that fed the slot was lost: the job must restart."""
        FirstCopy(slot).end()
        again = SecondCopy(slot, 1)
        with pytest.raises(StaleSlotError, match="it is at version 1"):
            next(again.results)
        assert again.waits == []
