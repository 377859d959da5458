"""Failure rate and exponential delay, as Flink documents them."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from hypothesis import given, strategies as st

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.settings.restart import (
    ExponentialDelayRestart,
    FailureRateRestart,
    RestartStrategies,
    RestartTracker,
)

HOUR_MS = 3_600_000


class Extreme(random.Random):
    """Draws one end of whatever it is asked for."""

    def __init__(self, upper: bool) -> None:
        super().__init__(0)
        self.upper = upper

    def uniform(self, a: float, b: float) -> float:
        return b if self.upper else a


class TestFailureRate:
    """Up to so many failures in an interval are restarted from; one more fails the job."""

    def delays(self, tracker: RestartTracker, *times_ms: int) -> list[int | None]:
        return [tracker.notify_failure(now) for now in times_ms]

    @pytest.mark.parametrize("rate", [1, 2, 5])
    def test_the_rate_may_be_reached_and_not_exceeded(self, rate: int) -> None:
        tracker = RestartStrategies.failure_rate_restart(rate, 10_000, 70).tracker()
        assert self.delays(tracker, *range(rate + 1)) == [70] * rate + [None]

    @pytest.mark.parametrize(("passed_ms", "expected"), [(10_000, None), (10_001, 70), (9_999, None)])
    def test_a_failure_counts_until_the_interval_is_over(self, passed_ms: int, expected: int | None) -> None:
        tracker = FailureRateRestart(1, 10_000, 70).tracker()
        assert self.delays(tracker, 5_000, 5_000 + passed_ms) == [70, expected]

    def test_the_interval_slides_and_does_not_begin_anew(self) -> None:
        tracker = FailureRateRestart(2, 1_000, 0).tracker()
        assert self.delays(tracker, 0, 900, 1_001, 1_901) == [0, 0, 0, 0]
        assert self.delays(tracker, 2_002, 2_003) == [0, None]

    def test_failures_that_are_far_apart_never_end_the_job(self) -> None:
        tracker = FailureRateRestart(1, 1_000, 70).tracker()
        assert self.delays(tracker, *range(0, 1_001 * 500, 1_001)) == [70] * 500

    def test_a_completed_checkpoint_gives_nothing_back(self) -> None:
        tracker = FailureRateRestart(1, 1_000, 70).tracker()
        assert self.delays(tracker, 0) == [70]
        tracker.notify_progress()
        assert self.delays(tracker, 1) == [None]

    def test_jobs_with_one_strategy_count_apart(self) -> None:
        strategy = FailureRateRestart(1, 1_000, 70)
        assert self.delays(strategy.tracker(), 0, 1) == [70, None]
        assert self.delays(strategy.tracker(), 2) == [70]

    @given(
        rate=st.integers(0, 4),
        interval_ms=st.integers(0, 20),
        gaps=st.lists(st.integers(0, 15), max_size=40),
    )
    def test_it_is_what_counting_all_failures_gives(
        self, rate: int, interval_ms: int, gaps: list[int]
    ) -> None:
        tracker = FailureRateRestart(rate, interval_ms, 70).tracker()
        now, failed = 0, []
        for gap in gaps:
            now += gap
            failed.append(now)
            recent = sum(now - then <= interval_ms for then in failed)
            assert tracker.notify_failure(now) == (70 if recent <= rate else None)

    @pytest.mark.parametrize("bad", [(-1, 0, 0), (0, -1, 0), (0, 0, -1)])
    def test_negative_numbers_are_refused(self, bad: tuple[int, int, int]) -> None:
        with pytest.raises(ConfigurationError, match="must be a whole number, at least 0"):
            RestartStrategies.failure_rate_restart(*bad)

    @pytest.mark.parametrize("bad", [("3", 1, 1), (3, None, 1), (3, 1, 0.5)], ids=repr)
    def test_what_is_no_whole_number_is_refused(self, bad: tuple[Any, Any, Any]) -> None:
        with pytest.raises(ConfigurationError):
            RestartStrategies.failure_rate_restart(*bad)

    def test_it_is_made_under_pyflinks_names(self) -> None:
        made = RestartStrategies.failure_rate_restart(
            failure_rate=3, failure_interval=300_000, delay_interval=10_000
        )
        assert made == FailureRateRestart(failure_rate=3, interval_ms=300_000, delay_ms=10_000)
        assert pickle.loads(pickle.dumps(made)) == made


class Failing:
    """A job that fails again and again; ``ran_ms`` is how long it ran after each restart."""

    def __init__(self, strategy: ExponentialDelayRestart, rng: random.Random | None = None) -> None:
        self.tracker = strategy.tracker(rng)
        self.now_ms = 1_700_000_000_000

    def fail(self, *ran_ms: int) -> list[int | None]:
        delays = []
        for ran in ran_ms:
            self.now_ms += ran
            delays.append(self.tracker.notify_failure(self.now_ms))
            self.now_ms += delays[-1] or 0
        return delays


def without_jitter(**settings: Any) -> ExponentialDelayRestart:
    return ExponentialDelayRestart(jitter_factor=0.0, **settings)


class TestExponentialDelay:
    """Each delay is a multiple of the one before, until the job was quiet for a while."""

    def test_the_defaults_are_flinks(self) -> None:
        made = RestartStrategies.exponential_delay_restart()
        assert made == ExponentialDelayRestart(
            initial_backoff_ms=1_000,
            max_backoff_ms=60_000,
            backoff_multiplier=1.5,
            reset_threshold_ms=HOUR_MS,
            jitter_factor=0.1,
            attempts=None,
        )
        assert made == ExponentialDelayRestart()

    def test_settings_go_where_they_are_named(self) -> None:
        made = RestartStrategies.exponential_delay_restart(
            initial_backoff=1,
            max_backoff=2,
            backoff_multiplier=3.0,
            reset_backoff_threshold=4,
            jitter_factor=0.5,
            attempts=6,
        )
        assert made == ExponentialDelayRestart(1, 2, 3.0, 4, 0.5, 6)
        assert pickle.loads(pickle.dumps(made)) == made

    def test_delays_grow_up_to_the_greatest(self) -> None:
        job = Failing(without_jitter(initial_backoff_ms=10, max_backoff_ms=95, backoff_multiplier=2.0))
        assert job.fail(1, 1, 1, 1, 1, 1) == [10, 20, 40, 80, 95, 95]

    def test_flinks_defaults_reach_a_minute_at_the_twelfth_failure(self) -> None:
        job = Failing(without_jitter())
        delays = job.fail(*[1] * 12)
        assert delays[:4] == [1_000, 1_500, 2_250, 3_375]
        assert delays[10] is not None
        assert delays[10] < 60_000
        assert delays[11] == 60_000

    def test_delays_do_not_overflow(self) -> None:
        job = Failing(without_jitter(backoff_multiplier=1e300))
        assert set(job.fail(*[1] * 5_000)[1:]) == {60_000}

    def test_a_multiplier_of_one_leaves_the_delay_as_it_is(self) -> None:
        assert Failing(without_jitter(backoff_multiplier=1.0)).fail(1, 1, 1) == [1_000] * 3

    @pytest.mark.parametrize(("ran_ms", "expected"), [(4_999, 40), (5_000, 10), (50_000, 10)])
    def test_a_quiet_time_brings_the_first_delay_back(self, ran_ms: int, expected: int) -> None:
        job = Failing(without_jitter(initial_backoff_ms=10, backoff_multiplier=2.0, reset_threshold_ms=5_000))
        assert job.fail(0, 0, ran_ms) == [10, 20, expected]

    def test_the_delay_itself_is_no_quiet_time(self) -> None:
        job = Failing(
            without_jitter(initial_backoff_ms=10_000, backoff_multiplier=2.0, reset_threshold_ms=5_000)
        )
        assert job.fail(0, 1, 1, 5_000) == [10_000, 20_000, 40_000, 10_000]

    def test_after_a_quiet_time_delays_grow_again(self) -> None:
        job = Failing(without_jitter(initial_backoff_ms=10, backoff_multiplier=2.0, reset_threshold_ms=5_000))
        assert job.fail(0, 0, 5_000, 0, 0) == [10, 20, 10, 20, 40]

    def test_a_completed_checkpoint_is_no_quiet_time(self) -> None:
        job = Failing(without_jitter(initial_backoff_ms=10, backoff_multiplier=2.0, attempts=2))
        assert job.fail(0) == [10]
        job.tracker.notify_progress()
        assert job.fail(0, 0) == [20, None]

    def test_attempts_are_given_until_they_are_used_up(self) -> None:
        job = Failing(without_jitter(initial_backoff_ms=10, backoff_multiplier=2.0, attempts=3))
        assert job.fail(0, 0, 0, 0) == [10, 20, 40, None]

    def test_a_quiet_time_gives_all_attempts_back(self) -> None:
        job = Failing(
            without_jitter(
                initial_backoff_ms=10, backoff_multiplier=2.0, attempts=2, reset_threshold_ms=5_000
            )
        )
        assert job.fail(0, 0, 5_000, 0, 0) == [10, 20, 10, 20, None]

    def test_without_attempts_there_is_no_end(self) -> None:
        assert None not in Failing(ExponentialDelayRestart()).fail(*[0] * 1_000)


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


BAD_SETTINGS = [
    {"initial_backoff": 0},
    {"initial_backoff": -1},
    {"initial_backoff": "1000"},
    {"initial_backoff": None},
    {"max_backoff": 0},
    {"max_backoff": "60000"},
    {"initial_backoff": 2_000, "max_backoff": 1_999},
    {"backoff_multiplier": 0.9},
    {"backoff_multiplier": float("nan")},
    {"backoff_multiplier": "2"},
    {"reset_backoff_threshold": 0},
    {"jitter_factor": -0.1},
    {"jitter_factor": 1.1},
    {"jitter_factor": float("nan")},
    {"attempts": -1},
    {"attempts": "3"},
]


class TestBadSettings:
    @pytest.mark.parametrize("bad", BAD_SETTINGS, ids=repr)
    def test_they_are_refused_before_the_job_runs(self, bad: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError):
            RestartStrategies.exponential_delay_restart(**bad)

    def test_the_message_says_which_setting_and_what_it_was(self) -> None:
        with pytest.raises(ConfigurationError, match=r"jitter_factor.*1\.5"):
            RestartStrategies.exponential_delay_restart(jitter_factor=1.5)
