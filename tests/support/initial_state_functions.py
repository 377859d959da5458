"""Functions with initial state that tests run in real state slots; a slot process imports this file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyflinkstate import KeyedProcessFunction, OutputTag, RuntimeContext, Types, ValueStateDescriptor

ODD = OutputTag("odd")


class SeededSums(KeyedProcessFunction):
    """Emits the sum so far of the records of a key, ``(key, n)``, which begins with that of its initial rows.

    Odd numbers also go to a side output. ``fails_once`` is a file: if it is there, the slot that takes the
    third initial row removes it and dies.
    """

    def __init__(self, fails_once: str | None = None) -> None:
        self.fails_once = fails_once
        self.rows = 0

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def handle_initial_state(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.rows += 1
        if self.fails_once is not None and self.rows == 3 and _remove(Path(self.fails_once)):
            os.kill(os.getpid(), signal.SIGKILL)
        self.sum.update((self.sum.value() or 0) + value[1])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        total = (self.sum.value() or 0) + value[1]
        self.sum.update(total)
        yield value[0], total
        if value[1] % 2:
            yield ODD, (value[0], value[1])


def _remove(path: Path) -> bool:
    """Remove a file, and return whether it was there: of several only one finds it."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


class Reminded(KeyedProcessFunction):
    """Has an event-time timer for each initial row, ``(key, time)``, and emits it with the watermark."""

    def handle_initial_state(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[1])

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value[0], value[2], ctx.timer_service().current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), "timer", timestamp
