"""Operators that the Spark tests run. Spark's workers import them by this module's name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyflinkstate import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)


class RunningSum(KeyedProcessFunction):
    """Emits ``(key, sum so far)`` for records ``(key, number)``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield ctx.get_current_key(), total


class History(KeyedProcessFunction):
    """Emits ``(key, all numbers so far)``: tells any reordering."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, tuple[int, ...]]]:
        self.seen.add(value[1])
        yield ctx.get_current_key(), tuple(self.seen)


class Failing(RunningSum):
    """Raises for one record."""

    def __init__(self, fatal: int) -> None:
        self.fatal = fatal

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fatal:
            raise LookupError(f"cannot stand {value[1]}")
        yield from super().process_element(value, ctx)


class Journal(RunningSum, CheckpointedFunction):
    """A running sum that keeps every number it saw in operator state too; ``fatal`` makes it raise."""

    def __init__(self, fatal: int | None = None) -> None:
        self.fatal = fatal

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.journal = store.get_list_state(ListStateDescriptor("journal", Types.LONG()))
        self.numbers = list(self.journal)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.journal.update(self.numbers)

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fatal:
            raise LookupError(f"cannot stand {value[1]}")
        self.numbers.append(value[1])
        yield from super().process_element(value, ctx)


def running_sums(records: list[tuple[Any, int]]) -> list[tuple[Any, int]]:
    """What RunningSum emits, by a plain loop."""
    sums: dict[Any, int] = {}
    emitted = []
    for key, number in records:
        sums[key] = sums.get(key, 0) + number
        emitted.append((key, sums[key]))
    return emitted
