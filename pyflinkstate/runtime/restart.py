"""Restart strategies: whether a failed job tries again."""

from __future__ import annotations

import attrs

from pyflinkstate.errors import ConfigurationError, PyFlinkStateError


@attrs.frozen
class RestartStrategy:
    """Up to ``attempts`` restarts, ``delay_ms`` apart.

    Unlike Flink's fixed delay, a completed checkpoint gives all attempts back: a job that makes
    progress is not ended by its third failure in a month.
    """

    attempts: int = attrs.field(validator=attrs.validators.ge(0))
    delay_ms: int = attrs.field(validator=attrs.validators.ge(0))

    def allows(self, error: PyFlinkStateError, restarts_since_progress: int) -> bool:
        """Return whether to restart; never after an error that must come again (bad input)."""
        return error.recoverable and restarts_since_progress < self.attempts


class RestartStrategies:
    """Makes restart strategies, under PyFlink's names (``pyflink.common.RestartStrategies``)."""

    @staticmethod
    def no_restart() -> RestartStrategy:
        """The job fails with the first failure. The default without checkpoints."""
        return RestartStrategy(0, 0)

    @staticmethod
    def fixed_delay_restart(restart_attempts: int, delay_between_attempts: int) -> RestartStrategy:
        """Restart up to ``restart_attempts`` times, ``delay_between_attempts`` milliseconds apart.

        The default with checkpoints: 3 times, 1 second apart.
        """
        if restart_attempts < 0 or delay_between_attempts < 0:
            raise ConfigurationError(
                f"restart attempts {restart_attempts} and delay {delay_between_attempts} must be 0 or more"
            )
        return RestartStrategy(restart_attempts, delay_between_attempts)
