"""Functions whose live state tests ask for; a slot process imports this file, so it is small."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backend_support import Mean

from pyflinkstate import (
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)


class CountRecords(KeyedProcessFunction):
    """How many records of its key came so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        return ()


class EveryKind(KeyedProcessFunction):
    """One state of each kind, and two that a test finds by what is special about them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        long, string = Types.LONG(), Types.STRING()
        forever = StateTtlConfig.new_builder(Time.days(365)).build()
        living = MapStateDescriptor("living", string, long)
        living.enable_time_to_live(forever)
        self.value = runtime_context.get_state(ValueStateDescriptor("value", long))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", string))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", string, long))
        self.living = runtime_context.get_map_state(living)
        self.pickled = runtime_context.get_state(ValueStateDescriptor("pickled"))
        self.reducing = runtime_context.get_reducing_state(
            ReducingStateDescriptor("reducing", lambda old, new: old + new, long)
        )
        self.aggregating = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Mean(), Types.LIST(long))
        )

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.value.update(value)
        self.list.add_all([f"é{value}", "\U0001f600"])
        self.map.put_all({f"n{value % 3}": value, "": -value})
        self.living.put(f"n{value}", value)
        self.pickled.update({"n": complex(value, 1)})
        self.reducing.add(value)
        self.aggregating.add(value)
        return ()


class Late(KeyedProcessFunction):
    """Asks for its state with its first record, and not before."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.context.get_state(ValueStateDescriptor("late", Types.LONG())).update(value)
        return ()


class Padded(KeyedProcessFunction):
    """Keeps two million characters for each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.padding = runtime_context.get_state(ValueStateDescriptor("padding", Types.STRING()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.padding.update(str(value) * 2_000_000)
        return ()


class Unbounded(KeyedProcessFunction):
    """Keeps numbers for each key that JSON does not have."""

    def open(self, runtime_context: RuntimeContext) -> None:
        double = Types.DOUBLE()
        self.ratios = runtime_context.get_map_state(MapStateDescriptor("ratios", Types.STRING(), double))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.ratios.put_all({"none": float("nan"), "all": float("inf"), "half": 0.5})
        return ()
