"""Functions that the tests run in real state slots; a slot imports this file, so it imports little."""

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
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointedFunction,
    CheckpointListener,
    CoMapFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    Partitioner,
    ProcessFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
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


# --- where records go ------------------------------------------------------------------------------

ODD = OutputTag("odd")


def same(value: Any) -> Any:
    """The value."""
    return value


class Place(MapFunction):
    """Gives each record with the subtask that it is in, and how many there are."""

    def open(self, runtime_context: Any) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def map(self, value: Any) -> Any:
        return value, self.subtask, self.parallelism


class Places(CoMapFunction):
    """The same for two inputs."""

    def open(self, runtime_context: Any) -> None:
        self.place = Place()
        self.place.open(runtime_context)

    def map1(self, value: Any) -> Any:
        return self.place.map(value)

    def map2(self, value: Any) -> Any:
        return self.place.map(value)


class OddsAside(ProcessFunction):
    """Gives odd numbers to a side output."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield (ODD, value) if value % 2 else value


class OfItsSubtask(Partitioner):
    """A rich partitioner, which goes by where it runs."""

    def open(self, runtime_context: Any) -> None:
        self.parallelism = runtime_context.get_number_of_parallel_subtasks()

    def partition(self, key: Any, num_partitions: int) -> int:
        return 1 if self.parallelism == 1 else 0


class Twice(FlatMapFunction):
    """Gives each record twice, and counts its calls."""

    calls: list[Any] = []  # noqa: RUF012 - the runner of the tests is in this process

    def flat_map(self, value: Any) -> Iterable[Any]:
        Twice.calls.append(value)
        return value, value


# --- functions without keys ------------------------------------------------------------------------


class Buffer(FlatMapFunction, CheckpointedFunction):
    """Holds records back, and gives those that it holds when there are enough of them."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.held: list[int] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        descriptor = ListStateDescriptor("held", Types.LONG())
        self.state = context.get_operator_state_store().get_list_state(descriptor)
        self.held = list(self.state.get() or ())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.held)

    def flat_map(self, value: int) -> Iterable[list[int]]:
        self.held.append(value)
        if len(self.held) >= self.enough:
            given, self.held = self.held, []
            yield given


class Where(MapFunction, CheckpointedFunction):
    """Says which subtask a record came to."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.place = runtime_context.get_index_of_this_subtask()

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        pass

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: int) -> tuple[int, int]:
        return self.place, value


# --- initial state ---------------------------------------------------------------------------------


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


# --- state that is edited --------------------------------------------------------------------------

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


# --- live state ------------------------------------------------------------------------------------


class CountRecords(KeyedProcessFunction):
    """How many records of its key came so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.count.update((self.count.value() or 0) + 1)
        return ()


class Mean(AggregateFunction):
    """The mean of numbers; the accumulator ``[sum, count]`` is changed in place."""

    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator[0] += value
        accumulator[1] += 1
        return accumulator

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: list[int], acc_b: list[int]) -> list[int]:
        return [acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]]


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
