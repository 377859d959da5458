"""The frame around every head of ours: magic, format version, length, JSON, checksum.

::

    8 bytes magic | u2 format version | u4 length of JSON | JSON (UTF-8) | u4 CRC-32 of all before

All numbers are big-endian. The version leads, so that a reader knows what it cannot read.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection
from typing import Any

from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError

_PREFIX = struct.Struct(">8sHI")
_CHECKSUM = struct.Struct(">I")

PREFIX_SIZE = _PREFIX.size


def encode_head(magic: bytes, version: int, content: dict[str, Any]) -> bytes:
    """Return ``content`` in its frame."""
    body = json.dumps(content, separators=(",", ":")).encode()
    framed = _PREFIX.pack(magic, version, len(body)) + body
    return framed + _CHECKSUM.pack(zlib.crc32(framed))


def head_size(prefix: bytes, magic: bytes, versions: Collection[int], what: str) -> int:
    """Return the size of the whole head, of which ``prefix`` is the first ``PREFIX_SIZE`` bytes.

    Raises:
        CorruptCheckpointError: these are not the first bytes of such a head.
        IncompatibleCheckpointError: the format version is none of ``versions``.
    """
    if len(prefix) < PREFIX_SIZE or prefix[:8] != magic:
        raise CorruptCheckpointError(
            f"{what} is damaged: it does not begin as a file of this kind does", file=what
        )
    _, found, length = _PREFIX.unpack(prefix[:PREFIX_SIZE])
    if found not in versions:
        raise IncompatibleCheckpointError(
            f"{what} has format version {found}, and this release reads up to version {max(versions)}: "
            f"restore it with the release that wrote it",
            file=what,
            version=found,
        )
    return PREFIX_SIZE + int(length) + _CHECKSUM.size


def decode_head(head: bytes, magic: bytes, versions: Collection[int], what: str) -> dict[str, Any]:
    """Return the content of a whole head; see :func:`head_size` for errors."""
    size = head_size(head, magic, versions, what)
    if len(head) < size:
        raise CorruptCheckpointError(f"{what} is damaged: it is truncated", file=what)
    (checksum,) = _CHECKSUM.unpack_from(head, size - _CHECKSUM.size)
    if zlib.crc32(head[: size - _CHECKSUM.size]) != checksum:
        raise CorruptCheckpointError(f"{what} is damaged: its head was altered", file=what)
    content: dict[str, Any] = json.loads(head[PREFIX_SIZE : size - _CHECKSUM.size])
    return content


def version_of(head: bytes) -> int:
    """Return the format version of a head that :func:`decode_head` took."""
    version: int = _PREFIX.unpack_from(head)[1]
    return version


def check_section(data: bytes | memoryview, checksum: int, what: str) -> None:
    """Raise ``CorruptCheckpointError`` unless ``data`` are the bytes that were written."""
    if zlib.crc32(data) != checksum:
        raise CorruptCheckpointError(f"{what} is damaged: its bytes were altered", file=what)
