"""The frame around the head of each file: magic, format version, length, JSON, checksum.

::

    8 bytes magic | u2 format version | u4 length of JSON | JSON (UTF-8) | u4 CRC-32 of all bytes before

All numbers are big-endian. The checksum covers the version. So if a reader does not know the version but the
checksum is right, another release wrote the head; if the checksum is wrong, the head counts as damaged.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from pyflinkstate.api import JsonObject
from pyflinkstate.errors import (
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    PyFlinkStateError,
)

_PREFIX = struct.Struct(">8sHI")
_CHECKSUM = struct.Struct(">I")

PREFIX_SIZE = _PREFIX.size


def encode_head(magic: bytes, version: int, content: JsonObject) -> bytes:
    """Return ``content`` in its frame."""
    body = json.dumps(content, separators=(",", ":")).encode()
    framed = _PREFIX.pack(magic, version, len(body)) + body
    return framed + _CHECKSUM.pack(zlib.crc32(framed))


def head_size(prefix: bytes, magic: bytes, what: str) -> int:
    """Return the size of the whole head, whose first ``PREFIX_SIZE`` bytes are ``prefix``.

    Raises:
        CorruptCheckpointError: these are not the first bytes of such a head.
    """
    if len(prefix) < PREFIX_SIZE or prefix[:8] != magic:
        raise CorruptCheckpointError(
            f"{what} is damaged: it does not begin like a file of this kind", file=what
        )
    _, _, length = _PREFIX.unpack(prefix[:PREFIX_SIZE])
    return PREFIX_SIZE + int(length) + _CHECKSUM.size


def decode_head(head: bytes, magic: bytes, versions: Collection[int], what: str) -> dict[str, Any]:
    """Return the content of a whole head.

    Raises:
        CorruptCheckpointError: the bytes are not such a head, or were altered.
        IncompatibleCheckpointError: the head is intact, but its format version is not in ``versions``.
    """
    size = head_size(head, magic, what)
    version = version_of(head)
    is_known = version in versions
    on_version = f" has format version {version}, and this release reads up to version {max(versions)}"
    hint = "" if is_known else f". It{on_version}"
    if len(head) < size:
        raise CorruptCheckpointError(f"{what} is damaged: it is truncated{hint}", file=what)
    (checksum,) = _CHECKSUM.unpack_from(head, size - _CHECKSUM.size)
    if zlib.crc32(head[: size - _CHECKSUM.size]) != checksum:
        raise CorruptCheckpointError(f"{what} is damaged: its head was altered{hint}", file=what)
    if not is_known:
        raise IncompatibleCheckpointError(
            f"{what}{on_version}: restore it with the release that wrote it", file=what, version=version
        )
    with making_sense(what):
        content: JsonObject = json.loads(head[PREFIX_SIZE : size - _CHECKSUM.size])
        if not isinstance(content, dict):
            raise TypeError(f"a JSON object is needed, not {type(content).__name__}")
    return content


#: The errors that reading can raise if foreign bytes have the right checksum.
_NONSENSE = (
    pa.ArrowException,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


@contextmanager
def making_sense(what: str) -> Iterator[None]:
    """Turn the errors of reading nonsense into one error; a checksum does not tell who wrote the bytes.

    Raises:
        CorruptCheckpointError: the content does not make sense. ``what`` names the file.
    """
    try:
        yield
    except _NONSENSE as error:
        if isinstance(error, PyFlinkStateError) and not isinstance(error, ConfigurationError):
            raise
        told = f"{type(error).__name__}: {str(error)[:200]}"
        raise CorruptCheckpointError(
            f"{what} is damaged: its content does not make sense ({told})", file=what
        ) from error


def as_name(name: object) -> str:
    """Return the name of a state in a head; raise ``TypeError`` if it is not a text."""
    if not isinstance(name, str):
        raise TypeError(f"{str(name)[:50]} is not the name of a state")
    return name


def version_of(head: bytes) -> int:
    """Return the format version of a head."""
    return int(_PREFIX.unpack_from(head)[1])


def check_section(data: bytes | memoryview, checksum: int, what: str) -> None:
    """Raise ``CorruptCheckpointError`` unless ``data`` has this checksum."""
    if zlib.crc32(data) != checksum:
        raise CorruptCheckpointError(f"{what} is damaged: its bytes were altered", file=what)
