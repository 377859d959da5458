"""When a value has expired, and how two values that may have expired are combined (Flink: ``TtlUtils``).

Every access to a state that expires goes this way, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyflinkstate.api.ttl import StateTtlConfig, StateVisibility, UpdateType
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.types import TtlValue
from pyflinkstate.backends.wall_clock import wall_clock_ms

#: Earlier than any timestamp.
UNKNOWN: Final = -(1 << 70)


class TtlRules:
    """A configuration in the form that the states use.

    Args:
        clock: returns the time in ms.
        ttl_ms: how long a value lives.
        refreshes_on_read: whether reading prolongs its life.
        returns_expired: whether an expired value is returned once.

    Attributes:
        earliest: the earliest time that was read since the clean-up last set it, so that no timestamp given
            since then is earlier; :data:`UNKNOWN` if older values may have come from elsewhere.
    """

    __slots__ = (
        "_clock",
        "_reads_wall_clock",
        "earliest",
        "refreshes_on_read",
        "returns_expired",
        "ttl_ms",
    )

    def __init__(
        self, clock: Callable[[], int], ttl_ms: int, refreshes_on_read: bool, returns_expired: bool
    ) -> None:
        self._clock = clock
        #: Then the clock is called natively.
        self._reads_wall_clock: bool = clock is wall_clock_ms
        self.ttl_ms = ttl_ms
        self.refreshes_on_read = refreshes_on_read
        self.returns_expired = returns_expired
        self.earliest = UNKNOWN

    def now(self) -> int:
        """Return the time in ms; every timestamp of a value comes from here."""
        now = wall_clock_ms() if self._reads_wall_clock else self._clock()
        if now < self.earliest:
            self.earliest = now
        return now

    def expired_until(self, now: int) -> int:
        """Return the latest timestamp that has expired: with a TTL of 100 ms that is 0 at 100."""
        return now - self.ttl_ms

    def combined(
        self, left: TtlValue, right: TtlValue, combine: Callable[[StateValue, StateValue], StateValue]
    ) -> StateValue:
        """Return the unexpired values of the two, combined and stamped, or ``left`` if both have expired.

        None stays None, which the state refuses.
        """
        now = self.now()
        expired_until = now - self.ttl_ms
        first = None if left[0] <= expired_until else left[1]
        second = None if right[0] <= expired_until else right[1]
        if first is None and second is None:
            return left
        if first is None or second is None:
            return now, second if first is None else first
        result = combine(first, second)
        return None if result is None else (now, result)


def rules_of(config: StateTtlConfig, clock: Callable[[], int]) -> TtlRules:
    """Return the rules of a configuration, with a clock that returns the time in ms."""
    return TtlRules(
        clock,
        config.get_ttl().to_milliseconds(),
        config.get_update_type() is UpdateType.OnReadAndWrite,
        config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp,
    )
