"""What a restart may help against, and the strategies with a fixed delay."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from support_job import JobRun, numbers, once

from pyflinkstate.errors import (
    BadRecordError,
    CheckpointFailuresExceededError,
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    InvalidKeyError,
    JobCancelledError,
    JobFailedError,
    MalformedRecordError,
    PyFlinkStateError,
    SinkError,
    SlotLostError,
    SlotMemoryError,
    SourceError,
    SparkJobError,
    SparkUnavailableError,
    StaleSlotError,
    UserFunctionError,
)
from pyflinkstate.runtime.settings.restart import (
    DefaultRestart,
    ExponentialDelayRestart,
    FixedDelayRestart,
    NoRestart,
    RestartStrategies,
    RestartStrategy,
    RestartTracker,
)
from pyflinkstate.runtime.sinks.sinks import DriverSink

MAY_GO_AWAY = [
    UserFunctionError,
    SlotLostError,
    StaleSlotError,
    SparkJobError,
    SourceError,
    CheckpointStorageError,
    CheckpointFailuresExceededError,
]
MUST_COME_AGAIN = [
    BadRecordError,
    InvalidKeyError,
    MalformedRecordError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    JobCancelledError,
    SinkError,
    SlotMemoryError,
    SparkUnavailableError,
]


@pytest.mark.parametrize("error", MAY_GO_AWAY)
def test_what_may_go_away_is_tried_again(error: type[PyFlinkStateError]) -> None:
    assert error("failed").recoverable


@pytest.mark.parametrize("error", MUST_COME_AGAIN)
def test_what_must_come_again_is_not_tried_again(error: type[PyFlinkStateError]) -> None:
    assert not error("failed").recoverable


def delays(tracker: RestartTracker, failures: int) -> list[int | None]:
    """Fail again and again at one moment: a fixed delay does not ask when."""
    return [tracker.notify_failure(5_000) for _ in range(failures)]


@pytest.mark.parametrize("attempts", [1, 2, 5])
def test_attempts_are_given_until_they_are_used_up(attempts: int) -> None:
    tracker = RestartStrategies.fixed_delay_restart(attempts, 500).tracker()
    assert delays(tracker, attempts + 2) == [500] * attempts + [None, None]


def test_no_delay_is_a_delay() -> None:
    assert delays(RestartStrategies.fixed_delay_restart(1, 0).tracker(), 2) == [0, None]


@pytest.mark.parametrize(
    "strategy", [RestartStrategies.no_restart(), RestartStrategies.fixed_delay_restart(0, 500)]
)
def test_without_attempts_the_first_failure_is_the_last(strategy: FixedDelayRestart) -> None:
    assert delays(strategy.tracker(), 1) == [None]


def test_a_completed_checkpoint_gives_all_attempts_back() -> None:
    tracker = RestartStrategies.fixed_delay_restart(2, 500).tracker()
    for _ in range(3):
        assert delays(tracker, 2) == [500, 500]
        tracker.notify_progress()
    assert delays(tracker, 3) == [500, 500, None]


def test_jobs_with_one_strategy_count_apart() -> None:
    strategy = RestartStrategies.fixed_delay_restart(1, 500)
    used_up, fresh = strategy.tracker(), strategy.tracker()
    assert delays(used_up, 2) == [500, None]
    assert delays(fresh, 1) == [500]


@pytest.mark.parametrize(("attempts", "delay_ms"), [(-1, 0), (0, -1), (-5, -5)])
def test_negative_numbers_are_refused(attempts: int, delay_ms: int) -> None:
    with pytest.raises(ConfigurationError, match="must be a whole number, at least 0"):
        FixedDelayRestart(attempts, delay_ms)
    with pytest.raises(ConfigurationError, match="FixedDelayRestart"):
        RestartStrategies.fixed_delay_restart(attempts, delay_ms)


@pytest.mark.parametrize(("attempts", "delay_ms"), [("3", 0), (3, None), (2, 0.5), (True, 0)], ids=repr)
def test_what_is_no_whole_number_is_refused(attempts: Any, delay_ms: Any) -> None:
    with pytest.raises(ConfigurationError):
        RestartStrategies.fixed_delay_restart(attempts, delay_ms)


def test_strategies_are_values() -> None:
    strategy = RestartStrategies.fixed_delay_restart(3, 1_000)
    assert strategy == FixedDelayRestart(3, 1_000) == pickle.loads(pickle.dumps(strategy))
    assert strategy != RestartStrategies.fixed_delay_restart(3, 1_001)
    assert RestartStrategies.no_restart() == NoRestart()


def test_strategies_say_what_they_are_as_pyflinks_configurations_do() -> None:
    fixed = RestartStrategies.fixed_delay_restart(3, timedelta(seconds=2))
    assert isinstance(fixed, RestartStrategies.FixedDelayRestartStrategyConfiguration)
    assert fixed.get_restart_attempts() == 3
    assert fixed.get_delay_between_attempts_interval() == timedelta(seconds=2)
    rate = RestartStrategies.failure_rate_restart(2, timedelta(minutes=1), 500)
    assert isinstance(rate, RestartStrategies.FailureRateRestartStrategyConfiguration)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(minutes=1))
    assert rate.get_delay_between_attempts_interval() == timedelta(milliseconds=500)
    others = (RestartStrategies.no_restart(), RestartStrategies.fall_back_restart())
    described = [one.get_description() for one in (fixed, rate, *others, ExponentialDelayRestart())]
    assert len(set(described)) == 5
    assert described[0] == "Restart with fixed delay (2000 ms). #3 restart attempts."


@pytest.mark.parametrize("strategy", [RestartStrategies.no_restart(), RestartStrategies.fall_back_restart()])
def test_without_restarts_the_first_failure_is_the_last(strategy: RestartStrategy) -> None:
    assert strategy.tracker().notify_failure(0) is None


class TestAnErrorThatComesAgain:
    """With the default strategy; one that the program has chosen is followed."""

    ERROR = UserFunctionError("TypeError: no\n  in operator 'sum', key 1, record 7")
    OTHER = UserFunctionError("TypeError: no\n  in operator 'sum', key 1, record 8")

    def test_the_same_error_ends_the_job_when_it_comes_again(self) -> None:
        tracker = DefaultRestart(3, 0).tracker()
        assert [tracker.gives_up(error) for error in (self.ERROR, self.OTHER, self.OTHER)] == [
            False,
            False,
            True,
        ]

    def test_a_checkpoint_or_a_failure_of_another_kind_in_between_begins_anew(self) -> None:
        tracker = DefaultRestart(3, 0).tracker()
        assert not tracker.gives_up(self.ERROR)
        tracker.notify_progress()
        assert not tracker.gives_up(self.ERROR)
        assert not tracker.gives_up(SlotLostError("it died"))
        assert not tracker.gives_up(self.ERROR)

    def test_failures_of_processes_are_tried_as_often_as_the_strategy_says(self) -> None:
        tracker = DefaultRestart(3, 0).tracker()
        assert not any(tracker.gives_up(SlotLostError("it died")) for _ in range(9))
        assert [tracker.notify_failure(0) for _ in range(4)] == [0, 0, 0, None]

    @pytest.mark.parametrize(
        ("strategy", "restarts"),
        [(DefaultRestart(3, 0), 1), (RestartStrategies.fixed_delay_restart(3, 0), 3)],
    )
    def test_of_a_job(self, strategy: RestartStrategy, restarts: int) -> None:
        run = JobRun(numbers(), DriverSink(lambda _, values: None), restart=strategy)
        run.runner.before = once(self.ERROR, epoch=1, times=9)
        with pytest.raises(JobFailedError, match=f"failed in epoch 1 after {restarts} restarts") as caught:
            run.run()
        assert caught.value.__cause__ is self.ERROR
        assert ("choose a restart strategy" in str(caught.value)) == (restarts == 1)
        assert len(run.heard.restarts) == restarts
