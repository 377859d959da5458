"""Functions of each kind that give on what they get, for tests of what is around them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyflinkstate.api import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedProcessFunction,
    MapFunction,
    ProcessFunction,
    WindowFunction,
)


def same(value: Any) -> Any:
    return value


class Map(MapFunction):
    def map(self, value: Any) -> Any:
        return value


class Process(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value


class KeyedProcess(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value


class CoMap(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class Window(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return list(inputs)


class AllWindow(AllWindowFunction):
    def apply(self, window: Any, inputs: Any) -> Any:
        return list(inputs)


class Count(AggregateFunction):
    """Counts values; a subclass may say what is added for each."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> Any:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


class Async(AsyncFunction):
    async def async_invoke(self, value: Any) -> Any:
        return [value]


class Broadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value
