"""Somebody sets the clock while a job runs: what takes its time takes it by a clock that nobody can set."""

from __future__ import annotations

import itertools
import queue
from collections.abc import Callable
from typing import Any

import pytest
from support_job import JobRun, LocalRunner, numbers
from support_runtime import PICKLED, ManualClock
from support_slots import ActingRunner, ServedSlot, acknowledge

from pyflinkstate.errors import CheckpointFailuresExceededError, JobFailedError, SparkJobError
from pyflinkstate.runtime.engine.epochs import EpochRequest
from pyflinkstate.runtime.master import loop as loop_module
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    RestartStrategy,
)
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources.sources import RateSource
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.clock import SystemClock, steady
from pyflinkstate.runtime.wire.metrics import OperatorMetrics

pytestmark = pytest.mark.timeout(60)

HOUR_MS = 3_600_000
FAILED = SparkJobError("an executor was lost")

jumps = pytest.mark.parametrize("jump_ms", [0, HOUR_MS, -HOUR_MS], ids=["not set", "forward", "back"])


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "TICK_S", 0.01)


def run_of(
    storage: CheckpointFolders | None, before: Callable[[EpochRequest], None], **settings: Any
) -> JobRun:
    runner = LocalRunner()
    runner.before = before
    return JobRun(numbers(20, 2), DriverSink(lambda *_: None), storage, runner=runner, **settings)


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
    assert storage.load_latest("orders").timestamp_ms == began_ms + jump_ms


def acted(storage: CheckpointFolders, act: Any, timeout_ms: int) -> JobRun:
    keyed = StatefulNode(numbers(), lambda n: n % 4, PICKLED, None, "process")  # type: ignore[arg-type]
    settings = CheckpointSettings(interval_ms=10**9, timeout_ms=timeout_ms)
    sink = DriverSink(lambda *_: None)
    return JobRun(keyed, sink, storage, parallelism=2, runner=ActingRunner(act), checkpoints=settings)


@pytest.mark.full
def test_a_checkpoint_that_nobody_acknowledges_expires_though_the_clock_is_set_back(
    storage: CheckpointFolders,
) -> None:
    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        if request.link.epoch == 2:
            run.clock.set(-HOUR_MS)

    run = acted(storage, act, timeout_ms=1_000)
    run.clock.step_ms = 1
    with pytest.raises(CheckpointFailuresExceededError, match="expired after 1000 ms"):
        run.run()
    assert run.clock.time_ms < ManualClock().time_ms, "no hour has passed"


def test_a_checkpoint_does_not_expire_because_the_clock_is_set_forward(storage: CheckpointFolders) -> None:
    def act(request: EpochRequest, slots: list[ServedSlot]) -> None:
        if request.barrier is not None:
            waiting.append(request)
        if request.link.epoch == 2:
            run.clock.set(HOUR_MS)
        if request.link.epoch == 3 or (request.barrier is not None and request.link.epoch > 1):
            for late in waiting:
                acknowledge(late, slots)
            waiting.clear()

    waiting: list[EpochRequest] = []
    run = acted(storage, act, timeout_ms=60_000)
    assert [checkpoint.epoch for checkpoint in run.run().result().checkpoints] == [1, 4]


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


def restarts(
    storage: CheckpointFolders, strategy: RestartStrategy, passing_ms: int, jump_ms: int
) -> list[int]:
    """Return the delays of two restarts; so long after the first the second failure comes, the clock set."""

    def passes() -> None:
        clock.time_ms += passing_ms
        clock.set(jump_ms)

    clock = ManualClock()
    run = run_of(storage, failing(2, 4, passes=passes), restart=strategy, clock=clock)
    run.run()
    return clock.slept


@jumps
def test_failures_that_lie_far_apart_do_not_count_together(storage: CheckpointFolders, jump_ms: int) -> None:
    assert restarts(storage, FailureRateRestart(1, 60_000, 5), 120_000, jump_ms) == [5, 5]


@jumps
def test_failures_that_lie_close_together_count_together(storage: CheckpointFolders, jump_ms: int) -> None:
    with pytest.raises(JobFailedError):
        restarts(storage, FailureRateRestart(1, 60_000, 5), 1_000, jump_ms)


@jumps
@pytest.mark.parametrize(("passing_ms", "delays"), [(1_000, [100, 200]), (700_000, [100, 100])])
def test_a_delay_that_grows_is_small_again_after_a_quiet_time_and_not_before(
    storage: CheckpointFolders, jump_ms: int, passing_ms: int, delays: list[int]
) -> None:
    strategy = ExponentialDelayRestart(100, 10_000, 2.0, reset_threshold_ms=600_000, jitter_factor=0.0)
    assert restarts(storage, strategy, passing_ms, jump_ms) == delays


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
    assert clock.receive(queue.SimpleQueue(), 1) is None
    assert clock.monotonic_ms() > readings[0] - 1


@jumps
def test_the_net_runtime_is_what_has_passed(jump_ms: int) -> None:
    def before(request: EpochRequest) -> None:
        run.clock.time_ms += 100
        if request.link.epoch == 1:
            run.clock.set(jump_ms)

    run = run_of(None, before)
    job = run.job()
    assert job.result().get_net_runtime() == 0
    assert len(list(job.run())) == len(run.runner.requests)
    passed_ms = job.result().get_net_runtime()
    run.clock.time_ms += HOUR_MS
    assert (
        job.result().get_net_runtime() == passed_ms == 100 * len(run.runner.requests) + sum(run.clock.slept)
    )
