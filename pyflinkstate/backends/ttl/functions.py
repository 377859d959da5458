"""The functions that the backend's reducing and aggregating states call when their values expire."""

from __future__ import annotations

import attrs

from pyflinkstate.api.functions import AggregateFunction, ReduceFunction
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.ttl.access import TtlRules
from pyflinkstate.backends.types import TtlValue


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
        return self._rules.now(), self._function.create_accumulator()

    def add(self, value: StateValue, accumulator: TtlValue) -> StateValue:
        now = self._rules.now()
        is_expired = accumulator[0] <= self._rules.expired_until(now)
        unexpired = None if is_expired else accumulator[1]
        if unexpired is None:
            unexpired = self._function.create_accumulator()
        result = self._function.add(value, unexpired)
        return None if result is None else (now, result)

    def get_result(self, accumulator: TtlValue) -> StateValue:
        return self._function.get_result(accumulator[1])

    def merge(self, acc_a: TtlValue, acc_b: TtlValue) -> StateValue:
        return self._rules.combined(acc_a, acc_b, self._function.merge)
