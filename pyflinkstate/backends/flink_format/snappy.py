"""The framing of Snappy, in which Flink compresses state if ``snapshot-compression`` is on.

::

    chunk = u1 type | u3 length (little-endian) | content
    type 0xff: "sNaPpY", the begin of a stream | 0x00: u4 checksum, compressed | 0x01: u4 checksum, bytes

A chunk holds at most 64 KiB. Types from 0x80 to 0xfe may be skipped. Checksums are ignored, as in Flink.
"""

from __future__ import annotations

import pyarrow as pa

from pyflinkstate.backends.flink_format.cursor import Reader

_COMPRESSED, _UNCOMPRESSED, _LEAST_SKIPPABLE, _BEGIN = 0, 1, 0x80, 0xFF
_MOST_BYTES = 1 << 16


def decompress(source: Reader) -> bytes:
    """Return the content of all streams up to the end.

    Raises:
        CorruptCheckpointError: they make no sense.
    """
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
    chunk.advance(4)
    if not is_compressed:
        return chunk.rest()
    at = chunk.at
    size = chunk.varint()
    if size > _MOST_BYTES:
        raise chunk.damaged(f"a chunk of {size} bytes")
    return bytes(pa.decompress(chunk.data[at:], size, codec="snappy", asbytes=True))
