"""The messages of an Arrow IPC stream, which are written and read one by one."""

from __future__ import annotations

import struct

import pyarrow as pa

#: Arrow's end-of-stream marker: the continuation marker and a zero length.
END_OF_STREAM = struct.pack("<Ii", 0xFFFFFFFF, 0)
#: The buffers of smaller batches are compressed in this thread: Arrow's pool costs more than it saves.
MIN_ROWS_FOR_THREADS = 2_000
#: The buffers of smaller batches are written as they are: the head of each compressed one makes them larger.
MIN_BYTES_TO_COMPRESS = 256


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
