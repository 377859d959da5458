"""The messages of an Arrow IPC stream, which are written and read one by one."""

from __future__ import annotations

import os
import struct

import pyarrow as pa

#: Arrow's end-of-stream marker: the continuation marker and a zero length.
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)
#: The buffers of smaller batches are compressed in this thread: Arrow's pool costs more than it saves.
MIN_ROWS_FOR_THREADS = 2_000
#: The buffers of smaller batches are written as they are: the head of each compressed one makes them larger.
MIN_BYTES_TO_COMPRESS = 256
#: No batch is read that would take more memory than there is.
MOST_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

_USHORT, _INT, _UINT, _LONG = (struct.Struct(f"<{kind}") for kind in "HiIq")
#: The offset and the length of a buffer in the body.
_BUFFER = struct.Struct("<qq")
#: The numbers of fields: the header of a ``Message``; the buffers and the compression of a ``RecordBatch``.
_HEADER, _BUFFERS, _COMPRESSION = 2, 2, 3


def schema_message(schema: pa.Schema) -> bytes:
    """Return the first message of a stream."""
    return bytes(schema.serialize())


def batch_message(batch: pa.RecordBatch, schema_size: int, compression: str | None) -> bytes:
    """Return the message of one record batch.

    Args:
        batch: the record batch to write.
        schema_size: the size of the schema message, which a writer puts before the batch.
        compression: the codec for the buffers, if compressing pays: zstd, lz4 or None.
    """
    sink = pa.BufferOutputStream()
    codec = compression if batch.nbytes >= MIN_BYTES_TO_COMPRESS else None
    use_threads = batch.num_rows >= MIN_ROWS_FOR_THREADS
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=use_threads)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    return bytes(sink.getvalue()[schema_size : -len(END_OF_STREAM)])


def uncompressed_bytes(message: bytes | memoryview) -> int:
    """Return how many bytes the compressed buffers of a batch say that they have without compression.

    Arrow allocates them at once, so a small message can ask for any amount of memory. The layout is that of
    the flatbuffers ``Message`` and ``RecordBatch`` of the Arrow format.

    Raises:
        struct.error: the message is cut short.
    """
    (size,) = _INT.unpack_from(message, 4)
    table = memoryview(message)[8:]
    head = _field(table, _UINT.unpack_from(table, 0)[0], _HEADER)
    batch = 0 if head is None else head + _UINT.unpack_from(table, head)[0]
    buffers = _field(table, batch, _BUFFERS) if batch else None
    if buffers is None or _field(table, batch, _COMPRESSION) is None:
        return 0
    vector = buffers + _UINT.unpack_from(table, buffers)[0]
    (count,) = _UINT.unpack_from(table, vector)
    total = 0
    for number in range(count):
        offset, length = _BUFFER.unpack_from(table, vector + _UINT.size + number * _BUFFER.size)
        if length:
            total += max(0, _LONG.unpack_from(table, size + offset)[0])
    return total


def _field(table: memoryview, position: int, number: int) -> int | None:
    """Return the position of a field of a flatbuffers table, or None if the table does not have it."""
    slots = position - _INT.unpack_from(table, position)[0]
    at = _USHORT.size * (2 + number)
    if at >= _USHORT.unpack_from(table, slots)[0]:
        return None
    (offset,) = _USHORT.unpack_from(table, slots + at)
    return position + offset if offset else None


def read_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch of a message after a full validation; by default Arrow trusts its offsets.

    Raises:
        pa.ArrowException, OSError, ValueError: the bytes are not a message, its columns do not fit
            ``schema``, or they would take more memory than this host has.
    """
    try:
        wanted = uncompressed_bytes(message)
    except struct.error as error:
        raise ValueError(f"the message is cut short: {error}") from error
    if wanted > MOST_BYTES:
        raise ValueError(f"it would take {wanted} bytes of memory, and this host has {MOST_BYTES}")
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    batch.validate(full=True)
    return batch
