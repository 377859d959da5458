"""Restart strategies, and whole numbers in settings."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
from event_time_functions import Contents
from hypothesis import given, strategies as st
from support_job import JobRun, numbers, once

from pyflinkstate import (
    AsyncFunction,
    CountTrigger,
    EmbeddedRocksDBStateBackend,
    MemorySize,
    RowFieldExtractorSchema,
    Time,
    TumblingEventTimeWindows,
)
from pyflinkstate.datastream import AsyncDataStream
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
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.program import EnvironmentSettings, ExecutionConfig
from pyflinkstate.runtime.settings import (
    CheckpointConfig,
    DefaultRestart,
    RestartStrategies,
    RestartStrategy,
)
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    FixedDelayRestart,
    NoRestart,
)
from pyflinkstate.runtime.sinks import DriverSink, FileSink, RollingPolicy
from pyflinkstate.runtime.sources import NumberSequenceSource
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage

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


class Failing:
    """A job that fails again and again."""

    def __init__(self, strategy: RestartStrategy, rng: random.Random | None = None) -> None:
        self.tracker = strategy.tracker() if rng is None else strategy.tracker(rng)  # type: ignore[call-arg]
        self.now_ms = 1_700_000_000_000

    def fail(self, *ran_ms: int | None) -> list[int | None]:
        """Return the delay after each failure, before which the job ran for so long. None: a checkpoint."""
        delays: list[int | None] = []
        for ran in ran_ms:
            if ran is None:
                self.tracker.notify_progress()
            else:
                self.now_ms += ran
                delays.append(self.tracker.notify_failure(self.now_ms))
                self.now_ms += delays[-1] or 0
        return delays


HOUR_MS = 3_600_000
ONCE_A_SECOND = FailureRateRestart(1, 1_000, 70)
fixed = RestartStrategies.fixed_delay_restart


def doubling(initial_backoff_ms: int = 10, **settings: Any) -> ExponentialDelayRestart:
    return ExponentialDelayRestart(initial_backoff_ms, backoff_multiplier=2.0, jitter_factor=0.0, **settings)


@pytest.mark.parametrize(
    ("strategy", "ran_ms", "delays"),
    [
        (RestartStrategies.no_restart(), [0], [None]),
        (RestartStrategies.fall_back_restart(), [0], [None]),
        *((fixed(n, 500), [0] * (n + 2), [500] * n + [None] * 2) for n in (0, 1, 2, 5)),
        (fixed(1, 0), [0, 0], [0, None]),
        (fixed(2, 500), [0, 0, None, 0, 0, None, 0, 0, 0], [500] * 6 + [None]),
        # up to so many failures in an interval that slides; checkpoints do not help
        *((FailureRateRestart(n, 10_000, 70), [0] * (n + 1), [70] * n + [None]) for n in (1, 2)),
        *(
            (FailureRateRestart(1, 10_000, 0), [5_000, passed], [0, delay])
            for passed, delay in ((9_999, None), (10_000, None), (10_001, 0))
        ),
        (FailureRateRestart(2, 1_000, 0), [0, 900, 101, 900, 101, 1], [0] * 5 + [None]),
        (ONCE_A_SECOND, [0] + [931] * 499, [70] * 500),
        (ONCE_A_SECOND, [0, None, 1], [70, None]),
        # each delay is a multiple of the one before, until the job was quiet for a while
        (doubling(max_backoff_ms=95), [1] * 6, [10, 20, 40, 80, 95, 95]),
        (attrs.evolve(doubling(1_000), backoff_multiplier=1e300), [1] * 3_000, [1_000] + [60_000] * 2_999),
        (attrs.evolve(doubling(1_000), backoff_multiplier=1.0), [1] * 3, [1_000] * 3),
        *(
            (doubling(reset_threshold_ms=5_000), [0, 0, ran], [10, 20, delay])
            for ran, delay in ((4_999, 40), (5_000, 10), (50_000, 10))
        ),
        (doubling(10_000, reset_threshold_ms=5_000), [0, 1, 1, 5_000], [10_000, 20_000, 40_000, 10_000]),
        (doubling(reset_threshold_ms=5_000), [0, 0, 5_000, 0, 0], [10, 20, 10, 20, 40]),
        (doubling(attempts=2), [0, None, 0, 0], [10, 20, None]),
        (doubling(attempts=3), [0] * 4, [10, 20, 40, None]),
        (doubling(attempts=2, reset_threshold_ms=5_000), [0, 0, 5_000, 0, 0], [10, 20, 10, 20, None]),
    ],
    ids=str,
)
def test_when_a_job_restarts(
    strategy: RestartStrategy, ran_ms: list[int | None], delays: list[int | None]
) -> None:
    assert Failing(strategy).fail(*ran_ms) == delays
    assert Failing(strategy).fail(*ran_ms) == delays, "jobs with one strategy count apart"


@given(rate=st.integers(0, 4), interval_ms=st.integers(0, 20), gaps=st.lists(st.integers(0, 15), max_size=40))
def test_a_failure_rate_is_what_counting_all_failures_gives(
    rate: int, interval_ms: int, gaps: list[int]
) -> None:
    tracker = FailureRateRestart(rate, interval_ms, 70).tracker()
    now, failed = 0, []
    for gap in gaps:
        now += gap
        failed.append(now)
        recent = sum(now - then <= interval_ms for then in failed)
        assert tracker.notify_failure(now) == (70 if recent <= rate else None)


def test_flinks_defaults_reach_a_minute_at_the_twelfth_failure() -> None:
    delays = Failing(ExponentialDelayRestart(jitter_factor=0.0)).fail(*[1] * 12)
    assert delays[:4] == [1_000, 1_500, 2_250, 3_375]
    assert [delay == 60_000 for delay in delays] == [False] * 11 + [True]
    assert None not in Failing(ExponentialDelayRestart()).fail(*[0] * 1_000)


AT_LEAST_0 = "must be a whole number, at least 0"


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        *(("fixed_delay", bad, AT_LEAST_0) for bad in ((-1, 0), (0, -1), (-5, -5))),
        *(("fixed_delay", bad, "FixedDelayRestart") for bad in (("3", 0), (3, None), (2, 0.5), (True, 0))),
        *(("failure_rate", bad, AT_LEAST_0) for bad in ((-1, 0, 0), (0, -1, 0), (0, 0, -1))),
        *(("failure_rate", bad, "FailureRate") for bad in (("3", 1, 1), (3, None, 1), (3, 1, 0.5))),
        *(
            ("exponential_delay", {name: bad}, name)
            for name, values in {
                "initial_backoff": (0, -1, "1000", None),
                "max_backoff": (0, "60000"),
                "backoff_multiplier": (0.9, float("nan"), "2"),
                "reset_backoff_threshold": (0,),
                "jitter_factor": (-0.1, 1.1, float("nan")),
                "attempts": (-1, "3"),
            }.items()
            for bad in values
        ),
        ("exponential_delay", {"initial_backoff": 2_000, "max_backoff": 1_999}, "max_backoff 1999 is less"),
        ("exponential_delay", {"jitter_factor": 1.5}, r"jitter_factor.*1\.5"),
    ],
    ids=repr,
)
def test_bad_settings_are_refused_before_the_job_runs(
    kind: str, settings: tuple[Any, ...] | dict[str, Any], why: str
) -> None:
    make: Any = getattr(RestartStrategies, f"{kind}_restart")
    with pytest.raises(ConfigurationError, match=why.replace("reset_backoff_threshold", "reset_threshold")):
        _ = make(**settings) if isinstance(settings, dict) else make(*settings)


def test_strategies_are_values_under_pyflinks_names() -> None:
    rate = RestartStrategies.failure_rate_restart(
        failure_rate=3, failure_interval=300_000, delay_interval=10_000
    )
    exponential = RestartStrategies.exponential_delay_restart(
        initial_backoff=1,
        max_backoff=2,
        backoff_multiplier=3.0,
        reset_backoff_threshold=4,
        jitter_factor=0.5,
        attempts=6,
    )
    made = [fixed(3, 1_000), rate, exponential, RestartStrategies.exponential_delay_restart()]
    assert made == [
        FixedDelayRestart(3, 1_000),
        FailureRateRestart(failure_rate=3, interval_ms=300_000, delay_ms=10_000),
        ExponentialDelayRestart(1, 2, 3.0, 4, 0.5, 6),
        ExponentialDelayRestart(1_000, 60_000, 1.5, HOUR_MS, 0.1, None),
    ]
    assert pickle.loads(pickle.dumps(made)) == made
    assert made[0] != fixed(3, 1_001)
    assert RestartStrategies.no_restart() == NoRestart()


def test_strategies_say_what_they_are_as_pyflinks_configurations_do() -> None:
    fixed_delay: Any = fixed(3, timedelta(seconds=2))
    assert isinstance(fixed_delay, RestartStrategies.FixedDelayRestartStrategyConfiguration)
    assert fixed_delay.get_restart_attempts() == 3
    assert fixed_delay.get_delay_between_attempts_interval() == timedelta(seconds=2)
    rate = RestartStrategies.failure_rate_restart(2, timedelta(minutes=1), 500)
    assert isinstance(rate, RestartStrategies.FailureRateRestartStrategyConfiguration)
    assert (rate.get_max_failure_rate(), rate.get_failure_interval()) == (2, timedelta(minutes=1))
    assert rate.get_delay_between_attempts_interval() == timedelta(milliseconds=500)
    others = (RestartStrategies.no_restart(), RestartStrategies.fall_back_restart())
    described = [one.get_description() for one in (fixed_delay, rate, *others, ExponentialDelayRestart())]
    assert len(set(described)) == 5
    assert described[0] == "Restart with fixed delay (2000 ms). #3 restart attempts."


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


class Extreme(random.Random):
    """Draws one end of whatever it is asked for."""

    def __init__(self, upper: bool) -> None:
        super().__init__(0)
        self.upper = upper

    def uniform(self, a: float, b: float) -> float:
        return b if self.upper else a


class TestJitter:
    """A random part keeps jobs that failed together from coming back together."""

    def test_a_seed_gives_the_same_delays_again(self) -> None:
        one, same, other = (
            Failing(ExponentialDelayRestart(), random.Random(seed)).fail(*[1] * 8) for seed in (7, 7, 8)
        )
        assert one == same != other

    def test_without_a_seed_two_jobs_differ(self) -> None:
        strategy = ExponentialDelayRestart(max_backoff_ms=10**12, jitter_factor=1.0)
        assert Failing(strategy).fail(*[1] * 40) != Failing(strategy).fail(*[1] * 40)

    @pytest.mark.parametrize("factor", [0.1, 0.25, 1.0])
    def test_it_adds_up_to_its_part_of_the_delay(self, factor: float) -> None:
        strategy = ExponentialDelayRestart(1_000, 10**9, 2.0, jitter_factor=factor)
        assert Failing(strategy, Extreme(True)).fail(1, 1, 1) == [
            round(base * (1 + factor)) for base in (1_000, 2_000, 4_000)
        ]

    @pytest.mark.parametrize("factor", [0.1, 0.25, 1.0])
    def test_it_takes_no_more_than_its_part_away(self, factor: float) -> None:
        strategy = ExponentialDelayRestart(1_000, 10**9, 2.0, jitter_factor=factor)
        second, third = Failing(strategy, Extreme(False)).fail(1, 1, 1)[1:]
        assert (second, third) == (round(2_000 * (1 - factor)), round(4_000 * (1 - factor)))

    def test_no_delay_is_longer_than_the_greatest(self) -> None:
        strategy = ExponentialDelayRestart(1_000, 1_500, 2.0, jitter_factor=0.5)
        assert Failing(strategy, Extreme(True)).fail(1, 1, 1) == [1_500] * 3

    def test_it_does_not_add_up_over_failures(self) -> None:
        strategy = ExponentialDelayRestart(1_000, 10**9, 1.0, jitter_factor=0.5)
        assert Failing(strategy, Extreme(True)).fail(*[1] * 5) == [1_500] * 5

    @given(seed=st.integers(), factor=st.floats(0, 1))
    def test_delays_stay_within_their_bounds(self, seed: int, factor: float) -> None:
        strategy = ExponentialDelayRestart(100, 5_000, 1.5, jitter_factor=factor)
        for number, delay in enumerate(Failing(strategy, random.Random(seed)).fail(*[1] * 12)):
            base = min(100 * 1.5**number, 5_000)
            assert delay is not None
            assert base * (1 - factor) - 1 <= delay <= min(base * (1 + factor) + 1, 5_000)


class Echo(AsyncFunction[Any, Any]):
    async def async_invoke(self, value: Any) -> list[Any]:
        return [value]


def transfer_threads(number: Any) -> int:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_number_of_transfer_threads(number)
    return backend.get_number_of_transfer_threads()


def capacity(number: Any) -> Any:
    stream: Any = SimpleNamespace(async_wait=lambda descriptor, _: descriptor)
    return AsyncDataStream.unordered_wait(stream, Echo(), Time.seconds(1), number).capacity


#: What takes a whole number of at least 1, and returns what became of it.
TAKES: dict[str, Callable[[Any], Any]] = {
    "interval": lambda n: CheckpointConfig().set_checkpoint_interval(n).get_checkpoint_interval(),
    "timeout": lambda n: CheckpointConfig().set_checkpoint_timeout(n).get_checkpoint_timeout(),
    "attempts": lambda n: FixedDelayRestart(n, 0).attempts,
    "delay": lambda n: RestartStrategies.fixed_delay_restart(1, n).delay_ms,  # type: ignore[attr-defined]
    "rate": lambda n: FailureRateRestart(1, n, 0).interval_ms,
    "backoff": lambda n: RestartStrategies.exponential_delay_restart(n).initial_backoff_ms,  # type: ignore[attr-defined]
    "reset": lambda n: (
        RestartStrategies.exponential_delay_restart(  # type: ignore[attr-defined]
            reset_backoff_threshold=n
        ).reset_threshold_ms
    ),
    "last attempt": lambda n: RestartStrategies.exponential_delay_restart(attempts=n).attempts,  # type: ignore[attr-defined]
    "threshold": lambda n: FileSystemCheckpointStorage("/x", n).file_state_size_threshold,
    "buffer": lambda n: FileSystemCheckpointStorage("/x", write_buffer_size=n).write_buffer_size,
    "state": lambda n: JobManagerCheckpointStorage(None, n).max_state_size,
    "retention": lambda n: FileSink("/x", retention_ms=n)._retention_ms,
    "part": lambda n: RollingPolicy(n).part_size,
    "first": lambda n: NumberSequenceSource(n, 100).start,
    "last": lambda n: NumberSequenceSource(-1, n).end,
    "records": lambda n: NumberSequenceSource(1, 9, records_per_epoch=n).records_per_epoch,
    "lateness": lambda n: (
        window_operator(
            TumblingEventTimeWindows.of(10), allowed_lateness_ms=n, function=Contents()
        ).allowed_lateness_ms
    ),
    "watermarks": lambda n: (
        ExecutionConfig(EnvironmentSettings(1)).set_auto_watermark_interval(n).get_auto_watermark_interval()
    ),
    "count": lambda n: CountTrigger(n)._window_size,
    "field": lambda n: RowFieldExtractorSchema(n).field_index,
    "memory": lambda n: MemorySize(bytes_size=n).get_bytes(),
    "threads": transfer_threads,
    "capacity": capacity,
}


@pytest.mark.parametrize("name", TAKES)
def test_a_whole_number_of_numpy_becomes_an_int(name: str) -> None:
    taken = TAKES[name](np.int64(7))
    assert (type(taken), taken) == (int, 7)


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("wrong", [1.5, np.float64(2), "3", True, np.True_], ids=repr)
def test_anything_else_is_refused(name: str, wrong: Any) -> None:
    with pytest.raises(PyFlinkStateError):
        TAKES[name](wrong)
