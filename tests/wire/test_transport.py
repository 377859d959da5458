"""Connections over real sockets: relays, strangers, and those who take their time."""

from __future__ import annotations

import os
import pickle
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S
from support_slots import in_thread, outcome

from pyflinkstate.errors import UntrustedConnectionError
from pyflinkstate.runtime.wire import (
    DRIVER,
    Address,
    Channel,
    Server,
    ServerName,
    connect,
    listen_on_tcp,
    listen_on_unix,
    transport,
)
from pyflinkstate.runtime.wire.handshake import CLIENT_HELLO_BYTES, LIMITS, HandshakeLimits

pytestmark = pytest.mark.timeout(60)

SECRET = b"s" * 32
SLOT = ServerName.of_slot("count-1[0]", 0)


class Echoing:
    """A server that gives each object back, on TCP and on a unix socket."""

    def __init__(self, name: ServerName = SLOT, limits: HandshakeLimits = LIMITS) -> None:
        unix, path = listen_on_unix()
        tcp = listen_on_tcp("127.0.0.1")
        self.address = Address("127.0.0.1", tcp.getsockname()[1], path)
        self.tcp = attrs.evolve(self.address, unix_path=None)
        self.served: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._path = path
        self._server = Server([tcp, unix], self.address, name, SECRET, self._serve, limits)
        self._server.start()

    def _serve(self, channel: Channel) -> None:
        while True:
            message = channel.recv()
            self.served.put(message)
            channel.send(message)

    def at(self, address: Address) -> None:
        """Take this for its own address, so that a client there means it."""
        self._server._address = address

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def server() -> Iterator[Echoing]:
    made = Echoing()
    yield made
    made.close()


class Relay:
    """A stranger on a port who passes everything on to another server, both ways."""

    def __init__(
        self,
        target: Callable[[], socket.socket],
        to_server: Callable[[bytes], bytes] = bytes,
        to_client: Callable[[bytes], bytes] = bytes,
    ) -> None:
        self._listener = listen_on_tcp("127.0.0.1")
        self.address = Address("127.0.0.1", self._listener.getsockname()[1])
        self._target = target
        self._to_server = to_server
        self._to_client = to_client
        self.heard: list[bytes] = []
        threading.Thread(target=self._relay, daemon=True).start()

    def _relay(self) -> None:
        with (
            suppress(OSError),
            self._listener,
            self._listener.accept()[0] as client,
            self._target() as server,
        ):
            back = threading.Thread(target=self._pass_on, args=(server, client, self._to_client), daemon=True)
            back.start()
            self._pass_on(client, server, self._to_server)
            back.join(PATIENCE_S)

    def _pass_on(self, source: socket.socket, sink: socket.socket, edit: Callable[[bytes], bytes]) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.heard.append(data)
                sink.sendall(edit(data))
            sink.shutdown(socket.SHUT_RDWR)


def dial(address: Address) -> Callable[[], socket.socket]:
    return lambda: socket.create_connection((address.host, address.port))


def dial_unix(path: str | None) -> socket.socket:
    assert path is not None
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return sock


def ask(channel: Channel, *messages: object) -> None:
    """Send messages, each of which comes back."""
    for message in messages:
        channel.send(message)
        assert channel.recv() == message


@pytest.mark.parametrize("path", ["unix", "tcp"])
def test_objects_travel_both_ways(server: Echoing, path: str) -> None:
    with connect(server.address if path == "unix" else server.tcp, SLOT, SECRET) as channel:
        ask(channel, "hello", {"a": [1]}, bytes(1_000_000))


# --- relays ------------------------------------------------------------------------------------------------


def has_ipv6() -> bool:
    """Return whether this host has an address of IPv6 for itself; a container's kernel may know only how."""
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return socket.has_dualstack_ipv6()
    return False


@pytest.mark.skipif(not has_ipv6(), reason="this system has no IPv6")
@pytest.mark.parametrize(
    ("bound_to", "reached_at"), [("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1"), ("0.0.0.0", "localhost")]
)
def test_a_server_is_reached_by_either_version_of_the_internet_protocol(
    bound_to: str, reached_at: str
) -> None:
    listener = listen_on_tcp(bound_to)
    address = Address(reached_at, listener.getsockname()[1])
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()
    server = Server([listener], address, SLOT, SECRET, lambda channel: received.put(channel.recv()))
    server.start()
    try:
        with connect(address, SLOT, SECRET) as channel:
            channel.send("hello")
            assert received.get(timeout=PATIENCE_S) == "hello"
            assert channel.host() in ("::1", "127.0.0.1")
    finally:
        server.close()


@pytest.mark.parametrize("path", ["unix", "tcp"])
def test_a_stranger_who_passes_the_challenge_on_to_the_real_server_is_refused(
    server: Echoing, path: str
) -> None:
    """A dead slot's port is his; he knows another server that knows the secret."""
    relay = Relay(dial(server.tcp) if path == "tcp" else lambda: dial_unix(server.address.unix_path))
    if path == "unix":
        server.at(attrs.evolve(relay.address, unix_path=server.address.unix_path))
    with pytest.raises(ConnectionError, match="cannot authenticate the connection"):
        connect(relay.address, SLOT, SECRET)
    assert relay.heard, "the client did speak to him"
    assert server.served.empty()


@pytest.mark.parametrize(
    "meant",
    [DRIVER, ServerName.of_slot("count-1[0]", 1), ServerName.of_slot("count-1[1]", 0)],
    ids=["the driver", "another attempt", "another subtask"],
)
def test_a_server_at_the_right_address_that_is_not_the_one_meant_is_refused(
    server: Echoing, meant: ServerName
) -> None:
    for address in (server.address, server.tcp):
        with pytest.raises(ConnectionError, match="cannot authenticate"):
            connect(address, meant, SECRET)
    assert server.served.empty()


@pytest.mark.parametrize("way", ["to_server", "to_client"])
def test_what_a_relay_in_the_way_changes_ends_the_connection_before_it_is_unpickled(
    server: Echoing, way: str
) -> None:
    """He is on the path to the real address: he can pass on, and nothing else."""
    relay = Relay(dial(server.tcp), **{way: lambda data: data.replace(b"secret plan", b"another one")})
    server.at(relay.address)
    with connect(relay.address, SLOT, SECRET) as channel:
        ask(channel, "hello")
        channel.send("secret plan")
        with pytest.raises((EOFError, OSError)) as caught:
            channel.recv()
    found_here = isinstance(caught.value, UntrustedConnectionError)
    assert found_here == (way == "to_client")
    assert not found_here or "a message was changed" in str(caught.value)
    assert server.served.get(timeout=PATIENCE_S) == "hello"
    assert server.served.empty() or way == "to_client"


def test_a_connection_that_was_recorded_cannot_be_played_again(server: Echoing) -> None:
    relay = Relay(dial(server.tcp))
    server.at(relay.address)
    with connect(relay.address, SLOT, SECRET) as channel:
        ask(channel, "pay once")
    assert server.served.get(timeout=PATIENCE_S) == "pay once"
    with dial(server.tcp)() as replay:
        with suppress(OSError):
            for data in relay.heard:
                replay.sendall(data)
        replay.settimeout(PATIENCE_S)
        with suppress(ConnectionError):
            while replay.recv(65536):
                pass
    assert server.served.empty()


def test_a_listener_that_sends_back_what_it_hears_is_refused() -> None:
    with listen_on_tcp("127.0.0.1") as mirror:
        address = Address("127.0.0.1", mirror.getsockname()[1])
        connecting = in_thread(lambda: connect(address, SLOT, SECRET))
        sock, _ = mirror.accept()
        with sock:
            sock.sendall(sock.recv(1000))
            assert isinstance(outcome(connecting), UntrustedConnectionError)


class Bomb:
    def __reduce__(self) -> Any:
        return os._exit, (99,)


@pytest.mark.parametrize("path", ["unix", "tcp"])
def test_what_a_stranger_says_is_never_unpickled(server: Echoing, path: str) -> None:
    dialled = dial(server.tcp) if path == "tcp" else lambda: dial_unix(server.address.unix_path)
    with dialled() as sock, suppress(ConnectionError):
        sock.settimeout(PATIENCE_S)
        sock.sendall(pickle.dumps(Bomb()) * 10)
        while sock.recv(1000):
            pass
    with connect(server.address, SLOT, SECRET) as channel:
        ask(channel, "still here")


# --- deadlines and bounds ----------------------------------------------------------------------------------


class JumpyClock:
    """Each look at it takes ten seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def test_one_byte_at_a_time_ends_at_the_deadline_of_the_whole_handshake() -> None:
    server = Echoing(limits=HandshakeLimits(now_s=JumpyClock()))
    with dial(server.tcp)() as sock:
        sock.settimeout(PATIENCE_S)
        sent = 0
        with suppress(ConnectionError):
            for _ in range(CLIENT_HELLO_BYTES):
                sock.sendall(b"P")
                sent += 1
            assert sock.recv(1) == b"", "it was cut off"
    server.close()


def test_a_client_does_not_wait_longer_than_the_deadline_either() -> None:
    with listen_on_tcp("127.0.0.1") as slow:
        address = Address("127.0.0.1", slow.getsockname()[1])
        limits = HandshakeLimits(now_s=JumpyClock())
        connecting = in_thread(lambda: connect(address, SLOT, SECRET, limits))
        sock, _ = slow.accept()
        with sock, suppress(OSError):
            sock.sendall(b"PFSS")
            error = outcome(connecting)
    assert isinstance(error, ConnectionError)
    assert "cannot authenticate the connection" in str(error)
    assert "the handshake took too long" in str(error)


def test_strangers_beyond_the_bound_cost_the_oldest_its_place_and_nobody_else() -> None:
    server = Echoing(limits=HandshakeLimits(connections=4))
    with ExitStack() as stack:
        strangers = [stack.enter_context(dial(server.tcp)()) for _ in range(4)]
        for stranger in strangers:
            stranger.settimeout(PATIENCE_S)
        with connect(server.tcp, SLOT, SECRET) as channel:
            ask(channel, "hello")
        assert strangers[0].recv(1) == b"", "the oldest was cut off"
        for stranger in strangers[1:]:
            stranger.setblocking(False)
            with pytest.raises(BlockingIOError):
                stranger.recv(1)
    server.close()


def test_those_who_have_proved_themselves_do_not_count() -> None:
    server = Echoing(limits=HandshakeLimits(connections=2, reserve=2))
    with ExitStack() as stack:
        channels: list[Channel] = []
        for number in range(8):
            channels.append(stack.enter_context(connect(server.tcp, SLOT, SECRET)))
            for channel in channels:
                ask(channel, number)  # so the server has seen its proof before the next one comes
    server.close()


def test_a_unix_socket_of_another_user_is_refused(server: Echoing, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getuid() + 1
    monkeypatch.setattr(transport.os, "getuid", lambda: other)
    with pytest.raises(
        UntrustedConnectionError, match=r"the peer on the unix socket belongs to another user, \d+"
    ):
        connect(server.address, SLOT, SECRET)


def test_a_unix_socket_that_cannot_be_bound_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its path would be too long."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    monkeypatch.setattr(transport, "_private_folder", lambda: folder)
    made: list[socket.socket] = []

    class Noted(socket.socket):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            if not options:  # with a file descriptor, it is what another server accepts meanwhile
                made.append(self)

    monkeypatch.setattr(transport.socket, "socket", Noted)
    with pytest.raises(OSError, match="too long"):
        listen_on_unix()
    assert [listener.fileno() for listener in made] == [-1]
