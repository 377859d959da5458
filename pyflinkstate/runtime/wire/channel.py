"""A connection after its handshake: it carries whole messages, each of raw bytes or one pickled object.

A message is a head (kind and length) and a body. Over TCP each of the two is followed by a code: HMAC-SHA256
with the direction's key, over the message's number and the bytes, truncated to 128 bits. Nothing is used
before its code is verified, so a message that was changed, dropped, repeated or reordered on the way ends the
connection before anything is unpickled. The head has a code of its own, so that a changed length is found at
once, before its bytes are waited for.

An encrypted connection has no such codes, as TLS verifies its own (:mod:`~pyflinkstate.runtime.wire.tls`).
Unix sockets have none either: their data stays in the kernel, between two processes of one user
(``docs/adr/0010-authenticated-connections.md`` has the figures).
"""

from __future__ import annotations

import contextlib
import errno
import hmac
import pickle
import select
import socket
import struct
import threading

from pyflinkstate.errors import UntrustedConnectionError
from pyflinkstate.runtime.wire.tls import TlsSocket

#: A kind and a number: of bytes in a message's head, of the message in its codes.
_HEAD = struct.Struct(">cQ")
_BYTES, _PICKLE = b"B", b"P"
CODE_BYTES = 16


class MessageCodes:
    """Makes the codes of one direction's messages, in order."""

    def __init__(self, key: bytes) -> None:
        self._fresh = hmac.new(key, digestmod="sha256")
        self._number = 0

    def of_head(self, head: bytes) -> bytes:
        """Return the code of the next message's head."""
        return self._code(b"H", head)

    def of_body(self, body: bytes) -> bytes:
        """Return the code of the same message's body, and move on to the next message."""
        code = self._code(b"B", body)
        self._number += 1
        return code

    def _code(self, part: bytes, data: bytes) -> bytes:
        code = self._fresh.copy()
        code.update(_HEAD.pack(part, self._number))
        code.update(data)
        return code.digest()[:CODE_BYTES]


class Channel:
    """One end of a connection that both ends trust. One thread may send while another receives.

    Args:
        sock: a connected, blocking socket, which may be encrypted.
        sends: the codes of sent messages, or None.
        receives: the codes of received messages, or None.
    """

    def __init__(
        self,
        sock: socket.socket | TlsSocket,
        sends: MessageCodes | None = None,
        receives: MessageCodes | None = None,
    ) -> None:
        self._sock = sock
        self._sends, self._receives = sends, receives
        self._sending = threading.Lock()

    def __enter__(self) -> Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the socket's descriptor, or -1 after ``close``."""
        return self._sock.fileno()

    def host(self) -> str:
        """Return the address of this end of a TCP connection."""
        return str(self._sock.getsockname()[0])

    def close(self) -> None:
        """Close this end. Idempotent. If another thread may be using it, call ``shut_down`` instead."""
        self._sock.close()

    def shut_down(self) -> None:
        """End the connection at once for both sides, even for a thread that is blocked on it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def send(self, message: object) -> None:
        """Send an object; raise ``OSError`` if the peer is gone."""
        self._send(_PICKLE, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def try_send(self, message: object) -> None:
        """Send a small object if that is possible at once; otherwise another message is being sent.

        Raises:
            OSError: the peer is gone, or this end has been closed.
        """
        if not self._sending.acquire(blocking=False):
            return
        try:
            if self._is_ready(select.POLLOUT, 0.0):
                self._send_locked(_PICKLE, pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        finally:
            self._sending.release()

    def limit_sends(self, timeout_s: float) -> None:
        """From now on, end the connection if the peer accepts no bytes of a message for ``timeout_s``."""
        seconds, rest_s = divmod(max(timeout_s, 0.001), 1)
        timeout = struct.pack("ll", int(seconds), int(rest_s * 1_000_000))
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)

    def limit_messages(self, timeout_s: float) -> None:
        """From now on, end the connection if the peer does not accept a whole message within ``timeout_s``.

        The head of a message and its rest may take so long each. Receiving has the same limit.
        """
        self._sock.settimeout(timeout_s)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are; raise ``OSError`` if the peer is gone."""
        self._send(_BYTES, data)

    def recv(self) -> object:
        """Return the next message, which is an object.

        Raises:
            EOFError: the peer has closed the connection.
            UntrustedConnectionError: the message is not the one that the peer sent.
            OSError: the connection broke.
        """
        return pickle.loads(self._receive(_PICKLE))  # noqa: S301 - of the same job, and authenticated

    def recv_bytes(self) -> bytes:
        """Return the next message, which is bytes; errors are those of :meth:`recv`."""
        return self._receive(_BYTES)

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Return whether a message or the end of the connection comes within ``timeout_s``.

        Raises:
            OSError: this end has been closed.
        """
        if isinstance(self._sock, TlsSocket) and self._sock.pending():
            return True
        return self._is_ready(select.POLLIN, timeout_s)

    def _is_ready(self, event: int, timeout_s: float) -> bool:
        poll = select.poll()
        self.watch(poll, event)
        return bool(poll.poll(timeout_s * 1000))

    def watch(self, poll: select.poll, event: int) -> None:
        """Have ``poll`` wait for an event of this connection.

        Raises:
            OSError: this end has been closed, which ``poll`` tells with another error than all else does.
        """
        try:
            poll.register(self._sock, event)
        except ValueError as error:
            raise OSError(errno.EBADF, "the connection is closed") from error

    def _send(self, kind: bytes, body: bytes) -> None:
        with self._sending:
            self._send_locked(kind, body)

    def _send_locked(self, kind: bytes, body: bytes) -> None:
        head = _HEAD.pack(kind, len(body))
        try:
            if self._sends is None:
                self._send_all((head, body))
            else:
                self._send_all((head, self._sends.of_head(head), body, self._sends.of_body(body)))
        except OSError:
            self.shut_down()  # a part of the message may have been sent, so nothing can follow it
            raise

    def _send_all(self, parts: tuple[bytes, ...]) -> None:
        sent = self._sock.sendmsg(parts)
        for part in parts:
            if sent < len(part):
                self._sock.sendall(memoryview(part)[sent:])
            sent = max(0, sent - len(part))

    def _receive(self, kind: bytes) -> bytes:
        head = self._read(_HEAD.size, is_first=True)
        if self._receives is not None:
            self._check(self._receives.of_head(head))
        found, length = _HEAD.unpack(head)
        body = self._read(length)
        if self._receives is not None:
            self._check(self._receives.of_body(body))
        if found != kind:
            self.shut_down()
            raise UntrustedConnectionError(f"expected a message of kind {kind!r}, but got {found!r}")
        return body

    def _check(self, expected: bytes) -> None:
        if not hmac.compare_digest(expected, self._read(CODE_BYTES)):
            self.shut_down()
            raise UntrustedConnectionError(
                "a message was changed, left out, repeated or put in another order on its way: the "
                "connection was ended, and nothing of the message was used; find out who can write to this "
                "network"
            )

    def _read(self, length: int, is_first: bool = False) -> bytes:
        data = self._sock.recv(length, socket.MSG_WAITALL) if length else b""
        if len(data) == length:
            return data
        if not data and is_first:
            raise EOFError("the other end has closed the connection")
        parts = [data]
        left = length - len(data)
        while left:
            if not parts[-1]:
                raise ConnectionError("the other end has closed the connection in the middle of a message")
            parts.append(self._sock.recv(left, socket.MSG_WAITALL))
            left -= len(parts[-1])
        return b"".join(parts)
