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
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct

import attrs

from pyflinkstate.errors import UntrustedConnectionError

VERSION = 2
NONCE_BYTES = 32
DIGEST_BYTES = 32
_HEAD = struct.Struct(">4sH")
_CLIENT, _SERVER = b"PFSC", b"PFSS"
CLIENT_HELLO_BYTES = _HEAD.size + DIGEST_BYTES + NONCE_BYTES + DIGEST_BYTES
SERVER_HELLO_BYTES = _HEAD.size + NONCE_BYTES + DIGEST_BYTES
PROOF_BYTES = DIGEST_BYTES


@attrs.frozen
class Binding:
    """The server that a client means to reach, and the path to it.

    Attributes:
        purpose: the purpose of the server.
        server: its name among those with that purpose.
        address: the address at which it says it listens.
        path: ``tcp`` or ``unix``.
    """

    purpose: str
    server: str
    address: str
    path: str

    def digest(self) -> bytes:
        """Return 32 bytes that are the same for the same binding, and differ for any other."""
        digest = hashlib.sha256()
        for field in (self.purpose, self.server, self.address, self.path):
            data = field.encode("utf-8", "surrogatepass")
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
        transcript = hashlib.sha256(self._said).digest()
        proof = hmac.digest(self._derive(label), transcript, "sha256")
        self._said += proof
        return proof

    def _derive(self, label: bytes) -> bytes:
        transcript = hashlib.sha256(self._said).digest()
        return hmac.digest(self._key, label + transcript + b"\x01", "sha256")


class ClientHandshake:
    """The handshake of the side that connects."""

    def __init__(self, secret: bytes, binding: Binding) -> None:
        self._secret = secret
        hello = _HEAD.pack(_CLIENT, VERSION) + binding.digest() + secrets.token_bytes(NONCE_BYTES)
        self._hello = hello + _hello_code(secret, hello)

    def hello(self) -> bytes:
        """Return the first message, of ``CLIENT_HELLO_BYTES`` bytes."""
        return self._hello

    def finish(self, answer: bytes) -> tuple[bytes, SessionKeys]:
        """Return the last message, of ``PROOF_BYTES`` bytes, and the keys; ``answer`` is the server's.

        Raises:
            UntrustedConnectionError: the answer is not from the expected server.
        """
        _check_head(answer, _SERVER)
        head, proof = answer[:-DIGEST_BYTES], answer[-DIGEST_BYTES:]
        schedule = _KeySchedule(self._secret, self._hello, head)
        _check(schedule.server_proof(), proof)
        return schedule.client_proof(), schedule.keys()


class ServerHandshake:
    """The handshake of the side that listens; ``binding`` is the one that its clients must use."""

    def __init__(self, secret: bytes, binding: Binding) -> None:
        self._secret = secret
        self._binding = binding.digest()
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
