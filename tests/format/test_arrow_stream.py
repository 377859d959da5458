"""The Arrow messages of a state file: their size, forged batches, and the checksums of sections."""

from __future__ import annotations

import struct
import threading
import zlib

import pyarrow as pa
import pytest
from backend_support import PICKLED, make_backend, restore, state_of, take_snapshot

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.api import StateKind
from pyflinkstate.backends.format import StateCodec, arrow_stream
from pyflinkstate.backends.format.arrow_stream import (
    batch_message,
    read_batch,
    schema_message,
    uncompressed_bytes,
)
from pyflinkstate.backends.heap.backend import MIN_ENTRIES_TO_HAND_OVER
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import CorruptCheckpointError

#: The only key group of a backend.
ONLY_GROUP = KeyGroupRange(0, 0)
VALUE = ValueStateDescriptor("value", Types.LONG())


def counts(rows: int) -> pa.RecordBatch:
    keys = [f"customer-{number}" for number in range(rows)]
    return pa.record_batch([keys, [number % 7 for number in range(rows)]], names=["key", "count"])


def counts_message(batch: pa.RecordBatch, compression: str | None) -> bytes:
    return batch_message(batch, len(schema_message(batch.schema)), compression)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("rows", [1, 4, 30, 500, 5_000])
def test_compression_never_makes_a_batch_of_counts_larger(rows: int, compression: str) -> None:
    batch = counts(rows)
    compressed = counts_message(batch, compression)
    assert len(compressed) <= len(counts_message(batch, None))
    assert read_batch(compressed, batch.schema) == batch


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_batch_of_some_size_is_compressed(compression: str) -> None:
    batch = counts(500)
    assert len(counts_message(batch, compression)) < len(counts_message(batch, None)) / 2


@pytest.mark.parametrize(("entries", "threads"), [(60, 0), (MIN_ENTRIES_TO_HAND_OVER, 1)])
def test_a_snapshot_of_small_key_groups_starts_no_thread(
    monkeypatch: pytest.MonkeyPatch, entries: int, threads: int
) -> None:
    backend = make_backend(max_parallelism=1, own=ONLY_GROUP)
    for number in range(entries):
        state_of(backend, VALUE, number).update(number * number)
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda thread: (started.append(thread), start(thread))[1])
    handle = take_snapshot(backend)
    assert len(started) == threads
    again = restore([handle], PICKLED, ONLY_GROUP, 1)
    assert [state_of(again, VALUE, number).value() for number in range(entries)] == [
        number * number for number in range(entries)
    ]


ROWS = 100_000


def codec() -> StateCodec:
    return StateCodec(Types.STRING(), RegisteredStateMeta("count", StateKind.VALUE, Types.LONG()))


def message(rows: int = ROWS, compression: str | None = "zstd") -> bytes:
    schema = codec().schema
    columns = [pa.repeat("", rows).cast(pa.large_string()), pa.repeat(0, rows).cast(pa.int64())]
    batch = pa.record_batch(columns, schema=schema)
    return batch_message(batch, len(schema_message(schema)), compression)


def read(data: bytes) -> pa.RecordBatch:
    """Read a section as a restore does, with the checksum that its forger gave it."""
    return codec().read(data, zlib.crc32(data), "a section")


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
@pytest.mark.parametrize("rows", [1, 50, ROWS])
def test_the_size_without_compression_is_known_before_it_is_read(rows: int, compression: str | None) -> None:
    data = message(rows, compression)
    found = read(data)
    assert found.num_rows == rows
    is_compressed = compression is not None and found.nbytes >= arrow_stream.MIN_BYTES_TO_COMPRESS
    assert (uncompressed_bytes(data) >= rows * 8) == is_compressed


def test_a_batch_that_would_take_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = message()
    assert len(data) < 2_000
    monkeypatch.setattr(arrow_stream, "MOST_BYTES", ROWS * 8)
    with pytest.raises(CorruptCheckpointError, match=r"would take \d+ bytes of memory"):
        read(data)


@pytest.mark.parametrize("lie", [2**62, 2**48, 8 * ROWS + 8, 8 * ROWS - 8, 0, -1, -2, -(2**63)])
def test_a_buffer_that_lies_about_its_size_is_damage(lie: int) -> None:
    data = bytearray(message())
    at = data.index(struct.pack("<q", 8 * ROWS))
    data[at : at + 8] = struct.pack("<q", lie)
    with pytest.raises(CorruptCheckpointError, match="does not make sense"):
        read(bytes(data))


@pytest.mark.parametrize("rows", [2**40, ROWS + 1, -1, 2**63 - 1])
@pytest.mark.parametrize("compression", ["zstd", None])
def test_a_forged_number_of_rows_is_damage(rows: int, compression: str | None) -> None:
    data = message(compression=compression).replace(struct.pack("<q", ROWS), struct.pack("<q", rows))
    with pytest.raises(CorruptCheckpointError, match="does not make sense"):
        read(data)


def test_a_dictionary_is_not_what_a_section_has() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 10), pa.array(["x" * 100]))
    schema = pa.schema([pa.field("key", words.type, nullable=False), pa.field("value", pa.int64())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as stream:
        stream.write_batch(pa.record_batch([words, pa.array(range(10))], schema=schema))
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    for part in list(reader):
        with pytest.raises(CorruptCheckpointError, match="does not make sense"):
            read(bytes(part.serialize()))


@pytest.mark.parametrize("length", [0, 3, 7, 8, 9, 20, 100, 300])
def test_a_message_that_is_cut_short_is_damage(length: int) -> None:
    with pytest.raises(CorruptCheckpointError, match="does not make sense"):
        read(message()[:length])
