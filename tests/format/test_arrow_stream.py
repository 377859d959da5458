"""Messages of record batches: what is compressed, and by which threads."""

from __future__ import annotations

import threading

import pyarrow as pa
import pytest
from backend_support import PICKLED, make_backend, restore, state_of, take_snapshot

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.format.arrow_stream import batch_message, read_batch, schema_message
from pyflinkstate.backends.heap.snapshot import MIN_ENTRIES_TO_HAND_OVER
from pyflinkstate.backends.keys import KeyGroupRange

#: The only key group of a backend.
ONLY_GROUP = KeyGroupRange(0, 0)
VALUE = ValueStateDescriptor("value", Types.LONG())


def counts(rows: int) -> pa.RecordBatch:
    keys = [f"customer-{number}" for number in range(rows)]
    return pa.record_batch([keys, [number % 7 for number in range(rows)]], names=["key", "count"])


def message(batch: pa.RecordBatch, compression: str | None) -> bytes:
    return batch_message(batch, len(schema_message(batch.schema)), compression)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
@pytest.mark.parametrize("rows", [1, 4, 30, 500, 5_000])
def test_compression_never_makes_a_batch_of_counts_larger(rows: int, compression: str) -> None:
    batch = counts(rows)
    compressed = message(batch, compression)
    assert len(compressed) <= len(message(batch, None))
    assert read_batch(compressed, batch.schema) == batch


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_batch_of_some_size_is_compressed(compression: str) -> None:
    batch = counts(500)
    assert len(message(batch, compression)) < len(message(batch, None)) / 2


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
