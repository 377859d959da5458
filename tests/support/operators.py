"""Operators that the Spark tests run. Spark's workers import them by this module's name."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
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

#: No checkpoint of a test takes so long.
PATIENCE_S = 60


class RunningSum(KeyedProcessFunction):
    """Emits ``(key, sum so far)`` for records ``(key, number)``."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield ctx.get_current_key(), total


class FailsOnce(RunningSum):
    """A running sum whose first run fails after some records."""

    def __init__(self, flag: Path) -> None:
        self.flag = flag
        self.records = 0

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        self.records += 1
        if self.records == 60 and not self.flag.exists():
            self.flag.touch()
            raise ValueError("once")
        yield from super().process_element(value, ctx)


class History(KeyedProcessFunction):
    """Emits ``(key, all numbers so far)``: tells any reordering."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen"))

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, tuple[int, ...]]]:
        self.seen.add(value[1])
        yield ctx.get_current_key(), tuple(self.seen)


def await_output(output: Path) -> None:
    """Wait until an epoch is committed, so that a checkpoint is complete."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not any(output.glob("epoch=*")) and time.monotonic() < deadline_s:
        threading.Event().wait(0.02)


def fail_at(number: int, output: Path | None) -> None:
    """Raise; with ``output`` not before an epoch is committed there."""
    if output is not None:
        await_output(output)
    raise LookupError(f"cannot stand {number}")


class Failing(RunningSum):
    """Raises for one record; with ``output`` not before there is a checkpoint to go back to."""

    def __init__(self, fatal: int, output: Path | None = None) -> None:
        self.fatal = fatal
        self.output = output

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fatal:
            fail_at(self.fatal, self.output)
        yield from super().process_element(value, ctx)


class Journal(RunningSum, CheckpointedFunction):
    """A running sum that keeps every number it saw in operator state too; it may fail as `Failing` does."""

    def __init__(self, fatal: int | None = None, output: Path | None = None) -> None:
        self.fatal = fatal
        self.output = output

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        self.journal = store.get_list_state(ListStateDescriptor("journal", Types.LONG()))
        self.numbers = list(self.journal)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.journal.update(self.numbers)

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fatal:
            fail_at(value[1], self.output)
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


def rows_in(folder: Path) -> Counter[str]:
    """Return the rows that a job has committed to files of JSON lines."""
    return Counter(row for file in folder.glob("epoch=*/*.jsonl") for row in file.read_text().splitlines())


class PaddedSum(KeyedProcessFunction):
    """A running sum whose state is 1 KB for each key; it fails at a number."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.fails_at = fails_at

    def open(self, runtime_context: RuntimeContext) -> None:
        padded = Types.TUPLE([Types.LONG(), Types.STRING()])
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", padded))

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fails_at:
            raise ValueError(f"at {self.fails_at}")
        total = value[1] + (self.sum.value() or (0,))[0]
        self.sum.update((total, "x" * 1000))
        yield ctx.get_current_key(), total
