"""The file sink: what is visible when, and what is left after a failure."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support_runtime import tree

from pyflinkstate.errors import BadRecordError, ConfigurationError, SinkError, SlotLostError
from pyflinkstate.runtime.sinks.file_sink import MARKER, FileSink

JOB = "a" * 32


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


@pytest.fixture
def sink(out: Path) -> FileSink:
    """A sink that a new job has opened."""
    made = FileSink(str(out))
    made.open(JOB, None)
    return made


def write(sink: FileSink, epoch: int, *partitions: Iterable[Any]) -> list[str]:
    """Run an epoch's writers as tasks would, and return what they yielded."""
    writer = pickle.loads(pickle.dumps(sink.writer(epoch)))
    return [
        name
        for number, records in enumerate(partitions)
        for name in writer.write(number, iter(list(records)))
    ]


def prepare(sink: FileSink, epoch: int, *partitions: Iterable[Any]) -> None:
    sink.prepare(epoch, write(sink, epoch, *partitions))


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


def epochs(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def area(out: Path) -> Path:
    """Return the folder of the run that owns the output."""
    (found,) = (out / "_runs").iterdir()
    return found


# --- the way of an epoch ---------------------------------------------------------------------------


def test_nothing_is_visible_before_the_commit(sink: FileSink, out: Path) -> None:
    results = write(sink, 1, ["a", "b"], ["c"])
    assert visible(out) == {}
    sink.prepare(1, results)
    assert visible(out) == {}
    sink.commit(1)
    assert visible(out) == {1: ["a", "b", "c"]}
    assert epochs(area(out) / "pending") == epochs(area(out) / "prepared") == []


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


def test_a_commit_covers_all_epochs_up_to_its_own(sink: FileSink, out: Path) -> None:
    for number in (1, 2, 3):
        prepare(sink, number, [number])
    sink.commit(2)
    assert visible(out) == {1: [1], 2: [2]}
    assert epochs(area(out) / "prepared") == ["epoch=3"]
    sink.commit(2)
    sink.commit(3)
    assert visible(out) == {1: [1], 2: [2], 3: [3]}


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


def with_marker(out: Path) -> None:
    (out / MARKER).write_text(json.dumps({"job_id": "b" * 32}))


def with_epochs(out: Path) -> None:
    (out / "epoch=4").mkdir()
    (out / "epoch=4" / "part-0.jsonl").write_text("1\n")


def with_both(out: Path) -> None:
    with_marker(out)
    with_epochs(out)
    (out / "_prepared" / "epoch=5").mkdir(parents=True)


@pytest.mark.parametrize("fill", [with_epochs, with_both])
@pytest.mark.parametrize("restored_epoch", [None, 0, 2, 9])
def test_the_output_of_another_run_is_refused_and_left_alone(
    out: Path, fill: Any, restored_epoch: int | None
) -> None:
    out.mkdir()
    fill(out)
    before = tree(out)
    with pytest.raises(SinkError, match="holds output of another run"):
        FileSink(str(out)).open(JOB, restored_epoch)
    assert tree(out) == before


def test_the_refusal_says_once_what_is_wrong_and_keeps_the_directory(out: Path) -> None:
    out.mkdir()
    with_both(out)
    with pytest.raises(SinkError) as caught:
        FileSink(str(out)).open(JOB, None)
    assert str(caught.value).startswith(f"file sink: {out} holds output of another run (job {'b' * 32})")
    assert caught.value.context["directory"] == str(out)


@pytest.mark.parametrize("restored_epoch", [None, 5])
def test_a_directory_of_a_run_that_never_committed_is_taken_over(
    out: Path, restored_epoch: int | None
) -> None:
    out.mkdir()
    with_marker(out)
    (out / "_prepared" / "epoch=5").mkdir(parents=True)
    (out / "_pending" / "epoch=6").mkdir(parents=True)
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
