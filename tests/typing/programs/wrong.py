"""What checkers must find: each line that ends in ``# wrong`` has a fault, and no other line has one."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import DataFrame
from typing_extensions import TypeIs

import pyflinkstate
from pyflinkstate import (
    Available,
    DataStream,
    Epoch,
    KeyedStream,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    Offset,
    ProcessFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    Source,
    StreamExecutionEnvironment,
    TypeInformation,
    Types,
    ValueState,
    ValueStateDescriptor,
    check_position,
    keyed_map,
    keyed_process,
)
from pyflinkstate.common import Time
from pyflinkstate.datastream import CoMapFunction, KeyedProcessFunction, KeySelector
from pyflinkstate.datastream.window import EventTimeSessionWindows, EventTimeTrigger

misspelt = pyflinkstate.KeydStream  # wrong

Order = tuple[str, int]


def states(context: RuntimeContext) -> None:
    value = context.get_state(ValueStateDescriptor("value", Types.LONG()))
    value.update("text")  # wrong
    text: str | None = value.value()  # wrong
    print(text)
    other: ValueState[str] = context.get_state(ValueStateDescriptor[int]("other", Types.LONG()))  # wrong
    print(other)

    elements = context.get_list_state(ListStateDescriptor("elements", Types.STRING()))
    elements.add(1)  # wrong
    elements.add_all([1, 2])  # wrong

    entries = context.get_map_state(MapStateDescriptor("entries", Types.STRING(), Types.LONG()))
    entries.put(1, 1)  # wrong
    entries.put("key", "value")  # wrong
    entries["key"] = b"value"  # wrong

    reduced = context.get_reducing_state(ReducingStateDescriptor("reduced", add, Types.LONG()))
    reduced.add("text")  # wrong

    context.get_list_state(ValueStateDescriptor("value", Types.LONG()))  # wrong


def types() -> None:
    pairs: TypeInformation[dict[str, int]] = Types.MAP(Types.LONG(), Types.LONG())  # wrong
    print(pairs)
    ValueStateDescriptor("value", int)  # wrong
    ValueStateDescriptor[str]("value", Types.LONG())  # wrong


def add(one: int, other: int) -> int:
    return one + other


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class Bytes(MapFunction[str, bytes]):
    def map(self, value: str) -> str:  # wrong
        return value


class Spend(KeyedProcessFunction[str, Order, str]):
    def process_element(self, value: Order, ctx: KeyedProcessFunction.Context[str]) -> Iterable[str]:
        number: int = ctx.get_current_key()  # wrong
        print(number)
        yield value[1]  # wrong


class Names(ProcessFunction[str, str]):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterable[str]:
        yield value


class ByNumber(KeySelector[int, int]):
    def get_key(self, value: int) -> int:
        return value


class Evens(Source):
    def initial_offset(self) -> Offset:
        return 0

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        check_position(start, ["step"], "evens")  # wrong
        return Available(start)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        return [start, end]  # wrong


class NoSink:
    def commit(self, epoch: int) -> None: ...


class Join(CoMapFunction[str, str, str]):
    def map1(self, value: str) -> str:
        return value

    def map2(self, value: str) -> str:
        return value


def is_number(value: int | object) -> TypeIs[int]:
    return isinstance(value, int)


def is_small(value: int) -> bool:
    return value < 10


def streams(env: StreamExecutionEnvironment) -> None:
    orders = env.from_collection([("ann", 1), ("bob", 2)])
    numbers = orders.map(lambda order: order[1])
    numbers.map(Length())  # wrong
    numbers.map(Length()).map(Length())  # wrong
    words: DataStream[str] = numbers.map(lambda number: number + 1)  # wrong
    numbers.filter(lambda number: number.upper() == "A")  # wrong
    words.filter(is_small)  # wrong
    mixed: DataStream[int | str] = env.from_collection([1, "a"])
    mixed.filter(is_number).map(Length())  # wrong
    numbers.process(Names())  # wrong
    orders.key_by(ByNumber())  # wrong
    by_number = numbers.key_by(lambda number: number)
    by_number.process(Spend())  # wrong
    orders.key_by(lambda order: order[1]).process(Spend())  # wrong
    by_name: KeyedStream[str, Order] = orders.key_by(lambda order: order[1])  # wrong
    by_name.reduce(add)  # wrong
    words.connect(numbers).map(Join())  # wrong
    env.from_collection(["a"]).union(numbers)  # wrong
    windows = orders.key_by(lambda order: order[0]).window(EventTimeSessionWindows.with_gap(Time.seconds(1)))
    windows.reduce(add)  # wrong
    orders.key_by(lambda order: order[0]).count_window(5).trigger(EventTimeTrigger())  # wrong
    largest: DataStream[int] = windows.reduce(lambda one, other: max(one, other))  # wrong
    numbers.sink_to(NoSink())  # wrong
    print(by_name, largest)


def frames(df: DataFrame) -> None:
    keyed_process(df, key="user", function=Spend(), schema="n long", paralelism=2)  # wrong
    keyed_process(df, key="user", function=Spend(), schema="n long", parallelism="2")  # wrong
    keyed_process(df, key="user", function=Spend())  # wrong
    keyed_process(df, key="user", function=Spend(), schema=5)  # wrong
    keyed_map(df, "user", lambda key, rows, state: [], 5)  # wrong
    keyed_map(5, "user", lambda key, rows, state: [], "n long")  # wrong
    keyed_map(df, "user", lambda key, rows, state: [], "n long", watermark="1 minute")  # wrong
