"""Sinks of many runs and jobs: what each keeps, moves aside and leaves to the others."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from simulation_storage import FINE, Disk, Killed, Process, Verdict
from support_job import JobRun, numbers, once
from support_runtime import PATIENCE_S
from support_sinks import (
    FILE_SINKS,
    JOB,
    OUT,
    FailingDisk,
    MakeSink,
    Seen,
    file_sink,
    history,
    lines_aside,
    lines_of,
    prepare,
    records,
    row_format_sink,
    run_epochs,
    run_id,
    seen,
    seen_files,
    sink_classes,
    write,
)
from tiers import cases

from pyflinkstate import Encoder, FileSink, ParquetSink, RunAwareSink, RunHistory
from pyflinkstate.errors import ConfigurationError, JobSupersededError, SinkError, SparkJobError
from pyflinkstate.runtime.plan import ChainNode, Node, SinkNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import BucketAssigner, DriverSink, RowFormatFileSink, Sink, run_area
from pyflinkstate.runtime.storage import CheckpointFolders

FIRST = history((1, 0))

each_sink = pytest.mark.parametrize("make", FILE_SINKS, ids=lambda make: make.__name__)


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


def opened(make: MakeSink, disk: Disk, line: RunHistory, restored: int | None = None) -> Any:
    sink = make(disk)
    sink.open_run(JOB, line, restored)
    return sink


def first_run(make: MakeSink, disk: Disk, epochs: int) -> Any:
    sink = opened(make, disk, FIRST)
    run_epochs(sink, 1, epochs, "first")
    return sink


# --- going back and forth ----------------------------------------------------------------------------


@each_sink
class TestGoingBack:
    def test_later_output_is_moved_aside_and_not_deleted(self, make: MakeSink, disk: FailingDisk) -> None:
        first_run(make, disk, 4)
        opened(make, disk, history((1, 0), (2, 2)), 2)
        assert seen(disk) == records("first", 1, 2)
        assert lines_aside(disk, f"/aside/{run_id(1)}/") >= records("first", 3, 4)

    def test_a_return_to_the_old_line_brings_its_output_back(self, make: MakeSink, disk: FailingDisk) -> None:
        first_run(make, disk, 5)
        run_epochs(opened(make, disk, history((1, 0), (2, 2)), 2), 3, 6, "second")
        assert seen(disk) == records("first", 1, 2) + records("second", 3, 6)
        run_epochs(opened(make, disk, history((1, 0), (3, 4)), 4), 5, 5, "third")
        assert seen(disk) == records("first", 1, 4) + records("third", 5, 5)
        opened(make, disk, history((1, 0), (2, 2), (4, 6)), 6)
        assert seen(disk) == records("first", 1, 2) + records("second", 3, 6)
        opened(make, disk, history((1, 0), (5, 5)), 5)
        assert seen(disk) == records("first", 1, 5)

    def test_what_a_savepoint_covers_is_kept_whatever_happened_in_between(
        self, make: MakeSink, disk: FailingDisk
    ) -> None:
        """A plain savepoint commits nothing; the job fails and goes back behind it, as a further run."""
        sink = first_run(make, disk, 2)
        for epoch in (3, 4):
            prepare(sink, epoch, f"first{epoch}a", f"first{epoch}b")
        write(sink, 5, ["half"])
        run_epochs(opened(make, disk, history((1, 0), (2, 2)), 2), 3, 5, "second")
        opened(make, disk, history((1, 0), (3, 4)), 4)
        assert seen(disk) == records("first", 1, 4)

    def test_what_a_checkpoint_covers_is_committed(self, make: MakeSink, disk: FailingDisk) -> None:
        sink = first_run(make, disk, 2)
        for epoch in (3, 4):
            prepare(sink, epoch, f"first{epoch}a", f"first{epoch}b")
        opened(make, disk, history((1, 0), (2, 3)), 3)
        assert seen(disk) == records("first", 1, 3)

    def test_epochs_without_output_are_not_missed(self, make: MakeSink, disk: FailingDisk) -> None:
        sink = opened(make, disk, FIRST)
        for epoch in (1, 2, 3):
            prepare(sink, epoch)
            sink.commit(epoch)
        run_epochs(opened(make, disk, history((1, 0), (2, 1)), 1), 2, 2, "second")
        opened(make, disk, history((1, 0), (3, 3)), 3)
        assert seen(disk) == Seen()

    def test_output_that_somebody_took_away_is_not_missed(self, make: MakeSink, disk: FailingDisk) -> None:
        """What is visible is the reader's: it may be moved on or deleted."""
        first_run(make, disk, 3)
        (taken,) = [path for path, lines in seen_files(disk) if "first1a" in lines]
        gone = Seen(lines_of(disk, f"{OUT}/{taken}"))
        del disk.files[f"{OUT}/{taken}"]
        opened(make, disk, history((1, 0), (2, 2)), 2)
        assert seen(disk) == records("first", 1, 2) - gone

    def test_output_that_is_lost_aside_is_an_error_that_changes_nothing(
        self, make: MakeSink, disk: FailingDisk
    ) -> None:
        first_run(make, disk, 4)
        run_epochs(opened(make, disk, history((1, 0), (2, 2)), 2), 3, 4, "second")
        for path in list(disk.files):
            if "/aside/" in path:
                disk.delete_file(path)
        for folder in [folder for folder in disk.folders if f"/aside/{run_id(1)}/" in folder]:
            del disk.folders[folder]
        with pytest.raises(SinkError, match=r"covers epoch 3 of run 000001-00000001.* put it back"):
            opened(make, disk, history((1, 0), (3, 4)), 4)
        assert seen(disk) == records("first", 1, 2) + records("second", 3, 4)
        opened(make, disk, history((1, 0), (2, 2), (4, 4)), 4)
        assert seen(disk) == records("first", 1, 2) + records("second", 3, 4)

    def test_a_run_that_goes_back_behind_its_own_commits_moves_them_aside(
        self, make: MakeSink, disk: FailingDisk
    ) -> None:
        sink = first_run(make, disk, 3)
        sink.rewind(1)
        run_epochs(sink, 2, 3, "again")
        sink.rewind(1)
        assert seen(disk) == records("first", 1, 1)
        assert lines_aside(disk) >= records("again", 2, 3) + records("first", 2, 3)
        run_epochs(sink, 2, 3, "again")
        opened(make, disk, history((1, 0), (2, 3)), 3)
        assert seen(disk) == records("first", 1, 1) + records("again", 2, 3)

    def test_opening_a_run_again_changes_nothing(self, make: MakeSink, disk: FailingDisk) -> None:
        sink = first_run(make, disk, 2)
        for _ in range(2):
            sink.open_run(JOB, history((1, 0), (2, 2)), 2)
        run_epochs(sink, 3, 3, "second")
        assert seen(disk) == records("first", 1, 2) + records("second", 3, 3)

    def test_a_new_place_may_be_given_at_any_time(self, make: MakeSink, disk: FailingDisk) -> None:
        run_epochs(opened(make, disk, history((1, 0), (2, 7)), 7), 8, 9, "second")
        assert seen(disk) == records("second", 8, 9)

    def test_a_sink_that_is_opened_without_runs_goes_by_what_it_has_noted(
        self, make: MakeSink, disk: FailingDisk
    ) -> None:
        for restored in (None, 2, 3, 1):
            sink = make(disk)
            sink.open(JOB, restored)
            run_epochs(sink, (restored or 0) + 1, 4, f"from{restored}-")
        assert seen(disk) == records("fromNone-", 1, 1) + records("from1-", 2, 4)


# --- what goes wrong on the way ------------------------------------------------------------------------


def go_forth(make: MakeSink, disk: FailingDisk) -> None:
    opened(make, disk, history((1, 0), (3, 4)), 4)


def two_lines(make: MakeSink, disk: FailingDisk) -> None:
    """Leave epochs 1 to 4 of one run, of which 3 and 4 lie aside, and 3 to 5 of another, 5 prepared."""
    first_run(make, disk, 4)
    sink = opened(make, disk, history((1, 0), (2, 2)), 2)
    run_epochs(sink, 3, 4, "second")
    prepare(sink, 5, "second5a", "second5b")


FAULTS = {
    "killed": lambda disk: disk.kill,
    "not done": lambda disk: disk.fail(0.0),
    "done": lambda disk: disk.fail(1.0),
    "by half": lambda disk: disk.fail(0.5),
}


def attempt(disk: FailingDisk, act: Callable[[], None]) -> None:
    """Do something that may fail or be killed; whatever comes next is another process."""
    with suppress(SinkError, Killed):
        act()
    disk.when(-1)
    disk.process = Process("next driver")


def operations_of(disk: FailingDisk, act: Callable[[], None]) -> int:
    disk.when(-1)
    act()
    return len(disk.operations)


#: Each sink with two faults in the quick tier, so that two sinks have all of them; all pairs in the full one.
PAIRS = [(make, fault) for number, make in enumerate(FILE_SINKS) for fault in list(FAULTS)[number % 2 :: 2]]


def test_every_sink_that_follows_runs_is_tested_here(disk: FailingDisk) -> None:
    """A sink that is not in these lists would be forgotten by all tests of what happens after a failure."""
    following = sink_classes("open_run") - {RunAwareSink, ParquetSink}  # this one stages: check_sink tries it
    assert following == {type(make(disk)) for make in FILE_SINKS}, "add it to FILE_SINKS in support_sinks.py"


@pytest.mark.parametrize(
    ("make", "fault"),
    cases(product(FILE_SINKS, FAULTS), quick=PAIRS),
    ids=lambda part: getattr(part, "__name__", part),
)
class TestInterruptions:
    @pytest.mark.parametrize("then", cases(["the same", "another", "onwards"], quick=["another"]))
    def test_a_restore_that_is_interrupted_anywhere_is_carried_on(
        self, make: MakeSink, fault: str, then: str
    ) -> None:
        whole = FailingDisk()
        two_lines(make, whole)
        for at in range(operations_of(whole, lambda: go_forth(make, whole))):
            disk = FailingDisk()
            two_lines(make, disk)
            disk.when(at, FAULTS[fault](disk))
            attempt(disk, lambda disk=disk: go_forth(make, disk))
            if then == "the same":
                opened(make, disk, history((1, 0), (4, 4)), 4)
                assert seen(disk) == records("first", 1, 4)
            elif then == "another":
                opened(make, disk, history((1, 0), (2, 2), (4, 5)), 5)
                assert seen(disk) == records("first", 1, 2) + records("second", 3, 5)
                opened(make, disk, history((1, 0), (5, 4)), 4)
                assert seen(disk) == records("first", 1, 4)
            else:
                opened(make, disk, history((1, 0), (4, 1)), 1)
                assert seen(disk) == records("first", 1, 1)
                opened(make, disk, history((1, 0), (2, 2), (5, 5)), 5)
                assert seen(disk) == records("first", 1, 2) + records("second", 3, 5)

    def test_a_job_that_is_interrupted_anywhere_is_carried_on(self, make: MakeSink, fault: str) -> None:
        def run(disk: FailingDisk, covered: list[int]) -> None:
            sink = opened(make, disk, FIRST)
            for epoch in (1, 2):
                prepare(sink, epoch, f"first{epoch}a", f"first{epoch}b")
                covered.append(epoch)
                sink.commit(epoch)
            prepare(sink, 3, "thrown away")
            sink.rewind(2)
            prepare(sink, 3, "first3a", "first3b")
            covered.append(3)
            sink.commit(3)

        whole = FailingDisk()
        for at in range(operations_of(whole, lambda: run(whole, []))):
            disk, covered = FailingDisk(), [0]
            disk.when(at, FAULTS[fault](disk))
            attempt(disk, lambda disk=disk, covered=covered: run(disk, covered))
            last = covered[-1]
            sink = opened(make, disk, history((1, 0), (2, last)) if last else history((2, 0)), last or None)
            assert seen(disk) == records("first", 1, last), f"interrupted at {at}"
            run_epochs(sink, last + 1, 4, "second")
            assert seen(disk) == records("first", 1, last) + records("second", last + 1, 4)


# --- two drivers ---------------------------------------------------------------------------------------


def frozen_acts() -> dict[str, Callable[[Any], None]]:
    return {
        "commit": lambda sink: sink.commit(4),
        "rewind": lambda sink: sink.rewind(3),
        "deep rewind": lambda sink: sink.rewind(1),
        "prepare": lambda sink: prepare(sink, 5, "ghost5"),
        "open": lambda sink: sink.open_run(JOB, history((1, 0), (2, 2)), 2),
    }


class Frozen:
    """Something that one process does, and that stops before the operation of a number, as by ``SIGSTOP``."""

    def __init__(self, disk: FailingDisk, at: int, act: Callable[[], None]) -> None:
        self.error: BaseException | None = None
        self._act = act
        self._is_still = threading.Event()
        self._may_go_on = threading.Event()
        disk.when(at, self._freeze)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._is_still.wait(PATIENCE_S)
        disk.when(-1)

    def _freeze(self) -> Verdict:
        self._is_still.set()
        assert self._may_go_on.wait(PATIENCE_S)
        return FINE

    def _run(self) -> None:
        try:
            self._act()
        except (SinkError, JobSupersededError) as error:
            self.error = error
        self._is_still.set()

    def thaw(self) -> None:
        """Let it go on to its end."""
        self._may_go_on.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()


def older_driver(make: MakeSink, disk: FailingDisk) -> Any:
    """Leave three epochs committed and the fourth prepared, and return the sink of the driver that did it."""
    sink = first_run(make, disk, 3)
    prepare(sink, 4, "first4a", "first4b")
    return sink


@each_sink
class TestTwoDrivers:
    @pytest.mark.parametrize("act", frozen_acts())
    @pytest.mark.parametrize("restored", cases([2, 4], quick=[2]))
    def test_one_that_was_frozen_changes_nothing_when_it_goes_on(
        self, make: MakeSink, act: str, restored: int
    ) -> None:
        do = frozen_acts()[act]
        whole = FailingDisk()
        sink = older_driver(make, whole)
        for at in range(operations_of(whole, lambda: do(sink))):
            disk = FailingDisk()
            older = older_driver(make, disk)
            frozen = Frozen(disk, at, lambda older=older: do(older))
            newer = opened(make, disk, history((1, 0), (3, restored)), restored)
            run_epochs(newer, restored + 1, 6, "newer")
            prepare(newer, 7, "newer7a", "newer7b")
            before = seen(disk)
            frozen.thaw()
            assert seen(disk) == before, f"{act} went on at {at}"
            with pytest.raises(JobSupersededError, match="newer run 000003-00000003"):
                older.commit(9)
            newer.commit(7)
            assert seen(disk) - before == records("newer", 7, 7)

    def test_the_older_one_is_told_whatever_it_does(self, make: MakeSink, disk: FailingDisk) -> None:
        older = older_driver(make, disk)
        late = older.writer(5)
        newer = opened(make, disk, history((1, 0), (2, 3)), 3)
        acts: list[Callable[[], Any]] = [
            lambda: older.writer(5),
            lambda: older.prepare(5, []),
            lambda: older.commit(4),
            lambda: older.rewind(3),
            lambda: older.open_run(JOB, FIRST, None),
        ]
        for act in acts:
            with pytest.raises((JobSupersededError, SinkError)):
                act()
        with pytest.raises(SinkError, match="cannot write"):
            list(late.write(0, iter(["ghost"])))
        run_epochs(newer, 4, 4, "newer")
        assert seen(disk) == records("first", 1, 3) + records("newer", 4, 4)

    def test_an_older_run_cannot_open_what_a_newer_one_has(self, make: MakeSink, disk: FailingDisk) -> None:
        opened(make, disk, history((1, 0), (3, 0)))
        with pytest.raises(JobSupersededError):
            opened(make, disk, history((1, 0), (2, 0)))

    def test_of_two_that_begin_at_once_the_newer_one_stays(self, make: MakeSink) -> None:
        whole = FailingDisk()
        for at in range(operations_of(whole, lambda: opened(make, whole, FIRST) and None)):
            disk = FailingDisk()
            frozen = Frozen(disk, at, lambda disk=disk: opened(make, disk, FIRST) and None)
            newer = opened(make, disk, history((2, 0)))
            prepare(newer, 1, "newer1a", "newer1b")
            frozen.thaw()
            newer.commit(1)
            assert seen(disk) == records("newer", 1, 1)

    def test_output_that_somebody_deleted_is_said_to_be_gone(self, make: MakeSink, disk: FailingDisk) -> None:
        sink = first_run(make, disk, 1)
        disk.delete_folder(OUT, 1.0)
        with pytest.raises(SinkError, match=r"is gone: it was deleted\. Start the job again"):
            sink.commit(1)


# --- files that are damaged ------------------------------------------------------------------------------


@each_sink
@pytest.mark.parametrize("damage", [b"", b'{"job_id": "aa', b"[]", b"\xff\xfe"])
def test_a_torn_note_is_passed_over_with_a_word(
    make: MakeSink, disk: FailingDisk, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    first_run(make, disk, 3)
    (note,) = [path for path in disk.files if path.endswith("/run.json")]
    disk.files[note][:] = damage
    with caplog.at_level(logging.WARNING, logger="pyflinkstate"):
        opened(make, disk, history((1, 0), (2, 2)), 2)
    assert "run.json is damaged, and passed over" in caplog.text
    assert seen(disk) == records("first", 1, 2)


@pytest.mark.parametrize("damage", [b"", b'{"job_id": "aa', b"[]", b"null"])
def test_a_torn_mark_is_made_good_from_the_folder_of_the_run(disk: FailingDisk, damage: bytes) -> None:
    first_run(file_sink, disk, 3)
    disk.files[f"{OUT}/_pyflinkstate.json"][:] = damage
    opened(file_sink, disk, history((1, 0), (2, 3)), 3)
    assert seen(disk) == records("first", 1, 3)
    with pytest.raises(SinkError, match="holds output of another run"):
        file_sink(disk).open_run("b" * 32, FIRST, None)


@pytest.mark.parametrize("damage", [b"", b'["day=01/par', b"5", b'["../../other"]', b'["/etc/x"]', b"[3]"])
def test_a_damaged_list_is_an_error_that_names_it(disk: FailingDisk, damage: bytes) -> None:
    sink = opened(row_format_sink, disk, FIRST)
    prepare(sink, 1, "a")
    (path,) = [path for path in disk.files if "/prepared/" in path]
    disk.files[path][:] = damage
    with pytest.raises(SinkError, match=r"/prepared/epoch=1-\w+ is damaged.* delete the list"):
        sink.commit(1)


# --- what sinks share --------------------------------------------------------------------------------------


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


# --- what is too old -------------------------------------------------------------------------------------


@each_sink
class TestWhatExpires:
    def test_output_aside_of_many_runs_is_deleted_and_missed_when_it_is_needed(
        self, make: MakeSink, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(run_area, "MOST_RUNS_ASIDE", 2)
        run_epochs(opened(make, disk, history((1, 0))), 1, 3, "run1-")
        for run in range(2, 6):  # each goes back behind the one before, of which epoch 1 stays
            run_epochs(opened(make, disk, history((1, 0), (run, 1)), 1), 2, 3, f"run{run}-")
        assert lines_aside(disk) >= records("run3-", 2, 3) + records("run4-", 2, 3)
        assert not lines_aside(disk) & (records("run1-", 2, 3) + records("run2-", 2, 3))
        with pytest.raises(SinkError, match=r"covers epoch 2 of run 000002-00000002.* has been deleted"):
            opened(make, disk, history((1, 0), (2, 1), (7, 3)), 3)
        opened(make, disk, history((1, 0), (4, 1), (8, 3)), 3)
        assert seen(disk) == records("run1-", 1, 1) + records("run4-", 2, 3)
        with pytest.raises(SinkError, match=r"covers epoch 3 of run 000002-00000002.* has been deleted"):
            opened(make, disk, history((1, 0), (2, 1), (9, 3)), 3)  # that is not forgotten
        opened(make, disk, history((1, 0), (10, 1)), 1)
        assert seen(disk) == records("run1-", 1, 1)
