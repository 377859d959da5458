"""Messages after the handshake: what may be changed on the way, which is nothing."""

from __future__ import annotations

import pickle
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from support_runtime import PATIENCE_S
from support_slots import in_thread, outcome

from pyflinkstate.errors import UntrustedConnectionError
from pyflinkstate.runtime.wire.channel import Channel, MessageCodes

pytestmark = pytest.mark.timeout(60)

LOADED: list[str] = []
_open: list[socket.socket] = []


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection, which are closed after the test."""
    made = socket.socketpair()
    _open.extend(made)
    return made


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


class Bomb:
    """Notes that it was unpickled."""

    def __reduce__(self) -> Any:
        return LOADED.append, ("it ran",)


class Middle:
    """Two ends of a channel, and a man in the middle who has every message of one of them in hand."""

    def __init__(self, has_codes: bool = True) -> None:
        def codes() -> MessageCodes | None:
            return MessageCodes(b"k" * 32) if has_codes else None

        ours, self._tapped = pair()
        self._inject, theirs = pair()
        self.sender = Channel(ours, sends=codes())
        self.receiver = Channel(theirs, receives=codes())
        self._code = 16 if has_codes else 0

    def taken(self) -> bytes:
        """Take the next message off the line."""
        head = self._read(9 + self._code)
        _, length = struct.unpack(">cQ", head[:9])
        return head + self._read(length + self._code)

    def _read(self, length: int) -> bytes:
        return self._tapped.recv(length, socket.MSG_WAITALL) if length else b""

    def give(self, *messages: bytes) -> None:
        for message in messages:
            self._inject.sendall(message)

    def end(self) -> None:
        self._inject.close()


@pytest.fixture
def middle() -> Middle:
    return Middle()


@pytest.mark.parametrize("has_codes", [True, False], ids=["tcp", "unix"])
def test_objects_and_bytes_arrive_as_they_were_sent(has_codes: bool) -> None:
    middle = Middle(has_codes)
    messages = [("a", 1), b"raw", None, {"x": [1, 2]}, bytes(100_000)]
    for message in messages:
        middle.sender.send(message)
        middle.give(middle.taken())
        assert middle.receiver.recv() == message
    for data in (b"", b"x", bytes(100_000)):
        middle.sender.send_bytes(data)
        middle.give(middle.taken())
        assert middle.receiver.recv_bytes() == data
    middle.end()
    with pytest.raises(EOFError):
        middle.receiver.recv()


@pytest.mark.parametrize("has_codes", [True, False], ids=["tcp", "unix"])
def test_what_is_larger_than_all_buffers_arrives_whole(has_codes: bool) -> None:
    first, second = pair()
    codes = (MessageCodes(b"k"), MessageCodes(b"k")) if has_codes else (None, None)
    sender, receiver = Channel(first, sends=codes[0]), Channel(second, receives=codes[1])
    data = bytes(range(256)) * 100_000
    sending = in_thread(lambda: [sender.send_bytes(data) for _ in range(3)])
    assert [receiver.recv_bytes() == data for _ in range(3)] == [True] * 3
    assert outcome(sending) == [None] * 3


def test_threads_that_send_at_once_do_not_tear_each_others_messages() -> None:
    first, second = pair()
    sender = Channel(first, sends=MessageCodes(b"k"))
    receiver = Channel(second, receives=MessageCodes(b"k"))
    body = bytes(50_000)
    threads = [
        threading.Thread(target=lambda n=n: [sender.send((n, m, body)) for m in range(20)]) for n in range(4)
    ]
    for thread in threads:
        thread.start()
    seen = [receiver.recv()[:2] for _ in range(80)]
    for thread in threads:
        thread.join(PATIENCE_S)
    assert [m for n, m in seen if n == 2] == list(range(20))


def swapped(messages: list[bytes]) -> list[bytes]:
    return [messages[1], messages[0], messages[2]]


Meddle = Callable[[list[bytes]], list[bytes]]


@pytest.mark.parametrize(
    "meddle",
    [
        swapped,
        lambda messages: messages[1:],
        lambda messages: [messages[0], messages[2]],
        lambda messages: [messages[0], messages[0], *messages[1:]],
    ],
    ids=["swapped", "first left out", "left out in the middle", "repeated"],
)
def test_messages_stay_in_their_order_and_none_is_left_out_or_repeated(
    middle: Middle, meddle: Meddle
) -> None:
    for number in range(3):
        middle.sender.send(number)
    original = [middle.taken() for _ in range(3)]
    given_on = meddle(original)
    middle.give(*given_on)
    seen: list[int] = []
    with pytest.raises(UntrustedConnectionError, match="changed, left out, repeated or put in another order"):
        seen.extend(middle.receiver.recv() for _ in given_on)
    assert seen in ([], [0])


@given(st.data())
def test_no_bit_can_be_changed_and_nothing_of_the_message_is_unpickled(data: st.DataObject) -> None:
    middle = Middle()
    LOADED.clear()
    middle.sender.send(Bomb())
    message = bytearray(middle.taken())
    bit = data.draw(st.integers(0, len(message) * 8 - 1))
    message[bit // 8] ^= 1 << bit % 8
    middle.give(bytes(message))
    with pytest.raises(UntrustedConnectionError):
        middle.receiver.recv()
    assert LOADED == []
    with pytest.raises((EOFError, OSError)):
        middle.receiver.recv()


def with_length(message: bytes) -> bytes:
    """Claim a length that nobody should wait for."""
    return struct.pack(">cQ", b"P", 2**60) + message[9:]


def of_somebody_without_the_key(_: bytes) -> bytes:
    forged = pickle.dumps(Bomb())
    return struct.pack(">cQ", b"P", len(forged)) + bytes(16) + forged + bytes(16)


@pytest.mark.parametrize("edit", [with_length, of_somebody_without_the_key])
def test_a_forged_message_is_refused(middle: Middle, edit: Callable[[bytes], bytes]) -> None:
    LOADED.clear()
    middle.sender.send("x")
    middle.give(edit(middle.taken()))
    with pytest.raises(UntrustedConnectionError):
        middle.receiver.recv()
    assert LOADED == []


def test_what_an_end_has_sent_cannot_be_sent_back_to_it() -> None:
    """Each direction has a key of its own."""
    ours, theirs = pair()
    channel = Channel(ours, sends=MessageCodes(b"out"), receives=MessageCodes(b"in"))
    channel.send("hello")
    theirs.sendall(theirs.recv(1000))
    with pytest.raises(UntrustedConnectionError):
        channel.recv()


def test_raw_bytes_are_never_unpickled(middle: Middle) -> None:
    LOADED.clear()
    middle.sender.send_bytes(pickle.dumps(Bomb()))
    middle.give(middle.taken())
    with pytest.raises(UntrustedConnectionError, match="expected a message"):
        middle.receiver.recv()
    assert LOADED == []


def test_an_end_in_the_middle_of_a_message_is_an_error(middle: Middle) -> None:
    middle.sender.send_bytes(b"some bytes")
    middle.give(middle.taken()[:-3])
    middle.end()
    with pytest.raises(OSError, match="in the middle of a message"):
        middle.receiver.recv_bytes()


def test_shutting_down_wakes_whoever_waits_at_either_end() -> None:
    first, second = map(Channel, pair())
    waiting = [in_thread(first.recv), in_thread(second.recv)]
    first.shut_down()
    assert [type(outcome(end)) for end in waiting] == [EOFError, EOFError]
    first.close()
    first.shut_down()
    assert first.fileno() == -1


USES: dict[str, Callable[[Channel], object]] = {
    "try_send": lambda end: end.try_send("beat"),
    "send": lambda end: end.send("beat"),
    "poll": lambda end: end.poll(),
    "recv": lambda end: end.recv(),
    "watch": lambda end: end.watch(select.poll(), select.POLLIN),
}


@pytest.mark.parametrize("use", USES.values(), ids=list(USES))
def test_an_end_that_another_thread_has_closed_fails_as_one_whose_peer_is_gone(
    use: Callable[[Channel], object],
) -> None:
    end = Channel(pair()[0])
    end.close()
    with pytest.raises(OSError, match=r"descriptor|closed"):
        use(end)
