"""Restoring a job: ids, positions and counts go on, and what does not fit is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Echo
from support_job import JobRun, counts, latest, numbers, once, restore_point
from support_runtime import PICKLED, handle, metadata

from pyflinkstate.backends.format.metadata import OperatorState
from pyflinkstate.backends.format.state_handles import OperatorSubtaskState
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    IncompatibleCheckpointError,
    ParallelismError,
    SparkJobError,
)
from pyflinkstate.runtime.master import RestorePoint
from pyflinkstate.runtime.plan.nodes import ChainNode, StatefulNode
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)


def stopped(storage: CheckpointFolders, epoch: int, **settings: Any) -> tuple[JobRun, list[Any], str]:
    """Run a job that ends in ``epoch``; returns it, its output and its id."""
    out: list[Any] = []
    run = JobRun(numbers(), DriverSink(lambda _, values: out.extend(values)), storage, **settings)
    run.runner.before = once(BadRecordError("bad input"), epoch)
    job = run.job()
    with pytest.raises(BadRecordError):
        list(job.run())
    return run, out, job.job_id


def again(run: JobRun, **changes: Any) -> JobRun:
    """Return the job as it is run again, from the newest checkpoint, without the failure."""
    made = attrs.evolve(run, restore=latest(run.storage), **changes)
    made.runner.requests.clear()
    made.runner.before = lambda request: None
    return made


@pytest.mark.parametrize("epoch", [2, 3, 4])
def test_a_restored_job_goes_on_where_its_checkpoint_was_taken(
    storage: CheckpointFolders, epoch: int
) -> None:
    run, out, job_id = stopped(storage, epoch)
    assert out == list(range(3 * (epoch - 1)))
    job = again(run).job()
    assert list(job.run()) == list(range(epoch, 5))
    assert out == list(range(10))
    assert job.job_id == job_id
    assert counts(job) == {"numbers.records_out": 10}
    assert run.runner.requests[0].link.driver.attempt == 0


def test_ids_go_on_also_over_those_that_were_never_completed(storage: CheckpointFolders) -> None:
    run, _, job_id = stopped(storage, 3)
    assert storage.completed(job_id) == [2]
    storage.begin(job_id, 7)  # the process died while it was writing
    job = again(run).run()
    assert [stats.checkpoint_id for stats in job.result().checkpoints] == [8, 9]
    assert storage.completed(job_id) == [9], "those of the run before are subsumed"


def test_a_job_that_had_ended_has_nothing_left_to_do(storage: CheckpointFolders) -> None:
    out: list[Any] = []
    run = JobRun(numbers(), DriverSink(lambda _, values: out.extend(values)), storage)
    first = run.run()
    second = again(run).run()
    assert out == list(range(10))
    assert run.runner.requests == []
    assert second.result().accumulators == first.result().accumulators


def test_a_file_sink_takes_up_its_directory_again(storage: CheckpointFolders, tmp_path: Path) -> None:
    directory = str(tmp_path / "out")
    run = JobRun(numbers(), FileSink(directory), storage)
    run.checkpoints = CheckpointSettings(interval_ms=10**6)
    run.runner.before = once(BadRecordError("bad input"), 3)
    with pytest.raises(BadRecordError):
        run.run()
    assert sorted(path.name for path in (tmp_path / "out").glob("epoch=*")) == ["epoch=1"]
    again(run, sink=FileSink(directory)).run()
    lines = [
        line
        for folder in sorted((tmp_path / "out").glob("epoch=*"))
        for file in folder.iterdir()
        for line in file.read_text().split()
    ]
    assert lines == [str(n) for n in range(10)]


def test_a_restored_job_that_fails_restarts_from_what_it_was_restored_from(
    storage: CheckpointFolders,
) -> None:
    run, out, _ = stopped(storage, 3)
    restored = again(run, restart=FixedDelayRestart(1, 0))
    restored.runner.after = once(SparkJobError("lost"), 3)
    restored.run()
    assert out == list(range(10))
    assert [request.link.epoch for request in restored.runner.requests] == [3, 3, 4]


def test_input_that_does_not_fit_the_position_is_refused(storage: CheckpointFolders) -> None:
    run, _, _ = stopped(storage, 3)
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this collection"):
        again(run, end=numbers(11)).run()


def test_what_was_taken_back_for_an_older_checkpoint_is_not_missing_after_the_next_restore(
    storage: CheckpointFolders, tmp_path: Path
) -> None:
    def run(**settings: Any) -> JobRun:
        made = JobRun(numbers(), FileSink(str(tmp_path / "out")), storage, **settings)
        made.checkpoints = CheckpointSettings(interval_ms=0, num_retained=3)
        return made

    job_id = run().run().job_id
    older = restore_point(storage, job_id, 2)
    going_back = run(restore=older)
    going_back.runner.before = once(BadRecordError("bad input"), 3)
    with pytest.raises(BadRecordError):
        going_back.run()
    run(restore=latest(storage)).run()
    assert sorted(path.name for path in (tmp_path / "out").glob("epoch=*")) == [
        f"epoch={number}" for number in range(1, 5)
    ]


# --- what does not fit ---------------------------------------------------------------------------------


def restored_from(storage: CheckpointFolders, **changes: Any) -> RestorePoint:
    """A checkpoint that only has metadata."""
    made = metadata(source_position={"index": 3, "length": 10}, **changes)
    return RestorePoint(made, storage.begin(made.job_id, made.checkpoint_id))


def state(operator_id: str = "process-1", max_parallelism: int = 128, parallelism: int = 2) -> OperatorState:
    some = OperatorSubtaskState(handle(0, max_parallelism - 1))
    return OperatorState(operator_id, parallelism, max_parallelism, (some,))


def test_an_operator_without_state_may_be_gone(storage: CheckpointFolders) -> None:
    empty = OperatorState("gone", 2, 128, (OperatorSubtaskState(),) * 2)
    assert empty.is_empty
    assert not state().is_empty
    assert keyed_run(storage, empty).job().job_id


def keyed(**settings: Any) -> StatefulNode:
    return StatefulNode(numbers(), lambda n: n, PICKLED, Echo(), "process", **settings)


def keyed_run(storage: CheckpointFolders, operator: OperatorState, **settings: Any) -> JobRun:
    restore = restored_from(storage, operators=[operator])
    return JobRun(settings.pop("end", keyed()), DriverSink(print), storage, restore, **settings)


def test_a_checkpoint_of_a_job_of_another_name_is_refused(storage: CheckpointFolders) -> None:
    restore = restored_from(storage, job_name="invoices")
    with pytest.raises(IncompatibleCheckpointError, match="belongs to job 'invoices', not to 'orders'"):
        JobRun(numbers(), DriverSink(print), storage, restore).job()


@pytest.mark.parametrize("end", [keyed(), numbers(), keyed(uid="other")], ids=["id", "none", "uid"])
def test_state_of_an_operator_that_the_program_does_not_have_is_refused(
    storage: CheckpointFolders, end: Any
) -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"state of operator 'spend'[\s\S]*set uid\(\)"):
        keyed_run(storage, state("spend"), end=end).job()


@pytest.mark.parametrize("settings", [{"max_parallelism": 128}, {"end": keyed(max_parallelism=128)}])
def test_a_max_parallelism_that_was_set_must_be_that_of_the_checkpoint(
    storage: CheckpointFolders, settings: dict[str, Any]
) -> None:
    text = "has max parallelism 256, and the program sets 128"
    with pytest.raises(IncompatibleCheckpointError, match=text):
        keyed_run(storage, state(max_parallelism=256), **settings).job()
    keyed_run(storage, state(max_parallelism=128), **settings).job()


def test_a_parallelism_above_the_checkpoints_max_parallelism_is_refused(storage: CheckpointFolders) -> None:
    with pytest.raises(ParallelismError, match="not within bounds: 9"):
        keyed_run(storage, state(max_parallelism=8), parallelism=9).job()


def test_a_max_parallelism_that_was_not_set_is_taken_over(storage: CheckpointFolders) -> None:
    run = keyed_run(storage, state(max_parallelism=7), parallelism=3)
    run.runner.starts = lambda request: None  # there is no state to be read
    run.runner.before = once(BadRecordError("enough seen"), 2)
    with pytest.raises(BadRecordError):
        run.run()
    (operator,) = run.runner.requests[0].plan.operators
    assert (operator.parallelism, operator.max_parallelism) == (3, 7)


def test_an_operator_that_the_checkpoint_does_not_know_begins_empty(storage: CheckpointFolders) -> None:
    run = JobRun(keyed(), DriverSink(print), storage, restored_from(storage))
    run.runner.before = once(BadRecordError("enough seen"), 2)
    with pytest.raises(BadRecordError):
        run.run()
    assert run.runner.requests[0].plan.operators[0].max_parallelism == 128


def test_a_function_that_cannot_be_pickled_is_refused_at_once(storage: CheckpointFolders) -> None:
    function = Echo()
    function.connection = (n for n in [])  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"operator 'process': its function cannot be pickled"):
        JobRun(attrs.evolve(keyed(), function=function), DriverSink(print), storage).job()


def test_handles_are_not_asked_for_before_they_are_needed(storage: CheckpointFolders) -> None:
    halves = (OperatorSubtaskState(handle(0, 63)), OperatorSubtaskState(handle(64, 127)))
    run = keyed_run(storage, attrs.evolve(state(), subtasks=halves))
    run.end = ChainNode(run.end, "map", str, "map")
    assert run.job().job_id == run.restore.metadata.job_id
    assert run.runner.requests == []
