"""Encrypts a connection with TLS 1.3, by a key and a certificate that are made for one job.

They are part of the job's secret, which Spark brings to tasks, and tasks to slots. Each end presents the
certificate and trusts no other, so whoever completes TLS has the key. Nobody's name is verified by that, as
all have the same: which server the client means is proved by the handshake that follows inside.

One thread of a connection sends while another receives, which OpenSSL does not allow on one connection. So
TLS works on buffers in memory here, under a lock, and a thread waits for the socket outside of it.
"""

from __future__ import annotations

import datetime
import os
import secrets
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache

from pyflinkstate.errors import ConfigurationError, UntrustedConnectionError

#: The part of a job's secret that proofs and codes are made with; what follows is its key and certificate.
RANDOM_BYTES = 32
#: Number of bytes that are read from the socket at once.
_RECEIVE_BYTES = 1 << 17
#: Clocks of hosts differ, and nobody trusts the certificate after the job: it is valid at any time.
_FIRST, _LAST = datetime.datetime(2000, 1, 1), datetime.datetime(9999, 12, 31)


def new_secret(is_encrypted: bool) -> bytes:
    """Return the secret of a new job, including the TLS key pair if connections are to be encrypted.

    Raises:
        ConfigurationError: the package that makes certificates is not installed.
    """
    random = secrets.token_bytes(RANDOM_BYTES)
    return random + _new_identity() if is_encrypted else random


def is_encrypted(secret: bytes) -> bool:
    """Return whether the connections of the job with this secret are encrypted."""
    return len(secret) > RANDOM_BYTES


def _new_identity() -> bytes:
    """Return a key and a certificate for it, in PEM."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise ConfigurationError(
            "connections cannot be encrypted without the package cryptography, which makes the job's "
            "certificate: install it on the driver (pip install 'pyflinkstate[encryption]'), or set "
            "security.ssl.internal.enabled to false"
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "pyflinkstate job")])
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(_FIRST).not_valid_after(_LAST)
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    certificate = made.sign(key, hashes.SHA256())
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ) + certificate.public_bytes(serialization.Encoding.PEM)


@lru_cache(maxsize=16)
def _context(identity: bytes, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    if is_server:
        context.num_tickets = 0  # nobody comes back to resume a connection
    with _as_file(identity) as path:
        context.load_cert_chain(path)
    context.load_verify_locations(cadata=identity[identity.index(b"-----BEGIN CERTIFICATE") :].decode())
    return context


@contextmanager
def _as_file(identity: bytes) -> Iterator[str]:
    """Put the key where only this user can read it, as ``ssl`` reads files alone: on Linux in memory."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("pyflinkstate")
        try:
            os.write(descriptor, identity)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    with tempfile.NamedTemporaryFile() as file:
        file.write(identity)
        file.flush()
        yield file.name


class TlsSocket:
    """A connected TCP socket whose bytes are encrypted; it has what a channel needs of a socket.

    Args:
        sock: the socket.
        secret: the secret of a job whose connections are encrypted.
        is_server: whether this is the end that was listening.
    """

    def __init__(self, sock: socket.socket, secret: bytes, is_server: bool) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = _context(secret[RANDOM_BYTES:], is_server)
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._lock = threading.Lock()
        self._received = memoryview(bytearray(_RECEIVE_BYTES))
        # What needs no encryption.
        self.fileno = sock.fileno
        self.getsockname = sock.getsockname
        self.setsockopt = sock.setsockopt
        self.settimeout = sock.settimeout
        self.shutdown = sock.shutdown
        self.close = sock.close

    def do_handshake(self, before_waiting: Callable[[], None]) -> None:
        """Agree on keys; ``before_waiting`` is called each time before the socket is waited for.

        Raises:
            UntrustedConnectionError: the peer has another certificate, or does not encrypt.
            EOFError: the peer has closed the connection.
        """
        while not self._has_agreed():
            before_waiting()
            self._flush()
            if not self._receive():
                raise EOFError("it closed the connection, as a peer does that has another certificate")
        self._flush()

    def _has_agreed(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            self._flush()  # tell the peer why
            raise UntrustedConnectionError(
                f"the peer does not have the job's certificate, or does not encrypt ({error.reason})"
            ) from error
        return True

    def sendall(self, data: bytes | memoryview) -> None:
        """Send bytes; one thread at a time."""
        self.sendmsg([data])

    def sendmsg(self, parts: Sequence[bytes | memoryview]) -> int:
        """Send all parts, one after the other, and return how many bytes they have; one thread at a time."""
        data = memoryview(b"".join(parts))
        sent = 0
        with self._lock:
            while sent < len(data):
                sent += self._tls.write(data[sent:])
        self._flush()
        return sent

    def _flush(self) -> None:
        with self._lock:
            data = self._outgoing.read()
        self._sock.sendall(data)

    def recv(self, length: int, _flags: int = 0) -> bytes:
        """Return ``length`` bytes, and fewer only if the connection ends; one thread at a time."""
        view = memoryview(bytearray(length))
        came = 0
        while came < length:
            new = self._read(view[came:])
            came += new
            if not new and not self._receive():
                break
        return bytes(view[:came])

    def _read(self, into: memoryview) -> int:
        """Return how many bytes were there."""
        try:
            with self._lock:
                return int(self._tls.read(len(into), into))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLError as error:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            raise UntrustedConnectionError(
                f"what came is not what the peer has sent, or it does not have the job's certificate "
                f"({error.reason}): the connection was ended; find out who can write to this network"
            ) from error

    def _receive(self) -> bool:
        """Wait for bytes; return False at the end of the connection."""
        length = self._sock.recv_into(self._received)
        with self._lock:
            self._incoming.write(self._received[:length])
        return length > 0

    def pending(self) -> bool:
        """Return whether bytes have come that were not asked for yet."""
        with self._lock:
            return bool(self._tls.pending() or self._incoming.pending)
