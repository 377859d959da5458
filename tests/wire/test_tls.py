"""Messages and encrypted connections: nothing is read or changed on the way."""

from __future__ import annotations

import os
import pickle
import queue
import select
import socket
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from pyspark import SparkConf
from support_runtime import PATIENCE_S
from support_slots import in_thread, outcome
from test_transport import Relay, dial

from pyflinkstate.errors import ConfigurationError, UntrustedConnectionError
from pyflinkstate.runtime.spark.sessions import is_encrypted as is_encrypted_by_spark
from pyflinkstate.runtime.wire import (
    Address,
    Channel,
    Server,
    ServerName,
    connect,
    listen_on_tcp,
    listen_on_unix,
    new_secret,
    tls,
)
from pyflinkstate.runtime.wire.channel import MessageCodes
from pyflinkstate.runtime.wire.handshake import LIMITS, HandshakeLimits

pytestmark = pytest.mark.timeout(60)

SLOT = ServerName.of_slot("count-1[0]", 0)
SECRET = new_secret(is_encrypted=True)
#: The same proofs, and no certificate, or that of another job.
PLAIN = SECRET[: tls.RANDOM_BYTES]
OTHER = PLAIN + new_secret(is_encrypted=True)[tls.RANDOM_BYTES :]
TEXT = "a text that can be found"


@attrs.define
class Serving:
    """A server for one test."""

    address: Address
    channels: queue.SimpleQueue[Channel]

    @classmethod
    def of(cls, secret: bytes, stack: list[Callable[[], None]], limits: HandshakeLimits = LIMITS) -> Serving:
        """Start one; it hands out its ends of connections, and leaves them open until the test ends."""
        listener, ends = listen_on_tcp("127.0.0.1"), threading.Event()
        unix, path = listen_on_unix()
        made = cls(Address("127.0.0.1", listener.getsockname()[1], path), queue.SimpleQueue())

        def serve(channel: Channel) -> None:
            made.channels.put(channel)
            ends.wait()

        server = Server([listener, unix], made.address, SLOT, secret, serve, limits)
        server.start()
        stack += [server.close, ends.set]
        return made

    @property
    def tcp(self) -> Address:
        return attrs.evolve(self.address, unix_path=None)

    def other_end(self) -> Channel:
        return self.channels.get(timeout=PATIENCE_S)


@pytest.fixture
def closing() -> Iterator[list[Callable[[], None]]]:
    stack: list[Callable[[], None]] = []
    yield stack
    for close in stack:
        close()


@pytest.fixture
def server(closing: list[Callable[[], None]]) -> Serving:
    return Serving.of(SECRET, closing)


def relayed(server: Serving, **edits: Callable[[bytes], bytes]) -> tuple[Relay, Address]:
    """Return a stranger between client and server; the server takes his address for its own."""
    relay = Relay(dial(server.tcp), **edits)
    return relay, relay.address


def test_objects_and_bytes_of_any_length_travel_both_ways(server: Serving) -> None:
    with connect(server.tcp, SLOT, SECRET) as client, server.other_end() as other:
        for length in (0, 1, 16_384, 16_385, 100_000):
            client.send_bytes(bytes(length))
            assert other.recv_bytes() == bytes(length)
            other.send({"length": length})
            assert client.recv() == {"length": length}


def test_both_ends_send_more_than_buffers_hold_at_the_same_time(server: Serving) -> None:
    """One thread of each end sends while another one receives."""
    frames = [os.urandom(3_000_000) for _ in range(5)]
    with connect(server.tcp, SLOT, SECRET) as client, server.other_end() as other:
        ends = [(client, other), (other, client)]
        sent = [in_thread(lambda end=end: [end.send_bytes(frame) for frame in frames]) for end, _ in ends]
        came = [in_thread(lambda end=end: [end.recv_bytes() for _ in frames]) for _, end in ends]
        assert [outcome(each) for each in came] == [frames, frames]
        assert all(outcome(each) for each in sent)


def test_what_has_come_with_an_earlier_message_is_not_waited_for(server: Serving) -> None:
    with connect(server.tcp, SLOT, SECRET) as client, server.other_end() as other:
        assert not other.poll()
        for number in range(3):
            client.send(number)
        assert other.recv() == 0
        assert other.poll(PATIENCE_S)
        assert other.recv() == 1
        assert other.poll(PATIENCE_S)
        assert other.recv() == 2
        assert not other.poll()


def test_a_small_message_is_sent_only_if_that_is_possible_at_once(server: Serving) -> None:
    with connect(server.tcp, SLOT, SECRET) as client, server.other_end() as other:
        client.try_send("beat")
        assert other.recv() == "beat"


def test_the_end_of_a_connection_is_noticed(server: Serving) -> None:
    client = connect(server.tcp, SLOT, SECRET)
    with server.other_end() as other:
        client.close()
        assert other.poll(PATIENCE_S)
        with pytest.raises(EOFError):
            other.recv()


@pytest.mark.parametrize(("secret", "is_readable"), [(SECRET, False), (PLAIN, True)])
def test_who_listens_on_the_way_reads_nothing(
    secret: bytes, is_readable: bool, closing: list[Callable[[], None]]
) -> None:
    server = Serving.of(secret, closing)
    relay, address = relayed(server)
    server_of_relay = attrs.evolve(server.tcp, port=address.port)
    with pytest.raises((ConnectionError, UntrustedConnectionError)):
        connect(server_of_relay, SLOT, secret)  # the handshake is bound to the address
    heard = b"".join(relay.heard)
    assert (b"PFSC" in heard) is is_readable


def test_messages_are_not_readable_on_the_way(closing: list[Callable[[], None]]) -> None:
    pair = Pair.of(SECRET, closing)
    pair.client.send(TEXT)
    assert pair.server.recv() == TEXT
    assert TEXT.encode() not in b"".join(pair.heard)


def test_what_is_changed_on_the_way_ends_the_connection_before_it_is_unpickled(
    closing: list[Callable[[], None]],
) -> None:
    pair = Pair.of(SECRET, closing)
    pair.edit = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    pair.client.send(TEXT)
    with pytest.raises(UntrustedConnectionError, match="not what the peer has sent"):
        pair.server.recv()


@pytest.mark.parametrize("secret", [PLAIN, OTHER], ids=["not encrypted", "of another job"])
@pytest.mark.parametrize("is_client", [True, False])
def test_one_without_the_certificate_of_the_job_is_refused(
    secret: bytes, is_client: bool, closing: list[Callable[[], None]]
) -> None:
    limits = attrs.evolve(LIMITS, timeout_s=2.0)
    server = Serving.of(SECRET if is_client else secret, closing, limits)
    with pytest.raises(ConnectionError, match="cannot authenticate"):
        connect(server.tcp, SLOT, secret if is_client else SECRET, limits)
    assert server.channels.empty()


def test_a_unix_socket_is_not_encrypted_as_nobody_is_between(server: Serving) -> None:
    with connect(server.address, SLOT, SECRET) as client, server.other_end() as other:
        client.send(TEXT)
        assert other.recv() == TEXT
        assert isinstance(client._sock, socket.socket)


def test_without_the_package_that_makes_certificates_the_job_does_not_begin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyflinkstate\[encryption\]'"):
        new_secret(is_encrypted=True)
    assert len(new_secret(is_encrypted=False)) == tls.RANDOM_BYTES


def test_the_key_is_left_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tls._context(new_secret(is_encrypted=True)[tls.RANDOM_BYTES :], True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"spark.network.crypto.enabled": "true"}, True),
        ({"spark.network.crypto.enabled": "false"}, False),
        ({"spark.ssl.rpc.enabled": "True"}, True),
        ({"spark.authenticate": "true"}, False),
    ],
)
def test_connections_are_encrypted_where_those_of_spark_are(settings: dict[str, str], expected: bool) -> None:
    conf = SparkConf(loadDefaults=False)
    for name, value in settings.items():
        conf.set(name, value)
    assert is_encrypted_by_spark(conf) is expected


@attrs.define
class Pair:
    """The two ends of an encrypted connection, with what passes from client to server in the test's hands."""

    client: Channel
    server: Channel
    heard: list[bytes] = attrs.Factory(list)
    edit: Callable[[bytes], bytes] = bytes

    @classmethod
    def of(cls, secret: bytes, closing: list[Callable[[], None]]) -> Pair:
        ours, theirs = socket.socketpair()
        closing += [ours.close, theirs.close]
        client, server = (tls.TlsSocket(sock, secret, end) for sock, end in ((ours, False), (theirs, True)))
        shaking = in_thread(lambda: server.do_handshake(lambda: None))
        client.do_handshake(lambda: None)
        outcome(shaking)
        made = cls(Channel(client), Channel(server))
        tapped: Any = Tapped(theirs, made)
        server._sock = tapped
        return made


@attrs.define
class Tapped:
    """A socket whose received bytes are heard and edited."""

    _sock: socket.socket
    _pair: Pair

    def recv_into(self, buffer: memoryview) -> int:
        data = self._sock.recv(len(buffer))
        self._pair.heard.append(data)
        buffer[: len(data)] = self._pair.edit(data)
        return len(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)


# --- messages after the handshake: nothing may be changed on the way ---------------------------------------


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
