"""The framing of Snappy, in which Flink compresses state if ``snapshot-compression`` is on.

::

    chunk = u1 type | u3 length (little-endian) | content
    type 0xff: "sNaPpY", the begin of a stream | 0x00: u4 checksum, compressed | 0x01: u4 checksum, bytes

A chunk holds at most 64 KiB. Types from 0x80 to 0xfe may be skipped. mypyc compiles this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pyflinkstate.backends.flink_format.cursor import Reader

if TYPE_CHECKING:
    from mypy_extensions import i64

_BEGIN: Final = 0xFF
_COMPRESSED: Final = 0
_UNCOMPRESSED: Final = 1
_LEAST_SKIPPABLE: Final = 0x80
_MOST_BYTES: Final = 1 << 16
_ALL_BITS: Final = 0xFFFFFFFF


def decompress(source: Reader) -> bytes:
    """Return the content of all streams up to the end; raise ``CorruptCheckpointError`` if it was altered."""
    chunks: list[bytes] = []
    while source.at < source.end:
        kind = source.byte()
        content = Reader(source.take(source.byte() | source.byte() << 8 | source.byte() << 16), source.origin)
        if kind == _BEGIN:
            if content.rest() != b"sNaPpY":
                raise source.damaged("it is not compressed with Snappy")
        elif kind <= _UNCOMPRESSED:
            chunks.append(_content(content, kind == _COMPRESSED))
        elif kind < _LEAST_SKIPPABLE:
            raise source.damaged(f"a chunk of the unknown type {kind}")
    return b"".join(chunks)


def _content(chunk: Reader, is_compressed: bool) -> bytes:
    expected = int.from_bytes(chunk.take(4), "little")
    if is_compressed:
        at = chunk.at
        size = chunk.varint()
        if size > _MOST_BYTES:
            raise chunk.damaged(f"a chunk of {size} bytes")
        data: bytes = pa.decompress(chunk.data[at:], size, codec="snappy", asbytes=True)
    else:
        data = chunk.rest()
    checksum = crc32c(data)
    masked = ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & _ALL_BITS
    if masked != expected:
        raise chunk.damaged("compressed bytes were altered")
    return data


def _table() -> list[int]:
    table = []
    for number in range(256):
        for _ in range(8):
            number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
        table.append(number)
    return table


_CRC: Final = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    checksum: i64 = _ALL_BITS
    for byte in data:
        checksum = _CRC[(checksum ^ byte) & 0xFF] ^ checksum >> 8
    return checksum ^ _ALL_BITS
