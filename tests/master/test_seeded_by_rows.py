"""Jobs whose state is filled by rows before their input: once, and whole, whatever fails."""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from event_time_functions import Third
from operators import running_sums
from slot_functions import Reminded, SeededSums
from support_job import JobRun, latest, once, restore_point
from support_runtime import PICKLED, ManualClock

from pyflinkstate.api.time import NO_WATERMARK, WatermarkStrategy
from pyflinkstate.errors import SparkJobError
from pyflinkstate.runtime.plan.nodes import (
    WATERMARKS,
    Assigner,
    ChainNode,
    Input,
    Node,
    SourceNode,
    StatefulNode,
)
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources.source_set import InitialRows
from pyflinkstate.runtime.sources.sources import CollectionSource, SplitEpoch
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)

KEY = itemgetter(0)
INITIAL = [(f"key-{n % 5}", 1000 + n) for n in range(20)]
#: ``key-0`` to ``key-2`` occur before, and ``other`` does not.
RECORDS = [(["key-0", "key-1", "key-2", "other"][n % 4], n) for n in range(24)]
LOST = SparkJobError("an executor was lost")


class Initial:
    """Initial rows that count how often they are read."""

    def __init__(self, rows: list[Any]) -> None:
        self.rows = rows
        self.reads = 0

    def __call__(self) -> SplitEpoch:
        self.reads += 1
        return SplitEpoch([self.rows[::2], self.rows[1::2]], lambda split, _: split)


@pytest.fixture
def initial() -> Initial:
    return Initial(INITIAL)


def seeded(parent: Node, initial: Initial, function: Any) -> StatefulNode:
    rows = Input(SourceNode(InitialRows(initial), "initial state"), select_key=KEY)
    return StatefulNode(parent, KEY, PICKLED, function, "sums", uid="sums", others=(rows,))


def sums_of(initial: Initial, function: Any = None) -> StatefulNode:
    numbers = SourceNode(CollectionSource(RECORDS, 6), "numbers")
    return seeded(numbers, initial, function or SeededSums())


@pytest.fixture
def job_run(initial: Initial, out: list[Any], storage: CheckpointFolders) -> JobRun:
    sink = DriverSink(lambda _, values: out.extend(values))
    return JobRun(sums_of(initial), sink, storage, parallelism=2)


EXPECTED = Counter(running_sums(INITIAL + RECORDS)[len(INITIAL) :])


def test_without_checkpoints(job_run: JobRun, initial: Initial, out: list[Any]) -> None:
    job_run.storage = None
    job = job_run.run()
    assert Counter(out) == EXPECTED
    assert [stats.records for stats in job_run.heard.epochs] == [len(INITIAL), len(RECORDS)]
    assert job.result().accumulators["initial state.records_out"] == len(INITIAL)
    assert initial.reads == 1


def test_the_first_checkpoint_is_of_them_alone(
    job_run: JobRun, initial: Initial, out: list[Any], storage: CheckpointFolders
) -> None:
    job_run.checkpoints = CheckpointSettings(interval_ms=0, num_retained=9)
    job = job_run.run()
    assert Counter(out) == EXPECTED
    first = restore_point(storage, job.job_id, 1)
    assert first.metadata.source_position == {"index": 0, "length": len(RECORDS)}

    out.clear()
    again = JobRun(sums_of(initial), job_run.sink, storage, first, parallelism=3)
    again.run()
    assert Counter(out) == EXPECTED
    assert initial.reads == 1, "the job goes on from a checkpoint"


def test_a_program_that_drops_them_later_goes_on(
    job_run: JobRun, initial: Initial, out: list[Any], storage: CheckpointFolders
) -> None:
    job = job_run.job()
    next(iter(job.run()))
    out.clear()
    numbers = SourceNode(CollectionSource(RECORDS, 6), "numbers")
    plain = StatefulNode(numbers, KEY, PICKLED, SeededSums(), "sums", uid="sums")
    JobRun(plain, job_run.sink, storage, latest(storage), parallelism=2).run()
    assert Counter(out) == EXPECTED


@pytest.mark.parametrize("epoch", [1, 2, 4])
def test_an_epoch_that_fails_at_its_end(
    job_run: JobRun, initial: Initial, out: list[Any], epoch: int
) -> None:
    """A later one than the first waits for a checkpoint; each is of an epoch after the rows were taken."""
    job_run.restart = FixedDelayRestart(1, 0)
    fail = once(LOST, epoch)

    def after(request: Any) -> None:
        if request.link.epoch == epoch and epoch > 1 and not job_run.heard.restarts:
            job_run.heard.await_checkpoint()
        fail(request)

    job_run.runner.after = after
    assert job_run.run().result().restarts == 1
    assert Counter(out) == EXPECTED
    assert initial.reads == (2 if epoch == 1 else 1)


def test_a_slot_that_dies_while_it_takes_them(
    job_run: JobRun, initial: Initial, out: list[Any], tmp_path: Path
) -> None:
    fails_once = tmp_path / "fails once"
    fails_once.touch()
    job_run.end = sums_of(initial, SeededSums(str(fails_once)))
    job_run.restart = FixedDelayRestart(1, 0)
    assert job_run.run().result().restarts == 1
    assert Counter(out) == EXPECTED
    assert initial.reads == 2


@pytest.mark.parametrize("idle_timeout_ms", [None, 1], ids=["busy", "idle"])
def test_nobody_waits_for_their_watermark_and_they_advance_none(
    initial: Initial, out: list[Any], storage: CheckpointFolders, idle_timeout_ms: int | None
) -> None:
    initial.rows = [("a", 25), ("b", 5), ("c", 1000)]
    records = [("a", n, 10 * n) for n in range(6)]
    strategy = WatermarkStrategy(0, idle_timeout_ms=idle_timeout_ms).with_timestamp_assigner(Third())
    timed = ChainNode(
        SourceNode(CollectionSource(records, 2), "numbers"),
        WATERMARKS,
        strategy,
        "time",
        assigner=Assigner(1),
    )
    sink = DriverSink(lambda _, values: out.extend(values))
    JobRun(seeded(timed, initial, Reminded()), sink, storage, clock=ManualClock(step_ms=1)).run()
    assert out == [
        ("a", 0, NO_WATERMARK),
        ("a", 10, NO_WATERMARK),
        ("b", "timer", 5),
        ("a", 20, 9),
        ("a", 30, 9),
        ("a", "timer", 25),
        ("a", 40, 29),
        ("a", 50, 29),
        ("c", "timer", 1000),
    ]
