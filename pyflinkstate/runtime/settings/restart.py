"""The status of a job, how it ends with its program, and when it tries again after a failure.

A restart strategy is a value that the user chooses; each job makes its own tracker from it (Flink:
``RestartBackoffTimeStrategy``). Defaults are Flink's.
"""

from __future__ import annotations

import enum
import random
from abc import ABC, abstractmethod
from collections import deque
from datetime import timedelta

import attrs

from pyflinkstate.errors import ConfigurationError, PyFlinkStateError, UserFunctionError
from pyflinkstate.runtime.settings.setting import Milliseconds, Reader, Setting, rows_of


class JobStatus(enum.Enum):
    """The status of a job (``pyflink.common.JobStatus``).

    A job never reports ``FAILING``, ``CANCELLING``, ``SUSPENDED`` or ``RECONCILING``; these exist because
    PyFlink has them.
    """

    CREATED = 0
    RUNNING = 1
    FAILING = 2
    FAILED = 3
    CANCELLING = 4
    CANCELED = 5
    FINISHED = 6
    RESTARTING = 7
    SUSPENDED = 8
    RECONCILING = 9

    def is_globally_terminal_state(self) -> bool:
        """Return whether the job has ended, for good."""
        return self in {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}

    def is_terminal_state(self) -> bool:
        """Return whether nobody runs the job any more; of a suspended one somebody else may."""
        return self is JobStatus.SUSPENDED or self.is_globally_terminal_state()


class OnSigterm(enum.Enum):
    """How a job ends when its program gets ``SIGTERM``."""

    #: With a savepoint at the next barrier.
    SAVEPOINT = 0
    #: At the next checkpoint, which is taken as soon as possible.
    CHECKPOINT = 1
    #: As if it was cancelled: what has not been committed is read again.
    AT_ONCE = 2


@attrs.frozen
class StopSettings:
    """How a job ends when its program gets ``SIGTERM``.

    Attributes:
        on_sigterm: how it ends.
        timeout_ms: how long that may take before the job is cancelled.
        savepoints: the directory for savepoints; None if there is none.

    Raises:
        ConfigurationError: it is to end with a savepoint, and there is no directory.
    """

    on_sigterm: OnSigterm = OnSigterm.CHECKPOINT
    timeout_ms: int = 20_000
    savepoints: str | None = None

    def __attrs_post_init__(self) -> None:
        if self.on_sigterm is OnSigterm.SAVEPOINT and self.savepoints is None:
            raise ConfigurationError(
                "pyflinkstate.on-sigterm is SAVEPOINT, and there is no directory for savepoints: call "
                "set_default_savepoint_directory()"
            )


class RestartTracker(ABC):
    """Remembers the failures of one job."""

    @abstractmethod
    def notify_failure(self, now_ms: int) -> int | None:
        """Record a failure; return the milliseconds until the restart, or None if the job must not restart.

        ``now_ms`` is monotonic.
        """

    def notify_progress(self) -> None:  # noqa: B027 - optional to override
        """Record that a checkpoint is complete."""

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
class FallbackRestart(NoRestart):
    """What is the default where nothing is set: 3 restarts with checkpoints, none without."""

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return "Cluster level default restart strategy"


@attrs.frozen
class FixedDelayRestart(RestartStrategy):
    """Allows up to ``attempts`` restarts, each after ``delay_ms``.

    Unlike in Flink, a completed checkpoint resets the count, so that the fourth failure in a month does not
    end a job that makes progress.
    """

    attempts: int = Setting(
        key="restart-strategy.fixed-delay.attempts",
        read=Reader.number,
        default=1,
        meaning="how many restarts there are",
        least=0,
        named="FixedDelayRestart: attempts",
    ).field()
    delay_ms: int = Milliseconds(
        key="restart-strategy.fixed-delay.delay",
        default=1_000,
        meaning="the time from a failure to the restart",
        named="FixedDelayRestart: delay_ms",
    ).field()

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


@attrs.define
class _FixedDelay(RestartTracker):
    _strategy: FixedDelayRestart
    _failures: int = 0

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


@attrs.define
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

    failure_rate: int = Setting(
        key="restart-strategy.failure-rate.max-failures-per-interval",
        read=Reader.number,
        default=1,
        meaning="how many failures in the interval the job survives",
        least=0,
        named="FailureRateRestart: failure_rate",
    ).field()
    interval_ms: int = Milliseconds(
        key="restart-strategy.failure-rate.failure-rate-interval",
        default=60_000,
        meaning="the interval in which failures are counted",
        named="FailureRateRestart: interval_ms",
    ).field()
    delay_ms: int = Milliseconds(
        key="restart-strategy.failure-rate.delay",
        default=1_000,
        meaning="the time from a failure to the restart",
        named="FailureRateRestart: delay_ms",
    ).field()

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


@attrs.define
class _FailureRate(RestartTracker):
    _strategy: FailureRateRestart
    _failed_ms: deque[int] = attrs.Factory(deque)

    def notify_failure(self, now_ms: int) -> int | None:
        self._failed_ms.append(now_ms)
        while now_ms - self._failed_ms[0] > self._strategy.interval_ms:
            self._failed_ms.popleft()
        return self._strategy.delay_ms if len(self._failed_ms) <= self._strategy.failure_rate else None


def _check_factor(strategy: object, field: attrs.Attribute[float], factor: float) -> None:
    least, most = (0.0, 1.0) if field.name == "jitter_factor" else (1.0, float("inf"))
    if not isinstance(factor, (int, float)) or not least <= factor <= most:
        raise ConfigurationError(f"{field.name} must be a number from {least} to {most}, not {factor!r}")


@attrs.frozen
class ExponentialDelayRestart(RestartStrategy):
    """Restarts after a delay that grows with each failure and is reset after a time without failures."""

    initial_backoff_ms: int = Milliseconds(
        key="restart-strategy.exponential-delay.initial-backoff",
        default=1_000,
        meaning="the first delay",
        least=1,
        named="initial_backoff_ms",
    ).field()
    max_backoff_ms: int = Milliseconds(
        key="restart-strategy.exponential-delay.max-backoff",
        default=60_000,
        meaning="the longest delay",
        least=1,
        named="max_backoff_ms",
    ).field()
    backoff_multiplier: float = Setting(
        key="restart-strategy.exponential-delay.backoff-multiplier",
        read=Reader.real,
        default=1.5,
        meaning="the factor from one delay to the next",
    ).field(validator=_check_factor)
    reset_threshold_ms: int = Milliseconds(
        key="restart-strategy.exponential-delay.reset-backoff-threshold",
        default=3_600_000,
        meaning="the time without failures after which the delay is the first one again",
        least=1,
        named="reset_threshold_ms",
    ).field()
    jitter_factor: float = Setting(
        key="restart-strategy.exponential-delay.jitter-factor",
        read=Reader.real,
        default=0.1,
        meaning="the fraction by which a delay is randomly made longer or shorter, so that jobs that failed "
        "together do not restart together",
    ).field(validator=_check_factor)
    attempts: int | None = Setting(
        key="restart-strategy.exponential-delay.attempts-before-reset-backoff",
        read=lambda reader: reader.number() or None,
        shown="no limit",
        meaning="how many restarts are allowed before the delay is reset",
        least=0,
        named="attempts",
    ).field()

    def __attrs_post_init__(self) -> None:
        if self.max_backoff_ms < self.initial_backoff_ms:
            raise ConfigurationError(f"max_backoff {self.max_backoff_ms} is less than the initial backoff")

    def tracker(self, rng: random.Random | None = None) -> RestartTracker:
        """See :class:`RestartStrategy`; ``rng`` produces the jitter."""
        return _ExponentialDelay(self, rng or random.Random())

    def get_description(self) -> str:
        """See :class:`RestartStrategy`."""
        return (
            f"Restart with exponential delay: from {self.initial_backoff_ms} to {self.max_backoff_ms} ms, "
            f"times {self.backoff_multiplier} with each failure."
        )


@attrs.define
class _ExponentialDelay(RestartTracker):
    _strategy: ExponentialDelayRestart
    _rng: random.Random
    _backoff_ms: float = 0.0
    _quiet_from_ms: int | None = None
    _failures: int = 0

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
        return ExponentialDelayRestart(
            initial_backoff,
            max_backoff,
            backoff_multiplier,
            reset_backoff_threshold,
            jitter_factor,
            attempts,
        )


#: The types of ``restart-strategy.type`` that have settings of their own.
RESTART_TYPES: dict[str, type[RestartStrategy]] = {
    "fixed-delay": FixedDelayRestart,
    "failure-rate": FailureRateRestart,
    "exponential-delay": ExponentialDelayRestart,
}
RESTART_PARTS = {row.key: kind for kind, cls in RESTART_TYPES.items() for row in rows_of(cls).values()}
_TYPES = dict.fromkeys(("none", "off", "disable"), NoRestart) | RESTART_TYPES
_TYPES |= {kind.replace("-", ""): cls for kind, cls in RESTART_TYPES.items()}


def read_restart_strategy(reader: Reader) -> RestartStrategy:
    """Return the strategy that ``restart-strategy.type`` names, with the settings of that type."""
    cls: type[RestartStrategy] = reader.one_of(_TYPES)
    readers = {name: (row, attrs.evolve(reader, key=row.key)) for name, row in rows_of(cls).items()}
    return cls(**{name: row.read(own) for name, (row, own) in readers.items() if own.is_set()})
