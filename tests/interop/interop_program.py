"""The program that the tests run on Flink and here; ``flink/Program.java`` is the same in Java.

It uses PyFlink's names only: for PyFlink, ``pyflinkstate`` is replaced by ``pyflink`` in its imports.
A record is (timestamp, key, number). Each output begins with a name and a key, and the order of those with
the same name and key is defined.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflinkstate.common import Time, Types
from pyflinkstate.datastream import DataStream, RuntimeContext, TimeDomain
from pyflinkstate.datastream.functions import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from pyflinkstate.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflinkstate.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows

#: The beginning of the clock, from which the timers of processing time count.
CLOCK_MS = 1700000000000
RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])

Record = tuple[int, int, int]


class Sum(ReduceFunction):
    def reduce(self, left: int, right: int) -> int:
        return left + right


class Mean(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return (0, 0)

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int]:
        return (left[0] + right[0], left[1] + right[1])


def expiring(name: str, time: Time) -> ValueStateDescriptor:
    """Return the descriptor of a state with time to live."""
    descriptor = ValueStateDescriptor(name, Types.LONG())
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(time).build())
    return descriptor


class Kinds(KeyedProcessFunction):
    """The five kinds of state, time to live, and timers in both domains."""

    def open(self, context: RuntimeContext) -> None:
        self.value = context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list = context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.LONG()))
        self.reducing = context.get_reducing_state(ReducingStateDescriptor("reducing", Sum(), Types.LONG()))
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        self.aggregating = context.get_aggregating_state(
            AggregatingStateDescriptor("aggregating", Mean(), pair)
        )
        self.hour = context.get_state(expiring("hour", Time.hours(1)))
        self.day = context.get_state(expiring("day", Time.days(1)))

    def process_element(self, record: Record, context: KeyedProcessFunction.Context) -> Iterable[str]:
        time, key, added = record
        self.list.add(added)
        self.map.put(f"m{added % 3}", added)
        self.reducing.add(added)
        self.aggregating.add(added)
        fields: list[object] = [
            "kinds",
            key,
            shown(self.value.value()),
            len(list(self.list.get())),
            " ".join(f"{name}={number}" for name, number in sorted(self.map.items())),
            self.reducing.get(),
            f"{self.aggregating.get():.3f}",
            shown(self.hour.value()),
            shown(self.day.value()),
        ]
        self.value.update(added)
        self.hour.update(added)
        self.day.update(added)
        context.timer_service().register_event_time_timer(time + 1000)
        context.timer_service().register_processing_time_timer(CLOCK_MS + added)
        yield ",".join(map(str, fields))

    def on_timer(self, timestamp: int, context: KeyedProcessFunction.OnTimerContext) -> Iterable[str]:
        name = "event" if context.time_domain() == TimeDomain.EVENT_TIME else "clock"
        yield f"{name},{context.get_current_key()},{timestamp},{self.value.value()}"


def shown(value: int | None) -> str:
    """Return a state's value as text."""
    return "-" if value is None else str(value)


class WindowSum(ProcessWindowFunction):
    """The sum of a window's numbers."""

    def __init__(self, name: str) -> None:
        self.name = name

    def process(
        self, key: str, context: ProcessWindowFunction.Context, records: Iterable[Record]
    ) -> Iterable[str]:
        window = context.window()
        yield f"{self.name},{key},{window.start},{window.end},{sum(record[2] for record in records)}"


def parsed(line: str) -> Record:
    """Return the record of a line."""
    time, key, number = map(int, line.split(","))
    return time, key, number


def build(lines: DataStream, with_sessions: bool = True) -> DataStream:
    """Return the outputs of the program.

    Args:
        lines: the records as text.
        with_sessions: whether there are session windows, which Flink 2.3 cannot snapshot in thread mode.
    """
    records: Any = lines.map(parsed, RECORD).set_parallelism(1)
    named = records.key_by(lambda record: f"key {record[1]}", Types.STRING())
    kinds = (
        records.key_by(lambda record: record[1], Types.LONG()).process(Kinds(), Types.STRING()).uid("kinds")
    )
    tumbling = (
        named.window(TumblingEventTimeWindows.of(Time.seconds(10)))
        .reduce(
            lambda left, right: (left[0], left[1], left[2] + right[2]),
            window_function=WindowSum("tumbling"),
            output_type=Types.STRING(),
        )
        .uid("tumbling")
    )
    if not with_sessions:
        return kinds.union(tumbling)
    sessions = (
        named.window(EventTimeSessionWindows.with_gap(Time.seconds(10)))
        .process(WindowSum("sessions"), Types.STRING())
        .uid("sessions")
    )
    return kinds.union(tumbling, sessions)
