"""Several sinks and one path: nothing is lost without a word, within a job and across jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support_job import JobRun, numbers, once
from support_sinks import FailingDisk, file_sink, history, prepare, records, row_format_sink, run_epochs, seen

from pyflinkstate import Encoder, FileSink
from pyflinkstate.errors import ConfigurationError, SinkError, SparkJobError
from pyflinkstate.runtime.plan import ChainNode, Node, SinkNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import BucketAssigner, DriverSink, RowFormatFileSink, Sink
from pyflinkstate.runtime.storage import CheckpointFolders

FIRST = history((1, 0))
OTHER_JOB = "b" * 32


def rows(path: Path) -> RowFormatFileSink:
    builder = FileSink.for_row_format(str(path), Encoder.simple_string_encoder())
    return builder.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()).build()


def lines(out: Path) -> list[int]:
    """Return the numbers that a reader finds."""
    return sorted(map(int, seen(out)))


def as_text(node: Node, keep: Callable[[int], bool]) -> Node:
    return ChainNode(ChainNode(node, "filter", keep, "filter"), "map", str, "text")


def two_sinks(first: Sink, second: Sink, storage: CheckpointFolders, **changes: Any) -> JobRun:
    """Return a job that writes even numbers to one sink and odd ones to the other."""
    source = numbers()
    odd = SinkNode(as_text(source, lambda n: n % 2 == 1), second, "odd")
    return JobRun(as_text(source, lambda n: n % 2 == 0), first, storage, others=[odd], **changes)


class TestRowFormat:
    def test_two_sinks_of_a_job_write_below_one_path(
        self, tmp_path: Path, storage: CheckpointFolders
    ) -> None:
        two_sinks(rows(tmp_path / "out"), rows(tmp_path / "out"), storage).run()
        assert lines(tmp_path / "out") == list(range(10))

    def test_one_sink_takes_two_streams(self, tmp_path: Path, storage: CheckpointFolders) -> None:
        sink = rows(tmp_path / "out")
        two_sinks(sink, sink, storage).run()
        assert lines(tmp_path / "out") == list(range(10))

    @pytest.mark.parametrize("epoch", [1, 2, 4])
    def test_they_go_back_together(self, tmp_path: Path, storage: CheckpointFolders, epoch: int) -> None:
        run = two_sinks(
            rows(tmp_path / "out"), rows(tmp_path / "out"), storage, restart=FixedDelayRestart(3, 0)
        )
        run.runner.after = once(SparkJobError("by chance"), epoch)
        run.run()
        assert lines(tmp_path / "out") == list(range(10))

    def test_jobs_leave_each_other_alone(self, disk: FailingDisk) -> None:
        """Also where one goes back, and where one's sinks are another's elsewhere."""
        first, second = row_format_sink(disk), row_format_sink(disk)
        first.open_run("a" * 32, FIRST, None)
        second.open_run(OTHER_JOB, FIRST, None)
        run_epochs(first, 1, 3, "first")
        run_epochs(second, 1, 3, "second")
        second.open_run(OTHER_JOB, history((1, 0), (2, 1)), 1)
        assert seen(disk) == records("first", 1, 3) + records("second", 1, 1)

    def test_a_sink_that_a_program_has_no_more_loses_nothing(self, disk: FailingDisk) -> None:
        """What it had prepared is committed by the sink that is left on the path."""
        first, second = row_format_sink(disk), row_format_sink(disk)
        for sink in (first, second):
            sink.open_run("a" * 32, FIRST, None)
        prepare(first, 1, "first1a", "first1b")
        prepare(second, 1, "second1a", "second1b")
        row_format_sink(disk).open_run("a" * 32, history((1, 0), (2, 1)), 1)
        assert seen(disk) == records("first", 1, 1) + records("second", 1, 1)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


class TestFileSink:
    @pytest.mark.parametrize(
        "other", ["out", "out/", "./out", "sub/../out", "link", "file://{}/out", "link/../out"]
    )
    def test_two_sinks_of_a_job_on_one_folder_are_refused(
        self,
        tmp_path: Path,
        storage: CheckpointFolders,
        monkeypatch: pytest.MonkeyPatch,
        other: str,
    ) -> None:
        (tmp_path / "out").mkdir()
        (tmp_path / "sub").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "out", target_is_directory=True)
        monkeypatch.chdir(tmp_path)
        run = two_sinks(FileSink(str(tmp_path / "out")), FileSink(other.format(tmp_path)), storage)
        with pytest.raises(
            ConfigurationError, match=rf"sink 'odd': another sink .* has the folder {tmp_path}/out"
        ):
            run.run()
        assert list((tmp_path / "out").iterdir()) == []

    def test_one_object_for_two_streams_is_refused(self, tmp_path: Path, storage: CheckpointFolders) -> None:
        sink = FileSink(str(tmp_path / "out"))
        with pytest.raises(ConfigurationError, match=r"one object is the sink of two streams.*union"):
            two_sinks(sink, sink, storage).run()

    def test_that_goes_for_every_sink_that_does_not_say_otherwise(self, storage: CheckpointFolders) -> None:
        sink = DriverSink(lambda partition, values: None)
        with pytest.raises(ConfigurationError, match="one object"):
            two_sinks(sink, sink, storage).run()

    def test_two_folders_are_two(self, tmp_path: Path, storage: CheckpointFolders) -> None:
        two_sinks(
            FileSink(str(tmp_path / "a"), "text"), FileSink(str(tmp_path / "a2"), "text"), storage
        ).run()
        assert lines(tmp_path / "a") == [0, 2, 4, 6, 8]
        assert lines(tmp_path / "a2") == [1, 3, 5, 7, 9]

    def test_a_file_sink_and_lines_of_text_below_one_path_both_keep_their_rows(
        self, tmp_path: Path, storage: CheckpointFolders
    ) -> None:
        two_sinks(FileSink(str(tmp_path / "out"), "text"), rows(tmp_path / "out"), storage).run()
        assert lines(tmp_path / "out") == list(range(10))

    def test_a_second_job_is_refused_when_there_is_output(self, disk: FailingDisk) -> None:
        first = file_sink(disk)
        first.open_run("a" * 32, FIRST, None)
        run_epochs(first, 1, 2, "first")
        for restored in (None, 2):
            with pytest.raises(SinkError, match=f"holds output of another run .job {'a' * 32}"):
                file_sink(disk).open_run(OTHER_JOB, history((9, restored or 0)), restored)
        run_epochs(first, 3, 3, "first")
        assert seen(disk) == records("first", 1, 3)

    @pytest.mark.parametrize("act", ["prepare", "commit", "rewind", "begin"])
    def test_the_first_job_fails_when_a_second_came_before_there_was_output(
        self, disk: FailingDisk, act: str
    ) -> None:
        first = file_sink(disk)
        first.open_run("a" * 32, FIRST, None)
        prepare(first, 1, "first1a", "first1b")
        second = file_sink(disk)
        second.open_run(OTHER_JOB, FIRST, None)
        acts = {
            "prepare": lambda: first.prepare(2, []),
            "commit": lambda: first.commit(1),
            "rewind": lambda: first.rewind(0),
            "begin": lambda: first.writer(2),
        }
        with pytest.raises(SinkError, match=f"belongs to job {OTHER_JOB} now") as caught:
            acts[act]()
        assert not caught.value.recoverable
        run_epochs(second, 1, 1, "second")
        assert seen(disk) == records("second", 1, 1)

    def test_two_jobs_that_take_a_folder_in_turns_both_get_to_know(self, disk: FailingDisk) -> None:
        """Neither an older number of a run nor a newer one counts between two jobs."""
        first, second = file_sink(disk), file_sink(disk)
        first.open_run("a" * 32, history((5, 0)), None)
        second.open_run(OTHER_JOB, history((3, 0)), None)
        first.open_run("a" * 32, history((6, 0)), None)
        with pytest.raises(SinkError, match="belongs to job"):
            second.writer(1)
        run_epochs(first, 1, 1, "first")
        assert seen(disk) == records("first", 1, 1)
