"""Wraps a backend's state into one that expires (Flink: ``TtlStateFactory``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.api import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AnyState,
    Key,
    ListStateDescriptor,
    MapStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
    StateDescriptor,
    StateKind,
    StateTtlConfig,
    StateValue,
    ValueStateDescriptor,
)
from pyflinkstate.backends.ttl.rules import TtlIncrementalCleanup, TtlRules, snapshot_filter
from pyflinkstate.backends.ttl.states import (
    TtlAggregatingState,
    TtlListState,
    TtlMapState,
    TtlReducingState,
    TtlValueState,
)
from pyflinkstate.backends.types import TtlTypeInfo, TtlValue


def create_ttl_state(
    descriptor: Any,
    rules: TtlRules,
    inner: AnyState,
    on_key_selected: Callable[[Callable[[Key], None]], None],
) -> object:
    """Return the state of ``descriptor``, which has time to live.

    Args:
        descriptor: a descriptor of any kind.
        rules: the rules of its configuration.
        inner: the backend's state for the descriptor from :func:`with_timestamps`.
        on_key_selected: registers a function to be called for every key that is selected.
    """
    config = descriptor.ttl_config
    if config.get_cleanup_strategies().in_full_snapshot():
        inner.set_snapshot_transformer(lambda: snapshot_filter(descriptor.kind, rules))
    cleanup = _incremental_cleanup(descriptor.kind, config, rules, inner, on_key_selected)
    if isinstance(descriptor, ValueStateDescriptor):
        return TtlValueState(inner, rules, cleanup, descriptor.value_type_info)
    if isinstance(descriptor, AggregatingStateDescriptor):
        return TtlAggregatingState(inner, rules, cleanup, descriptor.agg_function)
    return _TTL_STATES[descriptor.kind](inner, rules, cleanup)


_TTL_STATES: dict[StateKind, Callable[[object, TtlRules, TtlIncrementalCleanup | None], object]] = {
    StateKind.LIST: TtlListState,
    StateKind.MAP: TtlMapState,
    StateKind.REDUCING: TtlReducingState,
}


def with_timestamps(descriptor: Any, rules: TtlRules) -> StateDescriptor:
    """Return the descriptor of the backend's state for ``descriptor``, which has time to live."""
    name = descriptor.name
    if isinstance(descriptor, ValueStateDescriptor):
        return ValueStateDescriptor(name, TtlTypeInfo(descriptor.value_type_info))
    if isinstance(descriptor, ListStateDescriptor):
        return ListStateDescriptor(name, TtlTypeInfo(descriptor.elem_type_info))
    if isinstance(descriptor, MapStateDescriptor):
        return MapStateDescriptor(name, descriptor.key_type_info, TtlTypeInfo(descriptor.value_type_info))
    if isinstance(descriptor, ReducingStateDescriptor):
        reduce_function = TtlReduceFunction(descriptor.reduce_function, rules)
        return ReducingStateDescriptor(name, reduce_function, TtlTypeInfo(descriptor.type_info))
    assert isinstance(descriptor, AggregatingStateDescriptor)
    aggregate_function = TtlAggregateFunction(descriptor.agg_function, rules)
    return AggregatingStateDescriptor(name, aggregate_function, TtlTypeInfo(descriptor.state_type_info))


def _incremental_cleanup(
    kind: StateKind,
    config: StateTtlConfig,
    rules: TtlRules,
    inner: object,
    on_key_selected: Callable[[Callable[[Key], None]], None],
) -> TtlIncrementalCleanup | None:
    """Return the clean-up that each access to the state must run, if any."""
    strategy = config.get_cleanup_strategies().get_incremental_cleanup_strategy()
    if strategy is None:
        return None
    cleanup = TtlIncrementalCleanup(inner, kind, rules, strategy.get_cleanup_size())
    if strategy.run_cleanup_for_every_record():
        on_key_selected(lambda _: cleanup.run(rules.now()))
    return cleanup


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
        is_expired = accumulator[0] <= now - self._rules.ttl_ms
        unexpired = None if is_expired else accumulator[1]
        if unexpired is None:
            unexpired = self._function.create_accumulator()
        result = self._function.add(value, unexpired)
        return None if result is None else (now, result)

    def get_result(self, accumulator: TtlValue) -> StateValue:
        return self._function.get_result(accumulator[1])

    def merge(self, acc_a: TtlValue, acc_b: TtlValue) -> StateValue:
        return self._rules.combined(acc_a, acc_b, self._function.merge)
