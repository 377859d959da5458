"""When a value has expired, and what reading it does (Flink: ``AbstractTtlDecorator``, ``TtlUtils``)."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api.functions import AggregateFunction, ReduceFunction
from pyflinkstate.api.ttl import StateTtlConfig, StateVisibility, UpdateType
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.types import TtlValue


@attrs.frozen
class TtlRules:
    """A configuration in the form that the states use.

    Attributes:
        now: returns the time in ms.
        ttl_ms: how long a value lives.
        refreshes_on_read: whether reading prolongs its life.
        returns_expired: whether an expired value is returned once.
    """

    now: Callable[[], int]
    ttl_ms: int
    refreshes_on_read: bool
    returns_expired: bool

    @classmethod
    def of(cls, config: StateTtlConfig, now: Callable[[], int]) -> TtlRules:
        """Return the rules of a configuration."""
        return cls(
            now,
            config.get_ttl().to_milliseconds(),
            config.get_update_type() is UpdateType.OnReadAndWrite,
            config.get_state_visibility() is StateVisibility.ReturnExpiredIfNotCleanedUp,
        )

    def stamped(self, value: StateValue) -> TtlValue:
        """Return ``value`` with the current time as its timestamp."""
        return self.now(), value

    def is_expired(self, stored: TtlValue) -> bool:
        """Return whether a value has expired; one written at 0 with a TTL of 100 ms expires at 100."""
        return stored[0] + self.ttl_ms <= self.now()

    def unexpired(self, stored: TtlValue | None) -> StateValue:
        """Return the user's value, or None if there is none or it has expired."""
        return None if stored is None or self.is_expired(stored) else stored[1]

    def stamped_result(self, result: StateValue) -> StateValue:
        """Return a function's result with the current time; None stays None, which the state refuses."""
        return None if result is None else self.stamped(result)

    def combined(
        self, left: TtlValue, right: TtlValue, combine: Callable[[StateValue, StateValue], StateValue]
    ) -> StateValue:
        """Return the unexpired values of the two, combined and stamped, or ``left`` if both have expired."""
        first, second = self.unexpired(left), self.unexpired(right)
        if first is None and second is None:
            return left
        if first is None or second is None:
            return self.stamped(second if first is None else first)
        return self.stamped_result(combine(first, second))


@attrs.frozen
class TtlReduceFunction(ReduceFunction):
    """Reduces values that have not expired; the result gets a new timestamp, unless both have expired."""

    _function: ReduceFunction
    _rules: TtlRules

    def reduce(self, value1: TtlValue, value2: TtlValue) -> StateValue:
        return self._rules.combined(value1, value2, self._function.reduce)


@attrs.frozen
class TtlAggregateFunction(AggregateFunction):
    """Adds to an accumulator that has not expired, or to a new one; the result gets a new timestamp."""

    _function: AggregateFunction
    _rules: TtlRules

    def create_accumulator(self) -> TtlValue:
        return self._rules.stamped(self._function.create_accumulator())

    def add(self, value: StateValue, accumulator: TtlValue) -> StateValue:
        unexpired = self._rules.unexpired(accumulator)
        if unexpired is None:
            unexpired = self._function.create_accumulator()
        return self._rules.stamped_result(self._function.add(value, unexpired))

    def get_result(self, accumulator: TtlValue) -> StateValue:
        return self._function.get_result(accumulator[1])

    def merge(self, acc_a: TtlValue, acc_b: TtlValue) -> StateValue:
        return self._rules.combined(acc_a, acc_b, self._function.merge)
