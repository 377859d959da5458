"""Authenticated connections between driver, Spark tasks and state slots.

A client names the server that it means, and both ends prove that they know the job's secret
(:mod:`~pyflinkstate.runtime.wire.handshake`) before any byte of theirs is unpickled. After that the
connection is a :class:`~pyflinkstate.runtime.wire.channel.Channel`. If the job's secret has a certificate,
TCP is encrypted from the first byte on (:mod:`~pyflinkstate.runtime.wire.tls`).
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import attrs

from pyflinkstate.errors import UntrustedConnectionError
from pyflinkstate.runtime.wire.channel import Channel, MessageCodes
from pyflinkstate.runtime.wire.handshake import (
    CLIENT_HELLO_BYTES,
    LIMITS,
    PROOF_BYTES,
    SERVER_HELLO_BYTES,
    ClientHandshake,
    HandshakeLimits,
    ServerHandshake,
    Strangers,
    binding_of,
)
from pyflinkstate.runtime.wire.tls import TlsSocket, is_encrypted

_log = logging.getLogger("pyflinkstate.connections")

#: How long to wait after a connection could not be accepted for want of descriptors or threads.
ACCEPT_PAUSE_S = 0.1
#: Number of attempts of a client to connect, if the server ends the connection during the handshake.
_TRIES = 3
#: Number of connections that the kernel keeps until they are accepted; it may have a lower limit of its own.
_BACKLOG = 1024


@attrs.frozen
class Address:
    """Where a server listens: a unix socket for the same host, TCP for any other."""

    host: str
    port: int
    unix_path: str | None = None


@attrs.frozen
class ServerName:
    """The purpose of a server, and its name among those with that purpose."""

    purpose: str
    name: str

    @classmethod
    def of_slot(cls, slot: object, attempt: int) -> ServerName:
        """Return the name under which tasks reach a slot."""
        return cls("slot", f"{slot} of attempt {attempt}")

    def bound_to(self, address: Address, family: socket.AddressFamily) -> bytes:
        """Return the binding of a connection to it."""
        if family == socket.AF_UNIX:
            return binding_of(self.purpose, self.name, str(address.unix_path), "unix")
        return binding_of(self.purpose, self.name, f"{address.host} {address.port}", "tcp")


#: The name under which tasks and slots reach the driver.
DRIVER = ServerName("control", "driver")


_CROWD = (
    "%s server: %d connections or more do not prove that they belong to the job, so each of them is cut off "
    "after %g s; find out who connects, and keep others from this port with a firewall"
)
#: The sockets of this process. Forked processes must not keep them open, or peers would not notice its end.
_ours: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _close_inherited() -> None:
    for sock in list(_ours):
        with contextlib.suppress(OSError):
            sock.close()


os.register_at_fork(after_in_child=_close_inherited)


class _Wire:
    """A socket during the handshake; all steps share one deadline."""

    def __init__(self, sock: socket.socket, limits: HandshakeLimits, deadline_s: float) -> None:
        self.sock: socket.socket | TlsSocket = sock
        self._now_s = limits.now_s
        self._deadline_s = deadline_s

    def encrypt(self, secret: bytes, is_server: bool) -> None:
        """Encrypt what follows, if the job's connections are encrypted and this one leaves the kernel."""
        sock = self.sock
        if isinstance(sock, socket.socket) and sock.family != socket.AF_UNIX and is_encrypted(secret):
            encrypted = TlsSocket(sock, secret, is_server)
            encrypted.do_handshake(self._set_timeout)
            self.sock = encrypted

    def send(self, data: bytes) -> None:
        self._set_timeout()
        self.sock.sendall(data)

    def receive(self, length: int) -> bytes:
        data = b""
        while len(data) < length:
            self._set_timeout()
            more = self.sock.recv(length - len(data))
            if not more:
                raise EOFError(
                    "it closed the connection, as a server does to a client that means another server or "
                    "has another secret, or if too many connect at once"
                )
            data += more
        return data

    def _set_timeout(self) -> None:
        self.sock.settimeout(_left_s(self._deadline_s, self._now_s))


def _left_s(deadline_s: float, now_s: Callable[[], float]) -> float:
    left_s = deadline_s - now_s()
    if left_s <= 0:
        raise TimeoutError("the handshake took too long")
    return left_s


def connect(address: Address, server: ServerName, secret: bytes, limits: HandshakeLimits = LIMITS) -> Channel:
    """Connect and authenticate, through the unix socket if it exists on this host.

    Args:
        address: the address to connect to.
        server: the expected server; any other at that address is refused.
        secret: the secret of the job, see :func:`~pyflinkstate.runtime.wire.tls.new_secret`.

    Raises:
        UntrustedConnectionError: the peer is another server, or does not know the secret.
        OSError: nobody listens there.
    """
    deadline_s = limits.now_s() + limits.timeout_s
    cut_off: list[_CutOffError] = []
    while len(cut_off) < _TRIES:
        try:
            return _connect_once(address, server, secret, limits, deadline_s)
        except _CutOffError as error:
            cut_off.append(error)
        except (ConnectionRefusedError, ConnectionResetError):  # nobody listens any more
            if not cut_off:
                raise
            break
    raise cut_off[0]


class _CutOffError(ConnectionError):
    """The server has ended the connection during the handshake: there may be room for another one."""


def _connect_once(
    address: Address, server: ServerName, secret: bytes, limits: HandshakeLimits, deadline_s: float
) -> Channel:
    sock = _connect_on_unix(address.unix_path, _left_s(deadline_s, limits.now_s))
    if sock is None:
        sock = socket.create_connection(
            (address.host, address.port), timeout=_left_s(deadline_s, limits.now_s)
        )
    _ours.add(sock)
    try:
        return _greet_server(sock, address, server, secret, _Wire(sock, limits, deadline_s))
    except UntrustedConnectionError as error:
        sock.close()
        raise UntrustedConnectionError(f"cannot authenticate the connection to {address}: {error}") from error
    except (EOFError, OSError) as error:
        sock.close()
        kind = _CutOffError if isinstance(error, (EOFError, ConnectionError)) else ConnectionError
        raise kind(f"cannot authenticate the connection to {address}: {error}") from error


def _greet_server(
    sock: socket.socket, address: Address, server: ServerName, secret: bytes, wire: _Wire
) -> Channel:
    _check_user(sock)
    wire.encrypt(secret, is_server=False)
    handshake = ClientHandshake(secret, server.bound_to(address, sock.family))
    wire.send(handshake.hello)
    proof, keys = handshake.finish(wire.receive(SERVER_HELLO_BYTES))
    wire.send(proof)
    return _channel(sock, wire.sock, keys.to_server, keys.to_client)


def _greet_client(
    sock: socket.socket, binding: bytes, secret: bytes, wire: _Wire, has_begun: Callable[[], None]
) -> Channel:
    """Authenticate a client; ``has_begun`` is called when its hello is right."""
    _check_user(sock)
    wire.encrypt(secret, is_server=True)
    handshake = ServerHandshake(secret, binding)
    answer = handshake.answer(wire.receive(CLIENT_HELLO_BYTES))
    has_begun()
    wire.send(answer)
    keys = handshake.finish(wire.receive(PROOF_BYTES))
    return _channel(sock, wire.sock, keys.to_client, keys.to_server)


def _channel(
    sock: socket.socket, carrier: socket.socket | TlsSocket, sends: bytes, receives: bytes
) -> Channel:
    sock.settimeout(None)
    if sock.family == socket.AF_UNIX:
        return Channel(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel notices within about a minute, not two hours, that the other host is gone.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Linux has all of them
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    if isinstance(carrier, TlsSocket):
        return Channel(carrier)  # TLS has codes of its own
    return Channel(sock, MessageCodes(sends), MessageCodes(receives))


def _check_user(sock: socket.socket) -> None:
    """Refuse a unix socket's peer if it belongs to another user, on systems that tell its user."""
    if sock.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return
    _, uid, _ = struct.unpack(
        "3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if uid != os.getuid():
        raise UntrustedConnectionError(f"the peer on the unix socket belongs to another user, {uid}")


def _connect_on_unix(path: str | None, timeout_s: float) -> socket.socket | None:
    """Connect to a unix socket; return None if it is on another host, or nobody accepts connections."""
    if path is None or not os.path.exists(path):
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(timeout_s)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


class Server:
    """Accepts connections, each authenticated and served in a thread of its own.

    Args:
        listeners: bound and listening sockets.
        address: the address that clients are told.
        name: the name of this server.
        secret: the secret that a peer must know.
        serve: called with each authenticated connection; ``EOFError`` and ``OSError`` end it quietly.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        address: Address,
        name: ServerName,
        secret: bytes,
        serve: Callable[[Channel], None],
        limits: HandshakeLimits = LIMITS,
    ) -> None:
        self._listeners = listeners
        _ours.update(listeners)
        self._address = address
        self._name = name
        self._secret = secret
        self._serve = serve
        self._limits = limits
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Start to accept connections."""
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), daemon=True)
            for listener in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        """Return whether the threads of all listeners are alive."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Stop accepting; open connections stay open.

        The thread that waits at a listener closes it. If another one did, the number of the descriptor could
        be that of a new socket before the thread begins to wait, and it would wait at that one.
        """
        self._closed.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            if not self._threads:
                listener.close()
        if self._address.unix_path is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._address.unix_path)

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            self._accept_until_closed(listener)

    def _accept_until_closed(self, listener: socket.socket) -> None:
        strangers = Strangers[socket.socket](self._limits)
        was_crowd = False
        while True:
            try:
                self._take(listener, strangers)
            except (OSError, RuntimeError) as error:  # no more descriptors, or no more threads
                if self._closed.wait(ACCEPT_PAUSE_S):
                    return
                _log.warning("a connection could not be accepted; waiting for the next one: %s", error)
            is_crowd = strangers.is_crowd()
            if is_crowd and not was_crowd:
                _log.warning(_CROWD, self._name.purpose, self._limits.crowd, self._limits.crowd_timeout_s)
            was_crowd = is_crowd

    def _take(self, listener: socket.socket, strangers: Strangers[socket.socket]) -> None:
        """Accept a connection, or cut off those that have taken too long."""
        listener.settimeout(strangers.wait_s())
        try:
            sock, _ = listener.accept()
        except TimeoutError:
            _cut_off(strangers.take_late())
            return
        _ours.add(sock)
        _cut_off(strangers.admit(sock) + strangers.take_late())
        try:
            threading.Thread(target=self._greet, args=(sock, strangers), daemon=True).start()
        except BaseException:
            strangers.leave(sock)
            sock.close()
            raise

    def _greet(self, sock: socket.socket, strangers: Strangers[socket.socket]) -> None:
        with sock:
            try:
                self._authenticate_and_serve(sock, strangers)
            except UntrustedConnectionError as error:
                _log.warning("a connection to the %s server was refused: %s", self._name.purpose, error)
            except (EOFError, OSError):
                pass  # the peer is gone
            except Exception:  # noqa: BLE001 - it ends only this connection
                _log.exception("a connection to the %s server was dropped", self._name.purpose)

    def _authenticate_and_serve(self, sock: socket.socket, strangers: Strangers[socket.socket]) -> None:
        deadline_s = self._limits.now_s() + self._limits.timeout_s
        try:
            binding = self._name.bound_to(self._address, sock.family)
            wire = _Wire(sock, self._limits, deadline_s)
            channel = _greet_client(
                sock, binding, self._secret, wire, lambda: _cut_off(strangers.begin(sock))
            )
        finally:
            strangers.leave(sock)
        self._serve(channel)


def _cut_off(socks: Iterable[socket.socket]) -> None:
    """End connections; the threads that read them notice, and close them."""
    for sock in socks:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def listen_on_tcp(host: str, port: int = 0) -> socket.socket:
    """Listen on a port of ``host``, a name or an address of IPv4 or IPv6; port 0 chooses a free one.

    The wildcard of IPv6 is reached by both.
    """
    family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    is_wildcard = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
    return socket.create_server((host, port), family=family, backlog=_BACKLOG, dualstack_ipv6=is_wildcard)


def listen_on_unix() -> tuple[socket.socket, str]:
    """Listen on a unix socket in a folder that only this user can enter; return the socket and its path."""
    folder = _private_folder()
    _remove_orphans(folder)
    path = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener, str(path)


def listen_near_and_far(host: str) -> tuple[list[socket.socket], Address]:
    """Listen at an address of this host, and for its own processes on a unix socket if that is possible."""
    listeners, path = [listen_on_tcp(host)], None
    with contextlib.suppress(OSError):  # the temp folder has a long name, or belongs to another user
        unix, path = listen_on_unix()
        listeners.append(unix)
    return listeners, Address(host, listeners[0].getsockname()[1], path)


def _private_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"pyflinkstate-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o777 != 0o700:
        raise PermissionError(f"{folder} does not belong to this user, or others can enter it; remove it")
    return folder


def _remove_orphans(folder: Path) -> None:
    """Remove the sockets of processes that were killed."""
    for path in folder.iterdir():
        try:
            os.kill(int(path.name.partition("-")[0]), 0)
        except (ProcessLookupError, ValueError):
            path.unlink(missing_ok=True)
        except PermissionError:
            continue
