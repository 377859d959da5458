"""Functions that the tests run in real state slots; a slot process imports this file, so it is small."""

from __future__ import annotations

import gc
import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyflinkstate import (
    CheckpointedFunction,
    CheckpointListener,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    RuntimeContext,
    ValueStateDescriptor,
)


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


class FillsMemory(KeyedProcessFunction):
    """Keeps as many bytes as a record says, and never returns."""

    def process_element(self, value: tuple[str, int], ctx: KeyedProcessFunction.Context) -> None:
        self.kept = bytearray(b"\x01") * value[1]
        threading.Event().wait()


class TellOfCollector(KeyedProcessFunction):
    """Gives the thresholds of Python's garbage collector at the time when it was opened."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.thresholds = gc.get_threshold()

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield self.thresholds


class KeyedAside(KeyedProcessFunction):
    """Gives every record back, on a side output."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        return ((OutputTag("aside"), value),)


class KeyedPrints(KeyedProcessFunction):
    """Prints every record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        print(f"saw {value}")
        return ()


class Chatter(KeyedProcessFunction):
    """Prints and logs in every way, and gives every record back."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        print(f"printed {value}", flush=True)
        print(f"warned {value}", file=sys.stderr, flush=True)
        logging.getLogger("users.code").error("logged %s", value)
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


class Exits:
    """A value that ends whoever copies or pickles it."""

    def __init__(self, when: str) -> None:
        self.when = when

    def __deepcopy__(self, memo: Any) -> Exits:
        return sys.exit(2) if self.when == "exits when copied" else self

    def __reduce__(self) -> Any:
        return sys.exit(3)


class Ledger(KeyedProcessFunction, CheckpointedFunction):
    """Keeps the keys that its subtask has seen, and gives them all for each record.

    ``trouble`` is what it does wrong: in ``initialize_state``, or at checkpoint 1.
    """

    def __init__(self, trouble: str = "") -> None:
        self.trouble = trouble

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if self.trouble == "initialize":
            raise ConnectionRefusedError("the ledger is locked")
        self.restored = context.get_restored_checkpoint_id()
        self.timestamps = list(context.get_raw_operator_state_inputs())
        self.seen = context.get_operator_state_store().get_list_state(ListStateDescriptor("seen"))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.seen.update([key for key in self.seen.get() if isinstance(key, str)])
        context.get_raw_operator_state_output().write(b"%d" % context.get_checkpoint_timestamp())
        if context.get_checkpoint_id() != 1:
            return
        if self.trouble == "raise":
            raise ConnectionResetError("the ledger is full")
        if self.trouble == "exit":
            sys.exit(1)
        if self.trouble == "cannot be pickled":
            self.seen.add(lambda: 0)
        if self.trouble == "cannot be copied":
            self.seen.add(threading.Lock())
        if self.trouble in ("exits when copied", "exits when pickled"):
            self.seen.add(Exits(self.trouble))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.seen.add(ctx.get_current_key())
        yield self.restored, self.timestamps, [key for key in self.seen.get() if isinstance(key, str)]


class Basket(KeyedProcessFunction):
    """Keeps a value, a map and a list for each key; an amount of 0 clears them."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))
        self.items = runtime_context.get_map_state(MapStateDescriptor("items"))
        self.amounts = runtime_context.get_list_state(ListStateDescriptor("amounts"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        key, item, amount = value
        if amount == 0:
            self.total.clear()
            self.items.clear()
            self.amounts.clear()
        elif amount < 0:
            self.items.remove(item)
        else:
            self.total.update((self.total.value() or 0) + amount)
            self.items.put(item, amount)
            self.amounts.add(amount)
        amounts = tuple(self.amounts.get() or ())
        yield key, self.total.value(), tuple(sorted(self.items.items())), amounts


class Deadly:
    """A value that cannot be written: whoever tries fails, or is killed when ``gate``, a FIFO, is opened."""

    def __init__(self, gate: str | None) -> None:
        self.gate = gate

    def __deepcopy__(self, memo: Any) -> Deadly:
        return self

    def __reduce__(self) -> Any:
        if self.gate is not None:
            os.open(self.gate, os.O_RDONLY)
            os.kill(os.getpid(), signal.SIGKILL)
        raise TypeError("nobody can write this")


class Poisoned(Count):
    """Counts, and where a record is ``"poison"`` keeps a deadly value until the key's next record."""

    def __init__(self, gate: str | None = None) -> None:
        super().__init__()
        self.gate = gate

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        results = list(super().process_element(value, ctx))
        if value[1] == "poison" and self.get_runtime_context().get_attempt_number() == 0:
            self.count.update((results[0][1], Deadly(self.gate)))
        return results


class HearOfCheckpoints(Echo, CheckpointListener):
    """Writes a line for each notification, and may fail in one."""

    def __init__(self, path: str, fails_at: int | None = None) -> None:
        self.path, self.fails_at = path, fails_at

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.note(f"complete {checkpoint_id}")
        if checkpoint_id == self.fails_at:
            raise TimeoutError("the index cannot be switched")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.note(f"aborted {checkpoint_id}")

    def close(self) -> None:
        self.note("closed")

    def note(self, line: str) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{line}\n")


class BacktrackForEver(KeyedProcessFunction):
    """Keeps the interpreter lock until its process ends; opens a named pipe before."""

    def __init__(self, told: str) -> None:
        self.told = told

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        with open(self.told, "w") as pipe:
            pipe.write("now\n")
        re.match(r"(a+)+$", "a" * 100 + "b")
        yield value


class BacktrackAWhile(KeyedProcessFunction):
    """Keeps the interpreter lock for some hundred milliseconds."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        re.match(r"(a+)+$", "a" * 22 + "b")
        yield value


class ForkAndStay(KeyedProcessFunction):
    """Forks a child that outlives the slot, and gives its process id."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        child = os.fork()
        if child == 0:
            signal.pause()
        yield child


def forty_two() -> int:
    return 42


class MapMeasured(MapFunction):
    """Counts the records of its task."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_metrics_group().counter("seen")

    def map(self, value: Any) -> Any:
        self.count.inc()
        return value


class KeyedMeasured(KeyedProcessFunction):
    """Counts the records of its subtask, and has a gauge."""

    def __init__(self, gauge: Callable[[], Any] = forty_two) -> None:
        self.gauge = gauge

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.count = group.counter("seen")
        group.add_group("own").gauge("answer", self.gauge)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.count.inc()
        return (value,)
