"""Functions without keys that take part in checkpoints, in jobs with real slots: kept, restored, rescaled."""

from __future__ import annotations

from typing import Any

import pytest
from slot_functions import Buffer, Where
from support_job import JobRun, latest, numbers

from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.plan.job_plan import make_plan
from pyflinkstate.runtime.plan.nodes import Partitioning, SinkNode, SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources import NumberSequenceSource
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)


def buffered(enough: int, records_per_epoch: int = 3) -> DataStream:
    env: Any = None
    return DataStream(env, numbers(12, records_per_epoch)).flat_map(Buffer(enough)).uid("buffer")


def run_of(made: DataStream, out: list[Any], storage: CheckpointFolders, **settings: Any) -> JobRun:
    return JobRun(made.node, DriverSink(lambda _, values: out.extend(values)), storage, **settings)


def fail_after_two_epochs(run: JobRun) -> None:
    """Run a job that fails in epoch 3, when the checkpoint of the epoch before it is complete."""

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 3:
            while run.heard.await_checkpoint().epoch < 2:
                pass  # the first one may come, or be subsumed
            raise BadRecordError("bad input")

    run.checkpoints = CheckpointSettings(interval_ms=0, max_concurrent=3)
    run.runner.before = before
    with pytest.raises(BadRecordError):
        run.run()


def test_what_it_holds_lasts_from_epoch_to_epoch(storage: CheckpointFolders) -> None:
    out: list[Any] = []
    run_of(buffered(5), out, storage).run()
    assert out == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_a_restored_job_has_what_it_held(storage: CheckpointFolders) -> None:
    out: list[Any] = []
    fail_after_two_epochs(run_of(buffered(5), out, storage))
    assert out == [[0, 1, 2, 3, 4]]
    run_of(buffered(5), out, storage, restore=latest(storage)).run()
    assert out == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


@pytest.mark.parametrize(("before", "after"), [(1, 2), (2, 1)])
def test_what_it_held_is_dealt_out_anew_at_another_parallelism(
    storage: CheckpointFolders, before: int, after: int
) -> None:
    out: list[Any] = []
    fail_after_two_epochs(run_of(buffered(1000, 4), out, storage, parallelism=before))
    assert out == []
    each = 12 // after
    run_of(buffered(each, 4), out, storage, parallelism=after, restore=latest(storage)).run()
    assert [len(given) for given in out] == [each] * after
    assert sorted(value for given in out for value in given) == list(range(12))


def test_records_of_one_partition_are_rebalanced_over_several_subtasks(storage: CheckpointFolders) -> None:
    env: Any = None
    out: list[Any] = []
    run_of(DataStream(env, numbers(12)).map(Where()), out, storage, parallelism=3).run()
    assert sorted(value for _, value in out) == list(range(12))
    counts = [sum(place == subtask for place, _ in out) for subtask in range(3)]
    assert counts == [4, 4, 4]


def ways(made: DataStream, parallelism: int) -> list[Partitioning]:
    plan = make_plan([SinkNode(made.node, DriverSink(print), "sink")], parallelism, None)
    (operator,) = plan.operators
    branches = plan.branches(operator.node)
    return [branch.input.partitioning for branch in branches if branch.input is not None]


def test_records_stay_where_they_are_if_there_are_as_many_subtasks() -> None:
    env: Any = None
    one = DataStream(env, numbers())
    many = DataStream(env, SourceNode(NumberSequenceSource(1, 9), "numbers"))
    assert ways(one.map(Where()), 1) == [Partitioning.FORWARD]
    assert ways(one.map(Where()), 2) == [Partitioning.REBALANCE]
    assert ways(one.map(str).set_parallelism(2).map(Where()), 2) == [Partitioning.FORWARD]
    assert ways(one.map(str).set_parallelism(3).map(Where()), 2) == [Partitioning.REBALANCE]
    assert ways(many.map(Where()), 2) == [Partitioning.FORWARD], "as many subtasks as there are splits"
    assert ways(one.global_().map(Where()), 2) == [Partitioning.GLOBAL]
    assert ways(one.union(one.shuffle()).map(Where()), 1) == [Partitioning.FORWARD, Partitioning.SHUFFLE]
