"""Small epochs that are joined into larger files: when they are seen, and what a return leaves of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support_job import GrowingSource, JobRun, numbers
from support_sinks import JOB, history, write

from pyflinkstate import FileCompactStrategy, FileSink
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.master.epochs import SavepointRequest
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.sinks.joined_files import EPOCHS_NOTE
from pyflinkstate.runtime.storage import CheckpointFolders

Rows = list[list[Any]]


def every(commits: int) -> FileCompactStrategy:
    return FileCompactStrategy.builder().enable_compaction_on_checkpoint(commits).build()


def json_rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text().splitlines()]


def csv_rows(path: Path) -> Rows:
    with path.open(newline="") as lines:
        header, *rows = csv.reader(lines)
    assert header == ["epoch", "line\nend"]
    return [[int(epoch), text] for epoch, text in rows]


def parquet_rows(path: Path) -> Rows:
    return [list(row.values()) for row in pq.read_table(path).to_pylist()]


#: By format: the columns of the sink, and how its files are read.
FORMATS: dict[str, tuple[Any, Callable[[Path], Rows]]] = {
    "json": (None, json_rows),
    "csv": (["epoch", "line\nend"], csv_rows),
    "parquet": (pa.schema([("epoch", pa.int64()), ("text", pa.string())]), parquet_rows),
}


def sink_of(out: Path, format: str = "json", compact: FileCompactStrategy | None = None) -> FileSink:
    return FileSink(str(out), format, FORMATS[format][0], compact=compact or every(3))


def opened(sink: FileSink, *runs: tuple[int, int], restored: int | None = None) -> FileSink:
    sink.open_run(JOB, history(*runs), restored)
    return sink


def run(sink: FileSink, *epochs: int) -> None:
    """Run epochs with two tasks, and commit each."""
    for epoch in epochs:
        sink.prepare(epoch, write(sink, epoch, [[epoch, "a"], [epoch, 'b"\n,']], [[epoch, "c"]]))
        sink.commit(epoch)


def folders(out: Path) -> dict[str, int]:
    """Return the visible folders, each with its number of data files."""
    return {path.name: len(list(path.glob("part-*"))) for path in sorted(out.glob("epoch=*"))}


def epochs_in(out: Path, format: str = "json") -> list[int]:
    """Return the epochs that readers find, each as often as one has a row of it: three times."""
    rows = [row for path in sorted(out.glob("epoch=*/part-*")) for row in FORMATS[format][1](path)]
    assert all(text in ("a", 'b"\n,', "c") for _, text in rows)
    return sorted(epoch for epoch, _ in rows)


def thrice(*epochs: int) -> list[int]:
    return [epoch for epoch in epochs for _ in range(3)]


class TestJoining:
    @pytest.mark.parametrize("format", FORMATS)
    def test_epochs_are_seen_together_in_one_file(self, tmp_path: Path, format: str) -> None:
        sink = opened(sink_of(tmp_path, format), (1, 0))
        run(sink, 1, 2)
        assert folders(tmp_path) == {}, "two commits are too few"
        run(sink, 3, 4, 5, 6, 7)
        assert folders(tmp_path) == {"epoch=3": 1, "epoch=6": 1}
        assert epochs_in(tmp_path, format) == thrice(1, 2, 3, 4, 5, 6)
        sink.release()
        assert epochs_in(tmp_path, format) == thrice(1, 2, 3, 4, 5, 6, 7)

    @pytest.mark.parametrize("format", FORMATS)
    @pytest.mark.parametrize("restored", [3, 4, 5, 6])
    def test_a_return_into_the_middle_keeps_what_the_checkpoint_covers(
        self, tmp_path: Path, format: str, restored: int
    ) -> None:
        run(opened(sink_of(tmp_path, format), (1, 0)), *range(1, 7))
        second = opened(sink_of(tmp_path, format), (1, 0), (2, restored), restored=restored)
        assert epochs_in(tmp_path, format) == thrice(*range(1, restored + 1))
        run(second, restored + 1)
        opened(sink_of(tmp_path, format), (1, 0), (3, 6), restored=6)
        assert epochs_in(tmp_path, format) == thrice(*range(1, 7)), "the way back to the first run"
        assert folders(tmp_path) == {"epoch=3": 1, "epoch=6": 1}

    def test_what_was_held_back_is_seen_after_a_restart(self, tmp_path: Path) -> None:
        run(opened(sink_of(tmp_path), (1, 0)), 1, 2)
        opened(sink_of(tmp_path), (1, 0), (2, 2), restored=2)
        assert (folders(tmp_path), epochs_in(tmp_path)) == ({"epoch=2": 1}, thrice(1, 2))

    def test_a_program_that_joins_nothing_any_more_goes_on(self, tmp_path: Path) -> None:
        run(opened(sink_of(tmp_path), (1, 0)), *range(1, 6))
        plain = opened(FileSink(str(tmp_path)), (1, 0), (2, 2), restored=2)
        run(plain, 3)
        assert epochs_in(tmp_path) == thrice(1, 2, 3)

    def test_what_was_held_back_and_belongs_to_a_damaged_checkpoint_is_kept_aside(
        self, tmp_path: Path
    ) -> None:
        run(opened(sink_of(tmp_path), (1, 0)), 1, 2)
        opened(sink_of(tmp_path), (1, 0), (2, 1), restored=1)
        assert epochs_in(tmp_path) == thrice(1)
        assert list(tmp_path.glob("_runs/*/aside/*/epoch=2/part-*"))

    def test_a_return_within_a_run_splits_what_was_joined(self, tmp_path: Path) -> None:
        sink = opened(sink_of(tmp_path), (1, 0))
        run(sink, 1, 2, 3)
        sink.rewind(2)
        assert epochs_in(tmp_path) == thrice(1, 2)
        run(sink, 3, 4, 5)
        assert epochs_in(tmp_path) == thrice(1, 2, 3, 4, 5)

    def test_the_size_counts_as_well(self, tmp_path: Path) -> None:
        sink = opened(sink_of(tmp_path, compact=FileCompactStrategy(None, 100)), (1, 0))
        for epoch, length in [(1, 10), (2, 20), (3, 90), (4, 200)]:
            sink.prepare(epoch, write(sink, epoch, ["x" * length]))
            sink.commit(epoch)
        assert folders(tmp_path) == {"epoch=3": 1, "epoch=4": 1}
        assert not (tmp_path / "epoch=4" / EPOCHS_NOTE).exists(), "one file is published as it is"

    @pytest.mark.parametrize("only_due", [True, False])
    def test_the_time_counts_as_well(self, tmp_path: Path, only_due: bool) -> None:
        now_ms = [5_000]
        compact = FileCompactStrategy.builder().set_delay(1_000).build()
        sink = opened(FileSink(str(tmp_path), compact=compact, now_ms=lambda: now_ms[0]), (1, 0))
        sink.release(only_due=True)
        run(sink, 1)
        now_ms[0] += 999
        run(sink, 2)
        sink.release(only_due=True)
        assert folders(tmp_path) == {}
        now_ms[0] += 1
        if only_due:
            sink.release(only_due=True)
        run(sink, 3)
        assert folders(tmp_path) == ({"epoch=2": 1} if only_due else {"epoch=3": 1})
        now_ms[0] += 999
        run(sink, 4)
        assert len(folders(tmp_path)) == 1, "the time begins with the first commit after that"

    def test_files_with_other_columns_stay_apart(self, tmp_path: Path) -> None:
        sink = opened(FileSink(str(tmp_path), "parquet", compact=every(3)), (1, 0))
        for epoch, row in enumerate([{"a": 1}, {"a": "x"}, {"a": 2}], 1):
            sink.prepare(epoch, write(sink, epoch, [row]))
            sink.commit(epoch)
        found = [pq.read_table(path).to_pylist() for path in sorted(tmp_path.glob("epoch=3/part-*"))]
        assert found == [[{"a": 1}, {"a": 2}], [{"a": "x"}]]

    @pytest.mark.parametrize("damage", [b"", b"[]", b"[1]", b"[1, 2]", b'[1, [["x", [1]]]]'])
    def test_a_damaged_note_is_an_error_that_names_it(self, tmp_path: Path, damage: bytes) -> None:
        run(opened(sink_of(tmp_path), (1, 0)), 1, 2, 3)
        (tmp_path / "epoch=3" / EPOCHS_NOTE).write_bytes(damage)
        with pytest.raises(SinkError, match=rf"cannot use .*epoch=3/{EPOCHS_NOTE}, which says"):
            opened(sink_of(tmp_path), (1, 0), (2, 2), restored=2)


class TestJobs:
    def test_the_end_of_a_job_shows_everything(self, tmp_path: Path, storage: CheckpointFolders) -> None:
        JobRun(numbers(), FileSink(str(tmp_path / "out"), "text", compact=every(100)), storage).run()
        assert sorted(folders(tmp_path / "out").values()) == [1]

    def test_so_does_a_job_without_checkpoints(self, tmp_path: Path) -> None:
        JobRun(numbers(), FileSink(str(tmp_path / "out"), "text", compact=every(100))).run()
        assert sorted(folders(tmp_path / "out").values()) == [1]

    def test_a_source_that_has_nothing_for_long_enough_shows_what_there_is(
        self, tmp_path: Path, storage: CheckpointFolders
    ) -> None:
        now_ms, seen = [0], list[int]()

        def later(source: GrowingSource) -> None:
            now_ms[0] += 400
            seen.append(len(folders(tmp_path / "out")))
            source.is_over = seen[-1] > 0 or len(seen) > 20

        compact = FileCompactStrategy.builder().set_delay(1_000).build()
        sink = FileSink(str(tmp_path / "out"), "text", compact=compact, now_ms=lambda: now_ms[0])
        JobRun(SourceNode(GrowingSource(6, later), "numbers"), sink, storage).run()
        assert seen[-1] == 1
        assert seen.count(0) > 1

    def test_so_does_a_savepoint(self, tmp_path: Path, storage: CheckpointFolders) -> None:
        run = JobRun(numbers(), FileSink(str(tmp_path / "out"), "text", compact=every(100)), storage)
        request = SavepointRequest(str(tmp_path / "savepoints"), stops_job=False)
        run.job().request_savepoint(request)
        seen: list[int] = []
        request.done.add_done_callback(lambda _: seen.append(len(folders(tmp_path / "out"))))
        run.run()
        assert seen == [1]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: FileCompactStrategy.builder().build(), "set enable_compaction_on_checkpoint"),
        (lambda: every(0), "FileCompactStrategy: a number"),
        (lambda: FileCompactStrategy.builder().set_delay(0), "FileCompactStrategy: a number"),
        (lambda: FileCompactStrategy.builder().set_size_threshold(-1), "a number"),
        (lambda: FileCompactStrategy.builder().set_num_compact_threads(0), "a number"),
        (lambda: FileSink("/x", compact=60), "compact takes a FileCompactStrategy, not 60"),  # type: ignore[arg-type]
        (lambda: FileSink("/x", "csv", compact=every(2)), "set columns"),
    ],
)
def test_mistakes_are_found_when_the_program_is_built(make: Callable[[], object], expected: str) -> None:
    with pytest.raises((ConfigurationError, SinkError), match=expected):
        make()
