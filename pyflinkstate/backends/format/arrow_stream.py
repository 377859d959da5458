"""The messages of an Arrow IPC stream, which are written and read one by one."""

from __future__ import annotations

import struct

import pyarrow as pa

#: Arrow's end-of-stream marker: the continuation marker and a zero length.
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)


def schema_message(schema: pa.Schema) -> bytes:
    """Return the first message of a stream."""
    return bytes(schema.serialize())


def batch_message(batch: pa.RecordBatch, schema_size: int, compression: str | None) -> bytes:
    """Return the message of one record batch.

    Args:
        batch: the record batch to write.
        schema_size: the size of the schema message, which a writer puts before the batch.
        compression: the codec for the buffers: zstd, lz4 or None.
    """
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as stream:
        stream.write_batch(batch)
    message = sink.getvalue()
    return bytes(message[schema_size : -len(END_OF_STREAM)])


def read_batch(message: bytes | memoryview, schema: pa.Schema) -> pa.RecordBatch:
    """Return the record batch of a message after a full validation; by default Arrow trusts its offsets.

    Raises:
        pa.ArrowException, OSError: the bytes are not a message, or its columns do not fit ``schema``.
    """
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    batch.validate(full=True)
    return batch
