"""The handshake of two peers that know a job's secret: bytes in, bytes out, no sockets and no clock.

::

    client                                         server
      hello: version, binding, nonce, code ------>   is the binding my own? is the code right?
      is the proof right?                  <------   hello: version, nonce, proof
      proof                                ------>   is it right?

The *binding* is a digest of the server that the client means: its purpose, its name, the address that the
client was told and the path (TCP or unix socket) that it takes. A server answers only its own binding, and
both proofs cover all bytes sent so far. So an attacker who relays messages to another server gets no proof
from it, one who reflects a client's messages has no proof, and one who replays a handshake meets another
nonce. The code of the hello shows that the client knows the secret, or has recorded a hello: a server gives
such connections room that strangers cannot take.

Keys are derived from the secret as in TLS 1.3 (HKDF, RFC 5869, over the transcript): one for each proof, and
one for the messages of each direction. Every message has a fixed length, so an unproven peer cannot influence
how much is read.

:class:`Strangers` decides which unauthenticated connections of a listener stay open. A new connection is
always accepted, and never waits for another one. When there are too many, the oldest is cut off. A connection
that has sent a right hello has begun to prove itself: it counts towards a reserve of its own, so strangers
never cost it its place.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
import threading
import time
from collections.abc import Callable
from typing import Generic

import attrs

from pyflinkstate.api import T
from pyflinkstate.errors import UntrustedConnectionError

VERSION = 2
NONCE_BYTES = 32
DIGEST_BYTES = 32
_HEAD = struct.Struct(">4sH")
_CLIENT, _SERVER = b"PFSC", b"PFSS"
CLIENT_HELLO_BYTES = _HEAD.size + DIGEST_BYTES + NONCE_BYTES + DIGEST_BYTES
SERVER_HELLO_BYTES = _HEAD.size + NONCE_BYTES + DIGEST_BYTES
PROOF_BYTES = DIGEST_BYTES


def binding_of(purpose: str, server: str, address: str, path: str) -> bytes:
    """Return 32 bytes for the server that a client means to reach, and the path to it.

    They are the same for the same arguments, and differ for any others.

    Args:
        purpose: the purpose of the server.
        server: its name among those with that purpose.
        address: the address at which it says it listens.
        path: ``tcp`` or ``unix``.
    """
    digest = hashlib.sha256()
    for part in (purpose, server, address, path):
        data = part.encode("utf-8", "surrogatepass")
        digest.update(struct.pack(">Q", len(data)) + data)
    return digest.digest()


@attrs.frozen
class SessionKeys:
    """The keys for the messages after the handshake, one for each direction."""

    to_server: bytes = attrs.field(repr=False)
    to_client: bytes = attrs.field(repr=False)


def _secret_key(secret: bytes) -> bytes:
    return hmac.digest(b"pyflinkstate handshake", secret, "sha256")


def _hello_code(secret: bytes, hello: bytes) -> bytes:
    """Return the code of a hello without its code."""
    return hmac.digest(_secret_key(secret), b"client hello" + hello, "sha256")


class _KeySchedule:
    """Derives proofs and keys from the secret and all messages so far."""

    def __init__(self, secret: bytes, client_hello: bytes, server_head: bytes) -> None:
        self._key = _secret_key(secret)
        self._said = client_hello + server_head

    def server_proof(self) -> bytes:
        return self._proof(b"server proof")

    def client_proof(self) -> bytes:
        return self._proof(b"client proof")

    def keys(self) -> SessionKeys:
        return SessionKeys(self._derive(b"to server"), self._derive(b"to client"))

    def _proof(self, label: bytes) -> bytes:
        proof = hmac.digest(self._derive(label), hashlib.sha256(self._said).digest(), "sha256")
        self._said += proof
        return proof

    def _derive(self, label: bytes) -> bytes:
        transcript = hashlib.sha256(self._said).digest()
        return hmac.digest(self._key, label + transcript + b"\x01", "sha256")


class ClientHandshake:
    """The handshake of the side that connects."""

    def __init__(self, secret: bytes, binding: bytes) -> None:
        self._secret = secret
        hello = _HEAD.pack(_CLIENT, VERSION) + binding + secrets.token_bytes(NONCE_BYTES)
        #: The first message, of ``CLIENT_HELLO_BYTES`` bytes.
        self.hello = hello + _hello_code(secret, hello)

    def finish(self, answer: bytes) -> tuple[bytes, SessionKeys]:
        """Return the last message, of ``PROOF_BYTES`` bytes, and the keys; ``answer`` is the server's.

        Raises:
            UntrustedConnectionError: the answer is not from the expected server.
        """
        _check_head(answer, _SERVER)
        head, proof = answer[:-DIGEST_BYTES], answer[-DIGEST_BYTES:]
        schedule = _KeySchedule(self._secret, self.hello, head)
        _check(schedule.server_proof(), proof)
        return schedule.client_proof(), schedule.keys()


class ServerHandshake:
    """The handshake of the side that listens; ``binding`` is the one that its clients must use."""

    def __init__(self, secret: bytes, binding: bytes) -> None:
        self._secret = secret
        self._binding = binding
        self._schedule: _KeySchedule | None = None

    def answer(self, hello: bytes) -> bytes:
        """Return the answer to a client's hello, of ``SERVER_HELLO_BYTES`` bytes.

        Raises:
            UntrustedConnectionError: the client means another server, speaks another protocol, or does not
                know the secret.
        """
        _check_head(hello, _CLIENT)
        if not hmac.compare_digest(hello[_HEAD.size : _HEAD.size + DIGEST_BYTES], self._binding):
            raise UntrustedConnectionError("the client meant another server, or another address of this one")
        _check(_hello_code(self._secret, hello[:-DIGEST_BYTES]), hello[-DIGEST_BYTES:])
        head = _HEAD.pack(_SERVER, VERSION) + secrets.token_bytes(NONCE_BYTES)
        self._schedule = _KeySchedule(self._secret, hello, head)
        return head + self._schedule.server_proof()

    def finish(self, proof: bytes) -> SessionKeys:
        """Return the keys if the client's last message proves that it knows the secret.

        Raises:
            UntrustedConnectionError: it does not prove that.
        """
        assert self._schedule is not None
        _check(self._schedule.client_proof(), proof)
        return self._schedule.keys()


def _check_head(message: bytes, role: bytes) -> None:
    found, version = _HEAD.unpack_from(message)
    if found != role:
        raise UntrustedConnectionError("the peer speaks another protocol")
    if version != VERSION:
        raise UntrustedConnectionError(
            f"the peer speaks version {version} of the protocol, and this process speaks {VERSION}: "
            f"install the same pyflinkstate on driver and executors"
        )


def _check(expected: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(expected, proof):
        raise UntrustedConnectionError("the peer does not know the job's secret, or is not the expected one")


#: A listener with unauthenticated connections looks at their time at most this often.
_SHORTEST_WAIT_S = 0.1


@attrs.frozen
class HandshakeLimits:
    """Limits for peers that have not proved yet that they know the secret.

    Attributes:
        timeout_s: the time for the whole handshake, even if its bytes trickle in.
        connections: how many connections without a right hello each listener may have.
        reserve: how many that have sent one it may have besides.
        crowd: from this many without a right hello on, each of them has less time.
        crowd_timeout_s: that time.
        now_s: returns monotonic time.
    """

    timeout_s: float = 30.0
    connections: int = 128
    reserve: int = 256
    crowd: int = 32
    crowd_timeout_s: float = 2.0
    now_s: Callable[[], float] = time.monotonic


LIMITS = HandshakeLimits()


@attrs.define(eq=False)
class Strangers(Generic[T]):
    """The connections of one listener that are not authenticated yet, the oldest first. Thread-safe."""

    _limits: HandshakeLimits
    #: When each came.
    _unproved: dict[T, float] = attrs.field(init=False, factory=dict)
    _begun: dict[T, float] = attrs.field(init=False, factory=dict)
    _lock: threading.Lock = attrs.field(init=False, factory=threading.Lock)

    def admit(self, connection: T) -> list[T]:
        """Add a new connection; return the older ones to cut off."""
        with self._lock:
            self._unproved[connection] = self._limits.now_s()
            return _take_oldest(self._unproved, self._limits.connections)

    def begin(self, connection: T) -> list[T]:
        """Record that a connection has sent a right hello; return the older ones like it to cut off."""
        with self._lock:
            came_s = self._unproved.pop(connection, None)
            if came_s is None:  # it was cut off meanwhile
                return []
            self._begun[connection] = came_s
            return _take_oldest(self._begun, self._limits.reserve)

    def leave(self, connection: T) -> None:
        """Remove a connection that is authenticated or gone."""
        with self._lock:
            self._unproved.pop(connection, None)
            self._begun.pop(connection, None)

    def take_late(self) -> list[T]:
        """Remove and return the connections whose time for the handshake is over."""
        late: list[T] = []
        with self._lock:
            now_s = self._limits.now_s()
            for known, timeout_s in self._timeouts_s():
                over = [connection for connection, came_s in known.items() if now_s - came_s >= timeout_s]
                for connection in over:
                    del known[connection]
                late += over
        return late

    def wait_s(self) -> float | None:
        """Return after how many seconds to call ``take_late``; None if there is no such connection."""
        with self._lock:
            oldest = [
                (next(iter(known.values())), timeout_s) for known, timeout_s in self._timeouts_s() if known
            ]
            if not oldest:
                return None
            now_s = self._limits.now_s()
            return max(_SHORTEST_WAIT_S, min(came_s + timeout_s - now_s for came_s, timeout_s in oldest))

    def is_crowd(self) -> bool:
        """Return whether there are so many without a right hello that each has less time."""
        return len(self._unproved) >= self._limits.crowd

    def _timeouts_s(self) -> tuple[tuple[dict[T, float], float], ...]:
        limits = self._limits
        unproved_s = min(limits.timeout_s, limits.crowd_timeout_s) if self.is_crowd() else limits.timeout_s
        return (self._unproved, unproved_s), (self._begun, limits.timeout_s)


def _take_oldest(connections: dict[T, float], most: int) -> list[T]:
    """Remove and return the oldest connections beyond ``most``."""
    surplus = list(connections)[: max(0, len(connections) - most)]
    for connection in surplus:
        del connections[connection]
    return surplus
