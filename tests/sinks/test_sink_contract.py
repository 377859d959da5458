"""The contract of sinks that ``docs/checkpoints.md`` lists for those who write one.

It is tested with every sink of the package that writes into a store outside of the driver, with sinks that
write when they prepare, and with the example. A driver that is killed is a sink object that is not used any
more.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import attrs
import example_programs  # noqa: F401 - puts the examples on the path
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlite_sink
from support_sinks import FILE_SINKS, JOB, Seen, seen, sink_classes

from pyflinkstate import ParquetSink
from pyflinkstate.runtime.sinks.sinks import (
    DriverSink,
    ForeachEpochSink,
    FrameWriter,
    HoldingSink,
    KeptRddSink,
    MeasuredSink,
    PrintSink,
    RddSink,
    ReplacingSink,
    RunAwareSink,
    Sink,
)
from pyflinkstate.runtime.wire import decode_values
from pyflinkstate.testing import check_sink

PROTOCOLS = {HoldingSink, MeasuredSink, ReplacingSink, RunAwareSink, Sink}
#: These hand over what they have in memory when it is committed, and nothing is left of them behind a driver.
WITHOUT_A_STORE = {DriverSink, PrintSink, RddSink, KeptRddSink} | PROTOCOLS


@attrs.frozen
class StoredSink:
    """A sink with what it writes into.

    Attributes:
        name: its name in the tests.
        make: makes the sink of a new driver over a folder.
        seen: what readers find in the folder.
        row: makes a record of the sink of a text.
    """

    name: str
    make: Callable[[Path], Any]
    seen: Callable[[Path], Iterable[str]]
    row: Callable[[str], Any] = str


class TableSink(ReplacingSink):
    """A file for each epoch, which is written when the epoch is prepared."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        self.folder.mkdir(exist_ok=True)

    def writer(self, epoch: int) -> FrameWriter:
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        write_epoch(self.folder, results, epoch)

    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


def write_epoch(folder: Path, frames: Iterable[Any], epoch: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / f"{epoch}").write_text(json.dumps([row for _, frame in frames for row in decode_values(frame)]))


class Frames(list[Any]):
    """An epoch's frames, which are kept on the cluster."""

    is_kept = True

    def unpersist(self) -> None:
        self.is_kept = False


def foreach_epoch_sink(folder: Path) -> ForeachEpochSink:
    return ForeachEpochSink(lambda frames, epoch: write_epoch(folder, frames, epoch))


def rows_of_epochs(folder: Path) -> list[str]:
    return [row for path in folder.glob("*") for row in json.loads(path.read_text())]


def customers(folder: Path) -> list[str]:
    with closing(sqlite3.connect(f"{folder}.sqlite")) as database:
        return [customer for (customer,) in database.execute("SELECT customer FROM spend")]


TEXTS = pa.schema([("text", pa.string()), ("n", pa.int64())])


def texts_in_parquet(folder: Path) -> list[str]:
    texts: list[str] = pq.read_table(folder, schema=TEXTS)["text"].to_pylist() if folder.exists() else []
    return texts


#: An entry here, or in ``FILE_SINKS``, is all that a new sink needs to be tested.
SINKS = [
    *(StoredSink(make.__name__, make, seen) for make in FILE_SINKS),
    StoredSink("table", TableSink, rows_of_epochs),
    StoredSink(
        "sqlite",
        lambda folder: sqlite_sink.SqliteSink(f"{folder}.sqlite"),
        customers,
        lambda text: (text, 1, 1),
    ),
    StoredSink(
        "parquet",
        lambda folder: ParquetSink(folder, TEXTS, partition_by=["n"], join_files=True),
        texts_in_parquet,
        lambda text: (text, 1),
    ),
]
#: What it prepares is on the cluster, which the test kit does not have.
ON_THE_CLUSTER = StoredSink("foreach_epoch", foreach_epoch_sink, rows_of_epochs)


def test_every_sink_with_a_store_is_tested_here(tmp_path: Path) -> None:
    found = sink_classes("rewind") - WITHOUT_A_STORE
    assert found <= {type(row.make(tmp_path)) for row in [*SINKS, ON_THE_CLUSTER]}, "add it to SINKS"


@pytest.mark.parametrize("row", SINKS, ids=lambda row: row.name)
def test_contract(row: StoredSink, tmp_path: Path) -> None:
    check_sink(lambda name: row.make(tmp_path / name), lambda name: row.seen(tmp_path / name), row.row)


@pytest.fixture(params=[ON_THE_CLUSTER], ids=lambda row: row.name)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(request.param, tmp_path / "out")


class Store:
    """What outlives the drivers: the folder of a sink."""

    def __init__(self, row: StoredSink, folder: Path) -> None:
        self.row = row
        self.folder = folder

    def opened(self, restored: int | None = None) -> Any:
        """Return the sink of a new driver; the one before was killed."""
        sink = self.row.make(self.folder)
        sink.open(JOB, restored)
        return sink

    @property
    def seen(self) -> Seen:
        return Counter(self.row.seen(self.folder))

    def written(self, sink: Any, epoch: int, *texts: str) -> list[Any]:
        """Return what the writers of an epoch yield, with each record in a partition of its own."""
        writer = sink.writer(epoch)
        parts = [[self.row.row(text)] for text in texts]
        results = [made for number, part in enumerate(parts) for made in writer.write(number, iter(part))]
        return [Frames(results)] if isinstance(sink, KeptRddSink) else results

    def prepare(self, sink: Any, *epochs: int) -> None:
        """Run epochs up to the end of their jobs: each has two records."""
        for epoch in epochs:
            sink.prepare(epoch, self.written(sink, epoch, f"{epoch}a", f"{epoch}b"))


def rows(*epochs: int) -> Seen:
    return Counter(f"{epoch}{letter}" for epoch in epochs for letter in "ab")


def test_an_epoch_is_seen_when_it_is_committed(store: Store) -> None:
    sink = store.opened()
    store.prepare(sink, 1)
    assert store.seen == (rows(1) if isinstance(sink, ReplacingSink) else rows())
    sink.commit(1)
    assert store.seen == rows(1)


def test_a_commit_covers_all_prepared_epochs_and_may_be_repeated(store: Store) -> None:
    sink = store.opened()
    store.prepare(sink, 1, 2)
    for _ in range(2):
        sink.commit(2)
        assert store.seen == rows(1, 2)


def test_an_epoch_without_records_is_one(store: Store) -> None:
    sink = store.opened()
    sink.prepare(1, store.written(sink, 1))
    store.prepare(sink, 2)
    sink.commit(2)
    assert store.seen == rows(2)


def test_a_writer_that_runs_twice_changes_nothing(store: Store) -> None:
    sink = store.opened()
    for _ in range(2):
        results = store.written(sink, 1, "1a", "1b")
        assert store.seen == rows()
    sink.prepare(1, results)
    sink.commit(1)
    assert store.seen == rows(1)


def test_what_a_killed_driver_has_prepared_the_next_one_commits(store: Store) -> None:
    store.prepare(store.opened(), 1, 2)
    store.opened(2)
    assert store.seen == rows(1, 2)


@pytest.mark.parametrize("committed", [0, 1])
def test_what_no_checkpoint_covers_comes_again_and_is_seen_once(store: Store, committed: int) -> None:
    sink = store.opened()
    if committed:
        store.prepare(sink, 1)
        sink.commit(1)
    store.prepare(sink, committed + 1)
    store.written(sink, committed + 2, "lost")
    again = store.opened(committed or None)
    store.prepare(again, committed + 1)
    again.commit(committed + 1)
    assert store.seen == rows(*range(1, committed + 2))


@pytest.mark.parametrize("is_killed", [False, True], ids=["in the driver", "in a new driver"])
def test_a_job_that_goes_back_shows_each_epoch_once(store: Store, is_killed: bool) -> None:
    sink = store.opened()
    store.prepare(sink, 1, 2, 3)
    sink.commit(2)
    if is_killed:
        sink = store.opened(1)
    else:
        sink.rewind(1)
        sink.commit(1)
    if not isinstance(sink, ReplacingSink):
        assert store.seen == rows(1)
    store.prepare(sink, 2, 3)
    sink.commit(3)
    assert store.seen == rows(1, 2, 3)


def test_frames_on_the_cluster_are_freed(store: Store) -> None:
    sink = store.opened()
    results = store.written(sink, 1, "1a")
    sink.prepare(1, results)
    assert not any(isinstance(frames, Frames) and frames.is_kept for frames in results)
