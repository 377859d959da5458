"""The handshake of two ends that know a job's secret: bytes in, bytes out, no sockets and no clock.

::

    client                                         server
      hello: version, binding, nonce       ------>   is the binding my own?
      is the proof right?                  <------   hello: version, nonce, proof
      proof                                ------>   is it right?

The *binding* is a digest of whom the client means: what the server is for, which one it is, the address that
it was told and the path (TCP or unix socket) that it takes. A server answers only a binding that is its own,
and both proofs are over all bytes said so far. So who passes messages on to another server gets no proof out
of it, who sends a client its own words back has none, and who replays a handshake meets another nonce.

Keys are derived from the secret as TLS 1.3 does it (HKDF, RFC 5869, over the transcript): one for each proof,
and one for the messages of each direction. Every message has a fixed length: before a peer has proved itself
nothing of what it says decides how much is read.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

import attrs

from pyflinkstate.errors import UntrustedConnectionError

VERSION = 1
NONCE_BYTES = 32
DIGEST_BYTES = 32
_HEAD = struct.Struct(">4sH")
_CLIENT, _SERVER = b"PFSC", b"PFSS"
CLIENT_HELLO_BYTES = _HEAD.size + DIGEST_BYTES + NONCE_BYTES
SERVER_HELLO_BYTES = _HEAD.size + NONCE_BYTES + DIGEST_BYTES
PROOF_BYTES = DIGEST_BYTES


@attrs.frozen
class Binding:
    """Whom a client means to reach, and how.

    Attributes:
        purpose: what the server is for.
        server: which one of them it is.
        address: where it says that it listens.
        path: ``tcp`` or ``unix``.
    """

    purpose: str
    server: str
    address: str
    path: str

    def digest(self) -> bytes:
        """Return the same 32 bytes for the same binding, and others for any other."""
        digest = hashlib.sha256()
        for field in (self.purpose, self.server, self.address, self.path):
            data = field.encode("utf-8", "surrogatepass")
            digest.update(struct.pack(">Q", len(data)) + data)
        return digest.digest()


@attrs.frozen
class SessionKeys:
    """The keys for what follows the handshake, one for each direction."""

    to_server: bytes = attrs.field(repr=False)
    to_client: bytes = attrs.field(repr=False)


class _KeySchedule:
    """Proofs and keys, each from the secret and all that was said before it."""

    def __init__(self, secret: bytes, client_hello: bytes, server_head: bytes) -> None:
        self._key = hmac.digest(b"pyflinkstate handshake", secret, "sha256")
        self._said = client_hello + server_head

    def server_proof(self) -> bytes:
        return self._proof(b"server proof")

    def client_proof(self) -> bytes:
        return self._proof(b"client proof")

    def keys(self) -> SessionKeys:
        return SessionKeys(self._derive(b"to server"), self._derive(b"to client"))

    def _proof(self, label: bytes) -> bytes:
        transcript = hashlib.sha256(self._said).digest()
        proof = hmac.digest(self._derive(label), transcript, "sha256")
        self._said += proof
        return proof

    def _derive(self, label: bytes) -> bytes:
        transcript = hashlib.sha256(self._said).digest()
        return hmac.digest(self._key, label + transcript + b"\x01", "sha256")


class ClientHandshake:
    """The side that connects."""

    def __init__(self, secret: bytes, binding: Binding) -> None:
        self._secret = secret
        self._hello = _HEAD.pack(_CLIENT, VERSION) + binding.digest() + secrets.token_bytes(NONCE_BYTES)

    def hello(self) -> bytes:
        """Return the first message, of ``CLIENT_HELLO_BYTES``."""
        return self._hello

    def finish(self, answer: bytes) -> tuple[bytes, SessionKeys]:
        """Return the last message, of ``PROOF_BYTES``, and the keys; ``answer`` is the server's.

        Raises:
            UntrustedConnectionError: who answers is not the server that is meant.
        """
        _check_head(answer, _SERVER)
        head, proof = answer[:-DIGEST_BYTES], answer[-DIGEST_BYTES:]
        schedule = _KeySchedule(self._secret, self._hello, head)
        _check(schedule.server_proof(), proof)
        return schedule.client_proof(), schedule.keys()


class ServerHandshake:
    """The side that listens; ``binding`` is what its clients must mean."""

    def __init__(self, secret: bytes, binding: Binding) -> None:
        self._secret = secret
        self._binding = binding.digest()
        self._schedule: _KeySchedule | None = None

    def answer(self, hello: bytes) -> bytes:
        """Return the answer to a client's hello, of ``SERVER_HELLO_BYTES``.

        Raises:
            UntrustedConnectionError: the client means another server, or speaks something else.
        """
        _check_head(hello, _CLIENT)
        if not hmac.compare_digest(hello[_HEAD.size : _HEAD.size + DIGEST_BYTES], self._binding):
            raise UntrustedConnectionError("the client meant another server, or another address of this one")
        head = _HEAD.pack(_SERVER, VERSION) + secrets.token_bytes(NONCE_BYTES)
        self._schedule = _KeySchedule(self._secret, hello, head)
        return head + self._schedule.server_proof()

    def finish(self, proof: bytes) -> SessionKeys:
        """Return the keys, when the client's last message proves that it knows the secret.

        Raises:
            UntrustedConnectionError: it does not.
        """
        assert self._schedule is not None
        _check(self._schedule.client_proof(), proof)
        return self._schedule.keys()


def _check_head(message: bytes, role: bytes) -> None:
    found, version = _HEAD.unpack_from(message)
    if found != role:
        raise UntrustedConnectionError("the other end speaks another protocol")
    if version != VERSION:
        raise UntrustedConnectionError(
            f"the other end speaks version {version} of the protocol, and this one {VERSION}: "
            f"install the same pyflinkstate on driver and executors"
        )


def _check(expected: bytes, proof: bytes) -> None:
    if not hmac.compare_digest(expected, proof):
        raise UntrustedConnectionError("the other end does not know the job's secret, or is not who is meant")
