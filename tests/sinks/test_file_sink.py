"""The file sink: what is visible when, and what is left after a failure."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_runtime import tree
from support_sinks import JOB, write

from pyflinkstate.errors import BadRecordError, ConfigurationError, SinkError, SlotLostError
from pyflinkstate.runtime.sinks.file_sink import MARKER, FileSink


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def sink(out: Path) -> FileSink:
    """A sink that a new job has opened."""
    made = FileSink(str(out))
    made.open(JOB, None)
    return made


def visible(out: Path) -> dict[int, list[Any]]:
    """Return what a reader sees, as Spark does: no names with an underscore."""
    return {
        int(folder.name.removeprefix("epoch=")): [
            json.loads(line)
            for file in sorted(folder.iterdir())
            for line in file.read_text(encoding="utf-8").splitlines()
        ]
        for folder in sorted(out.iterdir())
        if folder.is_dir() and not folder.name.startswith("_")
    }


def prepare(sink: FileSink, epoch: int, *partitions: Iterable[Any]) -> None:
    sink.prepare(epoch, write(sink, epoch, *partitions, is_pickled=True))


def epochs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def area(out: Path) -> Path:
    """Return the folder of the run that owns the output."""
    (found,) = (out / "_runs").iterdir()
    return found


# --- the way of an epoch ---------------------------------------------------------------------------


def test_files_are_named_by_partition_and_never_alike(sink: FileSink, out: Path) -> None:
    names = write(sink, 1, ["a"], ["b"], ["c"]) + write(sink, 1, ["a"])
    assert [name.split("-")[1] for name in names] == ["00000", "00001", "00002", "00000"]
    assert len(set(names)) == 4
    assert epochs(area(out) / "pending" / "epoch=1") == sorted(names)


def test_files_of_task_attempts_that_spark_did_not_count_vanish(sink: FileSink, out: Path) -> None:
    write(sink, 1, ["lost"], ["lost too"])
    counted = write(sink, 1, ["won"], ["b"])
    write(sink, 1, ["late"])
    sink.prepare(1, counted)
    sink.commit(1)
    assert visible(out) == {1: ["won", "b"]}
    assert epochs(out / "epoch=1") == sorted(counted)


def test_epochs_are_ordered_as_numbers(sink: FileSink, out: Path) -> None:
    for number in (9, 10, 11):
        prepare(sink, number, [number])
    sink.commit(10)
    assert sorted(visible(out)) == [9, 10]


def test_records_are_one_line_each(sink: FileSink, out: Path) -> None:
    records = [{"a": 1, "b": [None, True]}, "with\nnewline", "käse \U0001f600", 1.5, None, []]
    prepare(sink, 1, records)
    sink.commit(1)
    assert visible(out) == {1: records}
    (file,) = (out / "epoch=1").iterdir()
    assert file.suffix == ".jsonl"
    assert file.read_text(encoding="utf-8").splitlines()[0] == '{"a":1,"b":[null,true]}'
    assert "käse" in file.read_text(encoding="utf-8")


def test_a_partition_that_begins_with_none_is_not_empty(sink: FileSink, out: Path) -> None:
    prepare(sink, 1, [None, 1])
    sink.commit(1)
    assert visible(out) == {1: [None, 1]}


@pytest.mark.parametrize("rest", ["/out/", "/out?user=etl", "/out/?user=etl"])
def test_a_sink_on_a_uri(tmp_path: Path, rest: str) -> None:
    sink = FileSink(f"file://{tmp_path}{rest}")
    sink.open(JOB, None)
    prepare(sink, 1, ["a"])
    sink.commit(1)
    assert visible(tmp_path / "out") == {1: ["a"]}


def test_an_epoch_becomes_visible_by_one_rename(sink: FileSink, out: Path) -> None:
    """Were its files moved one by one, a reader could see some of them."""
    prepare(sink, 1, [1], [2])
    prepared = (area(out) / "prepared" / "epoch=1").stat().st_ino
    sink.commit(1)
    assert (out / "epoch=1").stat().st_ino == prepared


def test_half_a_prepare_is_not_seen_and_made_good(sink: FileSink, out: Path) -> None:
    (name,) = write(sink, 1, [1])
    with pytest.raises(SinkError, match="cannot prepare epoch 1"):
        sink.prepare(1, [name, "part-of-nobody.jsonl"])
    assert visible(out) == {}
    sink.rewind(0)
    prepare(sink, 1, [1], [2])
    sink.commit(1)
    assert visible(out) == {1: [1, 2]}


# --- rewinding ---------------------------------------------------------------------------------------


def test_a_rewind_deletes_later_epochs_wherever_they_are_and_only_these(sink: FileSink, out: Path) -> None:
    for number in (1, 2, 3, 10):
        prepare(sink, number, [number])
    sink.commit(3)
    prepare(sink, 4, [4])
    write(sink, 5, ["half"])
    (out / "notes.txt").write_text("the user's own")
    (out / "epochs=7").mkdir()
    sink.rewind(2)
    assert sorted(path.name for path in out.iterdir() if path.name.startswith("epoch=")) == [
        "epoch=1",
        "epoch=2",
    ]
    assert epochs(area(out) / "prepared") == epochs(area(out) / "pending") == []
    assert (out / "notes.txt").exists()
    assert (out / "epochs=7").exists()


def test_a_rewind_keeps_prepared_epochs_that_the_checkpoint_covers(sink: FileSink, out: Path) -> None:
    for number in (1, 2, 3):
        prepare(sink, number, [number])
    sink.rewind(2)
    assert epochs(area(out) / "prepared") == ["epoch=1", "epoch=2"]
    sink.commit(2)
    assert visible(out) == {1: [1], 2: [2]}


def test_a_rewind_clears_away_what_late_task_attempts_have_written(sink: FileSink, out: Path) -> None:
    for number in (1, 2):
        prepare(sink, number, [number])
        write(sink, number, ["late"])
    sink.commit(2)
    sink.rewind(2)
    assert epochs(area(out) / "pending") == epochs(area(out) / "dropped") == []
    assert visible(out) == {1: [1], 2: [2]}


# --- opening -----------------------------------------------------------------------------------------


def test_a_new_directory_is_made_and_marked(out: Path) -> None:
    FileSink(str(out / "deep")).open(JOB, None)
    assert json.loads((out / "deep" / MARKER).read_text()) == {"job_id": JOB}


def with_epochs(out: Path) -> None:
    (out / "epoch=4").mkdir()
    (out / "epoch=4" / "part-0.jsonl").write_text("1\n")


def with_both(out: Path) -> None:
    (out / MARKER).write_text(json.dumps({"job_id": "b" * 32}))
    with_epochs(out)


@pytest.mark.parametrize("fill", [with_epochs, with_both])
@pytest.mark.parametrize("restored_epoch", [None, 0, 2, 9])
def test_the_output_of_another_run_is_refused_and_left_alone(
    out: Path, fill: Any, restored_epoch: int | None
) -> None:
    out.mkdir()
    fill(out)
    before = tree(out)
    whose = rf" \(job {'b' * 32}\)" if fill is with_both else ""
    with pytest.raises(SinkError, match=rf"^file sink: {out} holds output of another run{whose}") as caught:
        FileSink(str(out)).open(JOB, restored_epoch)
    assert caught.value.context["directory"] == str(out)
    assert tree(out) == before


@pytest.mark.parametrize("restored_epoch", [None, 5])
def test_a_directory_of_a_run_that_never_committed_is_taken_over(
    out: Path, restored_epoch: int | None
) -> None:
    other = FileSink(str(out))
    other.open("b" * 32, None)
    prepare(other, 5, ["prepared"])
    write(other, 6, ["half"])
    FileSink(str(out)).open(JOB, restored_epoch)
    assert json.loads((out / MARKER).read_text()) == {"job_id": JOB}
    assert visible(out) == {}
    assert epochs(area(out) / "prepared") == epochs(area(out) / "pending") == []


def test_the_jobs_own_output_is_refused_without_a_restore(sink: FileSink, out: Path) -> None:
    prepare(sink, 1, ["a"])
    sink.commit(1)
    before = tree(out)
    with pytest.raises(SinkError, match="another run"):
        FileSink(str(out)).open(JOB, None)
    assert tree(out) == before


# --- what goes wrong ---------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [{1, 2}, object(), "\ud800", {"a": b"bytes"}, {(1, 2): 3}], ids=repr)
@pytest.mark.parametrize("before", [0, 2, 500])
def test_a_record_that_cannot_be_written_is_named(sink: FileSink, out: Path, bad: Any, before: int) -> None:
    with pytest.raises(BadRecordError, match="cannot write") as caught:
        write(sink, 1, [*range(before), bad])
    assert repr(bad)[:20] in str(caught.value)
    assert not caught.value.recoverable
    assert visible(out) == {}
    sink.rewind(0)
    assert epochs(area(out) / "pending") == []


def test_a_directory_that_cannot_be_written_is_a_sink_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    sink = FileSink(str(tmp_path / "file" / "out"))
    with pytest.raises(SinkError, match="cannot use"):
        sink.open(JOB, None)
    with pytest.raises(SinkError, match="the sink is not open"):
        write(sink, 1, ["a"])


def test_unknown_formats_and_places_are_refused_at_once(out: Path) -> None:
    with pytest.raises(SinkError, match="no format 'xml'; choose one of json, text, csv, parquet"):
        FileSink(str(out), format="xml")
    with pytest.raises(ConfigurationError, match="the scheme ftp: is not supported"):
        FileSink("ftp://host/out")


def test_storage_that_cannot_rename_a_folder_at_once_is_refused() -> None:
    with pytest.raises(SinkError, match="renaming, which gcs storage cannot do"):
        FileSink("gs://anonymous@bucket/out")


def failing_upstream(error: Exception, records: int) -> Iterator[Any]:
    yield from range(records)
    raise error


@pytest.mark.parametrize("records", [0, 3])
def test_what_happens_upstream_of_a_writer_is_not_called_the_sinks_fault(
    sink: FileSink, records: int
) -> None:
    with pytest.raises(SlotLostError, match="slot died"):
        list(sink.writer(1).write(0, failing_upstream(SlotLostError("slot died"), records)))


# --- retention --------------------------------------------------------------------------------------

HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000 * HOUR_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(folder: Path, clock: Clock, restored: int | None = None, **options: Any) -> FileSink:
    sink = FileSink(str(folder), now_ms=clock, **options)
    sink.open("job", restored)
    return sink


def write_aged(sink: FileSink, folder: Path, clock: Clock, epoch: int) -> None:
    """Write an epoch, whose folder is an hour younger than that of the one before, and commit it."""
    clock.now_ms += HOUR_MS
    sink.prepare(epoch, list(sink.writer(epoch).write(0, iter([{"n": epoch}]))))
    (prepared,) = folder.glob(f"_runs/*/prepared/epoch={epoch}")
    os.utime(prepared, (clock.now_ms / 1000, clock.now_ms / 1000))
    sink.commit(epoch)


@pytest.mark.parametrize(
    ("hours", "left"), [(1, [4, 5]), (2, [3, 4, 5]), (10, [1, 2, 3, 4, 5]), (None, [1, 2, 3, 4, 5])]
)
def test_older_ones_go_with_a_commit(
    tmp_path: Path, clock: Clock, hours: int | None, left: list[int]
) -> None:
    sink = opened(tmp_path, clock, retention_ms=None if hours is None else hours * HOUR_MS)
    for epoch in range(1, 6):
        write_aged(sink, tmp_path, clock, epoch)
    assert sorted(visible(tmp_path)) == left
    assert not list(tmp_path.glob("_runs/*/dropped/*")), "nothing waits to be deleted"


def test_what_was_just_committed_stays_however_old_it_looks(tmp_path: Path, clock: Clock) -> None:
    sink = opened(tmp_path, clock, retention_ms=1)
    write_aged(sink, tmp_path, clock, 1)
    clock.now_ms += 100 * HOUR_MS
    sink.commit(1)
    assert sorted(visible(tmp_path)) == [1]


def test_a_job_goes_on_where_older_epochs_are_gone(tmp_path: Path, clock: Clock) -> None:
    sink = opened(tmp_path, clock, retention_ms=HOUR_MS)
    for epoch in range(1, 5):
        write_aged(sink, tmp_path, clock, epoch)
    again = opened(tmp_path, clock, restored=3, retention_ms=HOUR_MS)
    assert sorted(visible(tmp_path)) == [3], "what came after the checkpoint is taken back, and comes again"
    write_aged(again, tmp_path, clock, 4)
    assert sorted(visible(tmp_path)) == [4]


@pytest.mark.parametrize("retention_ms", [0, -1, 1.5, "1 day"])
def test_a_retention_is_a_positive_number(tmp_path: Path, retention_ms: Any) -> None:
    with pytest.raises(SinkError, match="retention_ms"):
        FileSink(str(tmp_path), retention_ms=retention_ms)
