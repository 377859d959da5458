"""Restart strategies: whether a failed job tries again, and when.

A strategy is a value that the user chooses; each job makes its own tracker from it (Flink:
``RestartBackoffTimeStrategy``). Defaults are Flink's.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from datetime import timedelta

import attrs

from pyflinkstate.api.checks import at_least
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, UserFunctionError
from pyflinkstate.runtime.settings.reading import Reader


class RestartTracker(ABC):
    """Remembers the failures of one job."""

    @abstractmethod
    def notify_failure(self, now_ms: int) -> int | None:
        """Record a failure; return the milliseconds until the restart, or None if the job must not restart.

        ``now_ms`` is monotonic.
        """

    def notify_progress(self) -> None:
        """Record that a checkpoint is complete."""
        return

    def gives_up(self, error: PyFlinkStateError) -> bool:
        """Return whether the job must not restart because of what the error is."""
        return False


class RestartStrategy(ABC):
    """Decides when a job restarts; :class:`RestartStrategies` makes one.

    PyFlink calls it ``RestartStrategyConfiguration``.
    """

    @abstractmethod
    def tracker(self) -> RestartTracker:
        """Return a new tracker for one job."""

    @abstractmethod
    def get_description(self) -> str:
        """Return in words when a job restarts."""


def _milliseconds(time: int | timedelta) -> int:
    return time // timedelta(milliseconds=1) if isinstance(time, timedelta) else time


@attrs.frozen
class NoRestart(RestartStrategy):
    """A job fails with its first failure."""

    def tracker(self) -> RestartTracker:
        """See :class:`RestartStrategy`."""
        return FixedDelayRestart(0, 0).tracker()

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return "Restart deactivated."


@attrs.frozen
class FallbackRestart(RestartStrategy):
    """What is the default where nothing is set: 3 restarts with checkpoints, none without."""

    def tracker(self) -> RestartTracker:
        """See :class:`RestartStrategy`; an environment takes the default in its place."""
        return NoRestart().tracker()

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return "Cluster level default restart strategy"


def _whole(name: str, least: int = 0, default: int = attrs.NOTHING) -> int:  # type: ignore[assignment]
    number: int = attrs.field(default=default, converter=lambda value: at_least(name, value, least))
    return number


@attrs.frozen
class FixedDelayRestart(RestartStrategy):
    """Allows up to ``attempts`` restarts, each after ``delay_ms``.

    Unlike in Flink, a completed checkpoint resets the count, so that the fourth failure in a month does not
    end a job that makes progress.
    """

    attempts: int = _whole("FixedDelayRestart: attempts")
    delay_ms: int = _whole("FixedDelayRestart: delay_ms")

    def tracker(self) -> RestartTracker:
        """See :class:`RestartStrategy`."""
        return _FixedDelay(self)

    def get_restart_attempts(self) -> int:
        """Return how many restarts there are."""
        return self.attempts

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return how long it is from a failure to the restart."""
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return f"Restart with fixed delay ({self.delay_ms} ms). #{self.attempts} restart attempts."


class _FixedDelay(RestartTracker):
    def __init__(self, strategy: FixedDelayRestart) -> None:
        self._strategy = strategy
        self._failures = 0

    def notify_failure(self, now_ms: int) -> int | None:
        self._failures += 1
        return self._strategy.delay_ms if self._failures <= self._strategy.attempts else None

    def notify_progress(self) -> None:
        self._failures = 0


@attrs.frozen
class DefaultRestart(FixedDelayRestart):
    """What a job with checkpoints does if the program has chosen no strategy.

    An error of a user's function that comes again with the same record, and with no checkpoint in between,
    ends the job: another restart would not change it.
    """

    def tracker(self) -> RestartTracker:
        """See :class:`RestartStrategy`."""
        return _Default(self)


class _Default(_FixedDelay):
    _last: str | None = None

    def gives_up(self, error: PyFlinkStateError) -> bool:
        # The message has the operator, the key, the record and the lines of the function.
        last, self._last = self._last, str(error) if isinstance(error, UserFunctionError) else None
        return last is not None and last == self._last

    def notify_progress(self) -> None:
        super().notify_progress()
        self._last = None


@attrs.frozen
class FailureRateRestart(RestartStrategy):
    """Restarts ``delay_ms`` after a failure, up to ``failure_rate`` times in ``interval_ms``."""

    failure_rate: int = _whole("FailureRateRestart: failure_rate")
    interval_ms: int = _whole("FailureRateRestart: interval_ms")
    delay_ms: int = _whole("FailureRateRestart: delay_ms")

    def tracker(self) -> RestartTracker:
        """See :class:`RestartStrategy`."""
        return _FailureRate(self)

    def get_max_failure_rate(self) -> int:
        """Return how many failures in the interval the job survives."""
        return self.failure_rate

    def get_failure_interval(self) -> timedelta:
        """Return in how long failures are counted."""
        return timedelta(milliseconds=self.interval_ms)

    def get_delay_between_attempts_interval(self) -> timedelta:
        """Return how long it is from a failure to the restart."""
        return timedelta(milliseconds=self.delay_ms)

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return (
            f"Failure rate restart with maximum of {self.failure_rate} failures within interval "
            f"{self.interval_ms} ms and fixed delay {self.delay_ms} ms."
        )


class _FailureRate(RestartTracker):
    def __init__(self, strategy: FailureRateRestart) -> None:
        self._strategy = strategy
        self._failed_ms: deque[int] = deque()

    def notify_failure(self, now_ms: int) -> int | None:
        self._failed_ms.append(now_ms)
        while now_ms - self._failed_ms[0] > self._strategy.interval_ms:
            self._failed_ms.popleft()
        return self._strategy.delay_ms if len(self._failed_ms) <= self._strategy.failure_rate else None


def _attempts(number: int) -> int:
    return at_least("attempts", number, 0)


@attrs.frozen
class ExponentialDelayRestart(RestartStrategy):
    """Restarts after a delay that grows with each failure and is reset after a time without failures.

    Attributes:
        initial_backoff_ms: the first delay.
        max_backoff_ms: the longest delay.
        backoff_multiplier: the factor from one delay to the next.
        reset_threshold_ms: the time without failures after which the delay is the first one again.
        jitter_factor: the fraction by which a delay is randomly made longer or shorter, so that jobs that
            failed together do not restart together.
        attempts: how many restarts are allowed before the delay is reset; with None there is no limit.
    """

    initial_backoff_ms: int = _whole("initial_backoff_ms", 1, 1_000)
    max_backoff_ms: int = _whole("max_backoff_ms", 1, 60_000)
    backoff_multiplier: float = attrs.field(default=1.5, validator=attrs.validators.ge(1.0))
    reset_threshold_ms: int = _whole("reset_threshold_ms", 1, 3_600_000)
    jitter_factor: float = attrs.field(
        default=0.1, validator=[attrs.validators.ge(0.0), attrs.validators.le(1.0)]
    )
    attempts: int | None = attrs.field(default=None, converter=attrs.converters.optional(_attempts))

    def __attrs_post_init__(self) -> None:
        if self.max_backoff_ms < self.initial_backoff_ms:
            raise ValueError(f"max_backoff {self.max_backoff_ms} is less than the initial backoff")

    def tracker(self, rng: random.Random | None = None) -> RestartTracker:
        """See :class:`RestartStrategy`; ``rng`` produces the jitter."""
        return _ExponentialDelay(self, rng or random.Random())

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return (
            f"Restart with exponential delay: from {self.initial_backoff_ms} to {self.max_backoff_ms} ms, "
            f"times {self.backoff_multiplier} with each failure."
        )


class _ExponentialDelay(RestartTracker):
    def __init__(self, strategy: ExponentialDelayRestart, rng: random.Random) -> None:
        self._strategy = strategy
        self._rng = rng
        self._backoff_ms = float(strategy.initial_backoff_ms)
        self._quiet_from_ms: int | None = None
        self._failures = 0

    def notify_failure(self, now_ms: int) -> int | None:
        strategy = self._strategy
        last = self._quiet_from_ms
        if last is None or now_ms - last >= strategy.reset_threshold_ms:
            self._backoff_ms, self._failures = float(strategy.initial_backoff_ms), 0
        else:
            self._backoff_ms = min(
                self._backoff_ms * strategy.backoff_multiplier, float(strategy.max_backoff_ms)
            )
        self._failures += 1
        if strategy.attempts is not None and self._failures > strategy.attempts:
            return None
        jitter = self._backoff_ms * strategy.jitter_factor * self._rng.uniform(-1, 1)
        delay_ms = max(0, min(round(self._backoff_ms + jitter), strategy.max_backoff_ms))
        self._quiet_from_ms = now_ms + delay_ms
        return delay_ms


class RestartStrategies:
    """Makes restart strategies, under PyFlink's names (``pyflink.common.RestartStrategies``)."""

    NoRestartStrategyConfiguration = NoRestart
    FixedDelayRestartStrategyConfiguration = FixedDelayRestart
    FailureRateRestartStrategyConfiguration = FailureRateRestart
    FallbackRestartStrategyConfiguration = FallbackRestart

    @staticmethod
    def no_restart() -> RestartStrategy:
        """Let the job fail with the first failure. This is the default without checkpoints."""
        return NoRestart()

    @staticmethod
    def fall_back_restart() -> RestartStrategy:
        """What is the default where nothing is set; there is no cluster that would say more."""
        return FallbackRestart()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> RestartStrategy:
        """Restart up to ``restart_attempts`` times, ``delay_between_attempts`` milliseconds apart.

        The default with checkpoints is 3 times, 1 second apart, but just once after an error of your function
        that comes again with the same record.
        """
        return FixedDelayRestart(restart_attempts, _milliseconds(delay_between_attempts))

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> RestartStrategy:
        """Restart up to ``failure_rate`` times in ``failure_interval``, after ``delay_interval`` (all ms)."""
        return FailureRateRestart(
            failure_rate, _milliseconds(failure_interval), _milliseconds(delay_interval)
        )

    @staticmethod
    def exponential_delay_restart(
        initial_backoff: int = 1_000,
        max_backoff: int = 60_000,
        backoff_multiplier: float = 1.5,
        reset_backoff_threshold: int = 3_600_000,
        jitter_factor: float = 0.1,
        attempts: int | None = None,
    ) -> RestartStrategy:
        """Restart after delays that grow, in milliseconds; see :class:`ExponentialDelayRestart`.

        The defaults are those of Flink's ``restart-strategy.exponential-delay.*``.
        """
        try:
            return ExponentialDelayRestart(
                initial_backoff,
                max_backoff,
                backoff_multiplier,
                reset_backoff_threshold,
                jitter_factor,
                attempts,
            )
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"exponential delay restart: {error}") from error


#: The parts of ``restart-strategy.*`` that belong to each type, whose names may be written without the ``-``.
_PARTS = {
    "fixed-delay": ("attempts", "delay"),
    "failure-rate": ("max-failures-per-interval", "failure-rate-interval", "delay"),
    "exponential-delay": (
        "initial-backoff",
        "max-backoff",
        "backoff-multiplier",
        "reset-backoff-threshold",
        "jitter-factor",
        "attempts-before-reset-backoff",
    ),
}
RESTART_PARTS = {f"restart-strategy.{kind}.{name}": kind for kind, names in _PARTS.items() for name in names}
_TYPES = dict.fromkeys(("none", "off", "disable"), "none")
_TYPES |= {word: kind for kind in _PARTS for word in (kind, kind.replace("-", ""))}


def read_restart_strategy(reader: Reader) -> RestartStrategy:
    """Return the strategy that ``restart-strategy.type`` names, with the parts of that type."""
    kind: str = reader.one_of(_TYPES)
    prefix = f"restart-strategy.{kind}"
    if kind == "fixed-delay":
        return RestartStrategies.fixed_delay_restart(
            reader.number(f"{prefix}.attempts", 1), reader.milliseconds(f"{prefix}.delay", 1000)
        )
    if kind == "failure-rate":
        return RestartStrategies.failure_rate_restart(
            reader.number(f"{prefix}.max-failures-per-interval", 1),
            reader.milliseconds(f"{prefix}.failure-rate-interval", 60_000),
            reader.milliseconds(f"{prefix}.delay", 1000),
        )
    if kind == "exponential-delay":
        return RestartStrategies.exponential_delay_restart(
            reader.milliseconds(f"{prefix}.initial-backoff", 1000),
            reader.milliseconds(f"{prefix}.max-backoff", 60_000),
            reader.real(f"{prefix}.backoff-multiplier", 1.5),
            reader.milliseconds(f"{prefix}.reset-backoff-threshold", 3_600_000),
            reader.real(f"{prefix}.jitter-factor", 0.1),
            reader.number(f"{prefix}.attempts-before-reset-backoff") or None,
        )
    return RestartStrategies.no_restart()
