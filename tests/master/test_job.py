"""Whole jobs without checkpoints, their clocks, and the answers of PyFlink."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import attrs
import pytest
from answered_programs import SEEDS, answers, found_for
from local_environment import local_environment
from random_programs import program_of
from support_job import JobRun, LocalRunner, counts, numbers, once
from support_runtime import ManualClock
from tiers import cases

from pyflinkstate import CheckpointStats, FileSink, ReplacingSink
from pyflinkstate.errors import (
    BadRecordError,
    JobFailedError,
    SinkError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.plan import ChainNode, SourceNode
from pyflinkstate.runtime.settings import CheckpointSettings, RestartStrategy
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
)
from pyflinkstate.runtime.sinks.sinks import FrameWriter
from pyflinkstate.runtime.sources import DirectorySource, RateSource
from pyflinkstate.runtime.sources.formats import JsonFormat
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import OperatorMetrics, SystemClock, decode_values, steady

pytestmark = pytest.mark.timeout(60)

SPARK_FAILED = SparkJobError("an executor was lost")
EVEN = "even.records_dropped"
READ = "numbers.records_out"


ALL = [0, 20, 40, 60, 80]


# --- epochs and commits --------------------------------------------------------------------------------


def test_without_checkpoints_a_bounded_input_is_one_epoch(run: JobRun, out: list[Any]) -> None:
    run.storage = None
    assert list(run.job().run()) == [1]
    assert out == ALL
    assert [request.barrier for request in run.runner.requests] == [None]
    assert run.heard.checkpoints == []


def test_with_checkpoints_each_epoch_is_committed_by_one(
    run: JobRun, storage: CheckpointFolders, out: list[Any]
) -> None:
    seen = [(epoch, list(out)) for epoch in run.job().run()]
    assert seen == [(1, [0, 20]), (2, [0, 20, 40]), (3, [0, 20, 40, 60, 80]), (4, ALL)]
    assert [request.barrier.checkpoint_id for request in run.runner.requests] == [1, 2, 3, 4]
    result = run.job().result()
    assert (result.epochs, result.restarts, result.rejected) == (4, 0, ())
    assert counts(run.job()) == {READ: 10, EVEN: 5}
    assert result.checkpoints == tuple(run.heard.checkpoints)
    assert result.failed_checkpoints == tuple(run.heard.failed) == ()
    assert result.checkpoints[0] == CheckpointStats(
        1, 1, triggered_ms=run.clock.time_ms, uri=storage.uri_of(run.job_id, 1)
    )


def test_listeners_hear_of_epochs_and_checkpoints(run: JobRun) -> None:
    run.runner.before = lambda request: run.clock.sleep_ms(request.link.epoch)
    run.run()
    assert [(stats.epoch, stats.records, stats.restarts) for stats in run.heard.epochs] == [
        (1, 3, 0),
        (2, 3, 0),
        (3, 3, 0),
        (4, 1, 0),
    ]
    assert [stats.duration_ms for stats in run.heard.epochs] == [1, 2, 3, 4]
    assert [(stats.checkpoint_id, stats.epoch) for stats in run.heard.checkpoints] == [
        (number, number) for number in range(1, 5)
    ]


def test_a_checkpoint_is_all_that_a_restore_needs(run: JobRun, storage: CheckpointFolders) -> None:
    run.clock.time_ms = 1_000_000
    job = run.run()
    found, _ = storage.load_latest("orders")
    assert attrs.asdict(found, recurse=False) == {
        "checkpoint_id": 4,
        "job_id": job.job_id,
        "job_name": "orders",
        "epoch": 4,
        "source_position": {"index": 10, "length": 10},
        "counters": job.result().accumulators,
        "timestamp_ms": 1_000_000,
        "operators": (),
        "watermarks": {},
        "runs": ((storage.runs(job.job_id)[0], 0),),
    }
    assert storage.checkpoint_ids(job.job_id) == [4], "older ones are subsumed"


def test_within_the_interval_epochs_have_no_barrier_but_the_last_has(
    run: JobRun, storage: CheckpointFolders, out: list[Any]
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=10**6)
    seen = [(epoch, list(out)) for epoch in run.job().run()]
    assert [request.barrier is not None for request in run.runner.requests] == [True, False, False, True]
    assert seen[0] == (1, [0, 20])
    assert [epoch for epoch, _ in seen] == [1, 2, 3, 4]
    assert [committed for _, committed in seen[1:]] == [ALL] * 3
    assert [(s.checkpoint_id, s.epoch) for s in run.heard.checkpoints] == [(1, 1), (2, 4)]
    assert storage.load_latest("orders")[0].counters == run.job().result().accumulators


@pytest.mark.parametrize("with_storage", [True, False])
def test_an_empty_input_is_no_epoch(run: JobRun, out: list[Any], with_storage: bool) -> None:
    run.end = numbers(0)
    run.storage = run.storage if with_storage else None
    assert run.run().result().epochs == 0
    assert (out, run.runner.requests) == ([], [])


def test_each_task_is_told_of_its_epoch_and_attempt(run: JobRun) -> None:
    run.restart = FixedDelayRestart(1, 0)
    run.runner.before = once(SPARK_FAILED, epoch=3)
    run.run()
    told = [(request.link.epoch, request.link.driver.attempt) for request in run.runner.requests]
    assert told == [(1, 0), (2, 0), (3, 0), (3, 1), (4, 1)]
    assert run.runner.requests[0].description == "orders: epoch 1"
    assert [(stats.epoch, stats.restarts) for stats in run.heard.epochs] == [(1, 0), (2, 0), (3, 1), (4, 1)]


# --- failures and restarts -----------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [1, 2, 3, 4])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("interval_ms", [0, 10**6])
def test_an_epoch_that_fails_is_replayed_from_the_last_checkpoint(
    run: JobRun, out: list[Any], epoch: int, when: str, interval_ms: int
) -> None:
    run.checkpoints = CheckpointSettings(interval_ms=interval_ms)
    run.restart = FixedDelayRestart(3, 250)
    setattr(run.runner, when, once(SPARK_FAILED, epoch))
    job = run.run()
    assert out == ALL
    result = job.result()
    assert (result.restarts, result.epochs) == (1, 4)
    assert counts(job) == {READ: 10, EVEN: 5}
    assert run.heard.restarts == [(1, SPARK_FAILED)]
    assert run.clock.slept == [250]
    replayed = next(request for request in run.runner.requests if request.link.driver.attempt == 1)
    assert replayed.link.epoch == (epoch if interval_ms == 0 else min(epoch, 2))


def test_a_failing_user_function_is_told_as_what_it_is(run: JobRun) -> None:
    run.end = ChainNode(numbers(), "map", lambda n: 1 / (n - 4), "inverse")
    run.fails(UserFunctionError, match="operator 'inverse', record 4")
    assert run.heard.restarts == []


def test_what_a_task_reports_goes_before_what_spark_makes_of_it(run: JobRun, out: list[Any]) -> None:
    failures = iter([ZeroDivisionError("by chance")])

    def unlucky(n: int) -> int:
        if n == 4 and (error := next(failures, None)) is not None:
            raise error
        return n

    run.end = ChainNode(numbers(), "map", unlucky, "unlucky")
    run.restart = FixedDelayRestart(1, 0)
    run.run()
    assert out == list(range(10))
    ((_, cause),) = run.heard.restarts
    assert isinstance(cause, UserFunctionError)
    assert "ZeroDivisionError: by chance" in str(cause)


@pytest.mark.parametrize("after_a_restart", [False, True])
def test_an_error_that_must_come_again_is_raised_as_it_is(run: JobRun, after_a_restart: bool) -> None:
    run.restart = FixedDelayRestart(10, 0)
    bad = BadRecordError("no key")
    fails = [SPARK_FAILED, bad] if after_a_restart else [bad]

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 2:
            raise fails.pop(0)

    run.runner.before = before
    error = run.fails(BadRecordError)
    assert error is bad
    assert len(run.heard.restarts) == after_a_restart


def test_attempts_that_are_used_up_end_the_job(run: JobRun) -> None:
    run.restart = FixedDelayRestart(2, 5)
    errors = [SparkJobError(f"failure {number}") for number in range(3)]
    left = list(errors)

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 2:
            raise left.pop(0)

    run.runner.before = before
    c = run.fails(JobFailedError, match=r"job 'orders' failed in epoch 2 after 2 restarts: failure 2")
    assert c.__cause__ is errors[2]
    assert [error for _, error in run.heard.restarts] == errors[:2]
    assert run.clock.slept == [5, 5]


def test_a_completed_checkpoint_gives_the_attempts_back(run: JobRun, out: list[Any]) -> None:
    run.restart = FixedDelayRestart(1, 0)
    hooks = [once(SPARK_FAILED, epoch) for epoch in (1, 2, 3, 4)]
    run.runner.before = lambda request: [hook(request) for hook in hooks] and None
    assert run.run().result().restarts == 4
    assert out == ALL


def test_a_sink_that_cannot_open_ends_the_job_before_any_epoch(run: JobRun, tmp_path: Path) -> None:
    (tmp_path / "epoch=1").mkdir()
    run.sink = FileSink(str(tmp_path))
    run.fails(SinkError, match="another run")
    assert run.runner.requests == []


def test_rows_that_were_rejected_are_told_once(run: JobRun, tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"{number}.json").write_text(f"{number}\nbad {number}\n")
    run.end = SourceNode(DirectorySource(str(tmp_path), JsonFormat("collect"), max_files=3), "files")
    run.restart = FixedDelayRestart(1, 0)
    run.runner.after = once(SPARK_FAILED, 2)
    job = run.run()
    assert [row.text for row in job.result().rejected] == ["bad 0", "bad 1", "bad 2"]
    assert counts(job) == {"files.records_out": 3, "files.records_malformed": 3}


HOUR_MS = 3_600_000
FAILED = SparkJobError("an executor was lost")

jumps = pytest.mark.parametrize("jump_ms", [0, HOUR_MS, -HOUR_MS], ids=["not set", "forward", "back"])


def run_of(
    storage: CheckpointFolders | None, before: Callable[[EpochRequest], None], **settings: Any
) -> JobRun:
    runner = LocalRunner()
    runner.before = before
    return JobRun(numbers(20, 2), storage=storage, runner=runner, **settings)


@jumps
def test_checkpoints_come_at_their_interval(storage: CheckpointFolders, jump_ms: int) -> None:
    def before(request: EpochRequest) -> None:
        run.clock.time_ms += 400
        if request.link.epoch == 4:
            run.clock.set(jump_ms)

    run = run_of(storage, before, checkpoints=CheckpointSettings(interval_ms=1_000))
    stats = run.run().result().checkpoints
    assert [checkpoint.epoch for checkpoint in stats] == [1, 4, 7, 10]
    assert all(0 <= checkpoint.duration_ms < 60_000 for checkpoint in stats)


@jumps
def test_a_checkpoint_says_when_it_was_triggered_by_the_clock_on_the_wall(
    storage: CheckpointFolders, jump_ms: int
) -> None:
    def before(request: EpochRequest) -> None:
        if request.link.epoch == 4:
            run.clock.set(jump_ms)

    run = run_of(storage, before)
    began_ms = run.clock.time_ms
    stats = run.run().result().checkpoints
    assert {checkpoint.triggered_ms for checkpoint in stats} == {began_ms, began_ms + jump_ms}
    assert storage.load_latest("orders")[0].timestamp_ms == began_ms + jump_ms


@jumps
def test_a_restart_waits_for_its_delay_and_no_longer(storage: CheckpointFolders, jump_ms: int) -> None:
    run = run_of(storage, failing(2), restart=FixedDelayRestart(1, 250))
    run.clock.on_sleep = lambda _: run.clock.set(jump_ms)
    assert run.run().result().restarts == 1
    assert run.clock.slept == [250]


def failing(*calls: int, passes: Callable[[], None] = lambda: None) -> Callable[[EpochRequest], None]:
    """Fail the epochs of these numbers, as they are asked for; time passes before each of them."""
    asked = itertools.count(1)

    def before(_: EpochRequest) -> None:
        if next(asked) in calls:
            passes()
            raise FAILED

    return before


RATE = FailureRateRestart(1, 60_000, 5)
GROWING = ExponentialDelayRestart(100, 10_000, 2.0, reset_threshold_ms=600_000, jitter_factor=0.0)


@jumps
@pytest.mark.parametrize(
    ("strategy", "passing_ms", "delays"),
    [
        (RATE, 120_000, [5, 5]),
        (RATE, 1_000, None),
        (GROWING, 1_000, [100, 200]),
        (GROWING, 700_000, [100, 100]),
    ],
)
def test_failures_count_together_if_they_lie_close_together_whatever_the_clock_says(
    storage: CheckpointFolders,
    jump_ms: int,
    strategy: RestartStrategy,
    passing_ms: int,
    delays: list[int] | None,
) -> None:
    def passes() -> None:
        clock.time_ms += passing_ms
        clock.set(jump_ms)

    clock = ManualClock()
    run = run_of(storage, failing(2, 4, passes=passes), restart=strategy, clock=clock)
    with pytest.raises(JobFailedError) if delays is None else nullcontext():
        run.run()
    assert clock.slept == (delays or [5])


@jumps
def test_a_stream_is_idle_when_it_was_silent_for_so_long(jump_ms: int) -> None:
    run = run_of(None, lambda _: None)
    tracker = run.job()._actions.input.event_time
    tracker._idle_timeouts_ms = {"a": 60_000}
    tracker.begin({})
    run.clock.set(jump_ms)
    run.clock.time_ms += 59_999
    assert tracker.progress().idle == frozenset()
    run.clock.time_ms += 1
    assert tracker.progress().idle == {"a"}


# --- others that ask what time it is -----------------------------------------------------------------------


@jumps
def test_a_rate_stays_what_it_is(jump_ms: int) -> None:
    clock = ManualClock()
    source = RateSource(10, steady(clock))
    start = source.initial_offset()
    assert start["start_ms"] == clock.time_ms
    clock.set(jump_ms)
    clock.time_ms += 2_000
    assert source.latest_offset(start, whole=False).end["index"] == 20


def test_a_meter_counts_anew_when_the_clock_was_set_back() -> None:
    clock = ManualClock()
    metrics = OperatorMetrics(clock.now_ms)
    meter = metrics.add_group("g").meter("m")
    meter.mark_event(100)
    clock.set(-HOUR_MS)
    metrics.values()
    clock.time_ms += 2_000
    meter.mark_event(10)
    (value,) = metrics.values().values()
    assert value.rate == 5.0


def test_the_systems_clock_has_both_readings() -> None:
    clock = SystemClock()
    readings = [clock.monotonic_ms() for _ in range(100)]
    assert readings == sorted(readings)
    mailbox: queue.SimpleQueue[str] = queue.SimpleQueue()
    mailbox.put("mail")
    assert (clock.receive(mailbox, 60_000), clock.receive(mailbox, 1)) == ("mail", None)
    assert clock.monotonic_ms() > readings[0] - 1


@jumps
def test_the_net_runtime_is_what_has_passed(jump_ms: int) -> None:
    def before(request: EpochRequest) -> None:
        run.clock.time_ms += 100
        if request.link.epoch == 1:
            run.clock.set(jump_ms)

    run = run_of(None, before)
    assert run.job().result().get_net_runtime() == 0
    assert len(list(run.job().run())) == len(run.runner.requests)
    passed_ms = run.job().result().get_net_runtime()
    run.clock.time_ms += HOUR_MS
    assert (
        run.job().result().get_net_runtime()
        == passed_ms
        == 100 * len(run.runner.requests) + sum(run.clock.slept)
    )


#: After the first one no checkpoint is due, so a later failure takes the job far back.
RARELY = CheckpointSettings(interval_ms=10**6)


class Table(ReplacingSink):
    """A table of rows by epoch, which a crash of the driver leaves as it is."""

    def __init__(self, rows: dict[int, list[int]]) -> None:
        self.rows = rows

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Nothing to open."""

    def writer(self, epoch: int) -> FrameWriter:
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        self.rows[epoch] = [row for _, frame in results for row in decode_values(frame)]

    def commit(self, epoch: int) -> None:
        """What was prepared is there already."""

    def rewind(self, epoch: int) -> None:
        """What comes again replaces what is there."""


TOGETHER = 10
#: Programs for the quick tier, each of one epoch.
QUICK = [[2, 4, 7]]
#: The first batches are run by the full tier, and the others by the soak.
BATCHES = [SEEDS[begin : begin + TOGETHER] for begin in range(0, len(SEEDS), TOGETHER)]
FULL = 10
SOAKED = [pytest.param(seeds, marks=pytest.mark.slow) for seeds in BATCHES[FULL:]]
ALL_ANSWERS = [*cases(BATCHES[:FULL], quick=()), *SOAKED]


@pytest.mark.parametrize("seeds", [*QUICK, *ALL_ANSWERS], ids=str)
def test_programs_give_the_answers_of_pyflink(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seeds: list[int]
) -> None:
    found = found_for(local_environment(monkeypatch), seeds, tmp_path)
    different = {seed: found[seed] for seed in seeds if found[seed] != answers()[seed]}
    assert not different, [(program_of(seed), answers()[seed]) for seed in different]
