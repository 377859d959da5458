"""Authenticated connections between driver, Spark tasks and state slots.

Both ends prove that they know the job's secret (challenge and response by HMAC, as the standard
library's ``multiprocessing.connection`` does it) before a byte of theirs is unpickled. A message is
either raw bytes or one pickled object. Frames travel in the clear, as Spark's own blocks do by default.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import struct
import tempfile
import threading
from collections.abc import Callable, Sequence
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge
from pathlib import Path

import attrs

_log = logging.getLogger("pyflinkstate")

HANDSHAKE_TIMEOUT_S = 30
#: Where no connection can be taken, for want of descriptors or threads, it is tried again after so long.
ACCEPT_PAUSE_S = 0.1
_NO_TIMEOUT = struct.pack("ll", 0, 0)


@attrs.frozen
class Address:
    """Where a server listens: a unix socket for the same host, TCP for any other."""

    host: str
    port: int
    unix_path: str | None = None


def connect(address: Address, secret: bytes) -> Connection:
    """Connect and authenticate, through the unix socket where it exists on this host.

    Raises:
        OSError: nobody listens there, or the other end does not know the secret.
    """
    sock = None if address.unix_path is None else _connect_on_unix(address.unix_path)
    if sock is None:
        sock = socket.create_connection((address.host, address.port), timeout=HANDSHAKE_TIMEOUT_S)
    connection = _as_connection(sock)
    try:
        answer_challenge(connection, secret)
        deliver_challenge(connection, secret)
    except (AuthenticationError, EOFError, OSError) as error:
        connection.close()
        raise ConnectionError(f"no trust between the two ends of {address}: {error}") from error
    _set_receive_timeout(connection, _NO_TIMEOUT)
    return connection


def _connect_on_unix(path: str) -> socket.socket | None:
    """Connect to a unix socket; None where it is not this host's, or nobody listens any more."""
    if not os.path.exists(path):
        return None
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.connect(path)
    except OSError:
        sock.close()
        return None
    return sock


def _as_connection(sock: socket.socket) -> Connection:
    sock.settimeout(None)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _keep_alive(sock)
    connection = Connection(sock.detach())
    _set_receive_timeout(connection, struct.pack("ll", HANDSHAKE_TIMEOUT_S, 0))
    return connection


def _keep_alive(sock: socket.socket) -> None:
    """Notice within about a minute that the other host is gone, not within the kernel's two hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # Linux has them all
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def shut_down(connection: Connection) -> None:
    """End a connection at once for both sides, also for a thread that is blocked on it."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def _set_receive_timeout(connection: Connection, timeout: bytes) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)


class Server:
    """Accepts connections, each authenticated and served in a thread of its own.

    Args:
        listeners: bound and listening sockets.
        secret: what a peer must know.
        serve: called with each authenticated connection; ``EOFError`` and ``OSError`` end it quietly.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], secret: bytes, serve: Callable[[Connection], None]
    ) -> None:
        self._closed = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listeners = listeners
        self._secret = secret
        self._serve = serve

    def start(self) -> None:
        """Begin to accept."""
        self._threads = [
            threading.Thread(target=self._accept, args=(listener,), daemon=True)
            for listener in self._listeners
        ]
        for thread in self._threads:
            thread.start()

    def is_alive(self) -> bool:
        """Return whether every listener is being listened to."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Accept no more; connections that are open stay open."""
        self._closed.set()
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                self._take(listener)
            except (OSError, RuntimeError) as error:  # no more descriptors, or no more threads
                if self._closed.wait(ACCEPT_PAUSE_S):
                    return
                _log.warning("a connection could not be taken, and the next one is waited for: %s", error)

    def _take(self, listener: socket.socket) -> None:
        sock, _ = listener.accept()
        try:
            threading.Thread(target=self._greet, args=(sock,), daemon=True).start()
        except BaseException:
            sock.close()
            raise

    def _greet(self, sock: socket.socket) -> None:
        try:
            self._authenticate_and_serve(sock)
        except Exception:  # noqa: BLE001 - it ends this connection, and no other
            _log.exception("a connection was given up")

    def _authenticate_and_serve(self, sock: socket.socket) -> None:
        connection = _as_connection(sock)
        with connection, contextlib.suppress(AuthenticationError, EOFError, OSError):
            deliver_challenge(connection, self._secret)
            answer_challenge(connection, self._secret)
            _set_receive_timeout(connection, _NO_TIMEOUT)
            self._serve(connection)


def listen_on_tcp(host: str, port: int = 0) -> socket.socket:
    """Listen on a port of ``host``, on a free one for 0."""
    return socket.create_server((host, port), backlog=128)


def listen_on_unix() -> tuple[socket.socket, str]:
    """Listen on a unix socket in a folder that only this user can enter; returns it and its path."""
    folder = _private_folder()
    _remove_orphans(folder)
    path = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    listener.listen(128)
    return listener, str(path)


def _private_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"pyflinkstate-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if status.st_uid != os.getuid() or status.st_mode & 0o777 != 0o700:
        raise PermissionError(f"{folder} is not this user's own, or others can enter it; remove it")
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
