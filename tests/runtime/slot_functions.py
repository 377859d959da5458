"""Functions that the tests run in real state slots; a slot process imports this file, so it is small."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.descriptors import ValueStateDescriptor
from pyflinkstate.api.functions import KeyedProcessFunction


class Count(KeyedProcessFunction):
    """How many records of its key came so far, with padding that no compression removes."""

    def __init__(self, padding: bytes = b"") -> None:
        self.padding = padding

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        number = (self.count.value() or (0,))[0] + 1
        self.count.update((number, self.padding))
        yield ctx.get_current_key(), number


class Echo(KeyedProcessFunction):
    """Gives every record back."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return (value,)


class Divide(KeyedProcessFunction):
    """Fails on zero."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield 12 / value[1]


class GiveUnpicklable(KeyedProcessFunction):
    """Gives what cannot travel."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return (threading.Lock(),)


class Whoami(KeyedProcessFunction):
    """Tells its runtime context."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        context = self.get_runtime_context()
        yield (
            context.get_task_name_with_subtasks(),
            context.get_max_number_of_parallel_subtasks(),
            context.get_attempt_number(),
        )


class FailToOpen(KeyedProcessFunction):
    """Has no luck with its resources."""

    def open(self, runtime_context: RuntimeContext) -> None:
        raise ConnectionRefusedError("the database is down")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        return None


class FailToUnpickle(Echo):
    """Cannot be made anew where it arrives."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _refuse, ()


def _refuse() -> None:
    raise ModuleNotFoundError("No module named 'only_on_the_driver'")


class TellOfClose(Echo):
    """Writes a file in ``close``, and then may fail."""

    def __init__(self, path: str, fails: bool = False) -> None:
        self.path, self.fails = path, fails

    def close(self) -> None:
        with Path(self.path).open("a") as file:
            file.write("closed\n")
        if self.fails:
            raise TimeoutError("flush took too long")
