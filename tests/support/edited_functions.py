"""Functions whose state is changed in a savepoint: they say what they find."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflinkstate import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)

WINDOW_END_MS = 1_000
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Everything(KeyedProcessFunction, CheckpointedFunction):
    """Keeps an amount in each kind of state, and says for an amount of 0 what is there.

    Args:
        total: the declared type of the value.
        name: the name of the value.
    """

    def __init__(self, total: Any = None, name: str = "total") -> None:
        self.total_state = ValueStateDescriptor(name, total or Types.LONG())

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.keys = store.get_union_list_state(ListStateDescriptor("keys", Types.STRING()))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Its operator state is up to date with each record."""

    def open(self, runtime_context: Any) -> None:
        self.total = runtime_context.get_state(self.total_state)
        self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts", Types.LONG()))
        self.by_name = runtime_context.get_map_state(
            MapStateDescriptor("by name", Types.STRING(), Types.LONG())
        )
        visited = ValueStateDescriptor("visited", Types.LONG())
        visited.enable_time_to_live(StateTtlConfig.new_builder(Time.days(36_500)).build())
        self.visited = runtime_context.get_state(visited)
        self.untyped = runtime_context.get_state(ValueStateDescriptor("untyped"))

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        key, amount = value
        if amount:
            self.total.update(amount)
            self.amounts.add(amount)
            self.by_name.put("n", amount)
            self.visited.update(amount)
            self.untyped.update({"n": amount})
            self.keys.add(key)
            ctx.timer_service().register_event_time_timer(WINDOW_END_MS)
            return
        yield key, "values", self.total.value(), list(self.amounts), dict(self.by_name.items())
        yield key, "others", self.visited.value(), self.untyped.value()
        yield "", "keys", sorted(self.keys.get())

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield ctx.get_current_key(), "timer", timestamp


class Ruled(KeyedBroadcastProcessFunction):
    """Says the rules that it has."""

    def process_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        if not value[1]:
            yield "", "rules", dict(ctx.get_broadcast_state(RULES).items())

    def process_broadcast_element(self, value: tuple[str, int], ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put(*value)
        return ()
