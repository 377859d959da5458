"""Classes take parameters for type checkers; at run time these change nothing."""

from __future__ import annotations

import pickle
from collections.abc import Iterable

import cloudpickle
import pytest

from pyflinkstate import (
    AggregatingStateDescriptor,
    ConnectedStreams,
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ReducingStateDescriptor,
    ValueStateDescriptor,
    WindowedStream,
)
from pyflinkstate.api import ListTypeInfo, Types, basic_types, functions, state
from pyflinkstate.testing import KeyedOneInputOperatorHarness

#: Each with its number of parameters.
GENERIC: list[tuple[type, int]] = [
    (state.ValueState, 1),
    (state.ListState, 1),
    (state.MapState, 2),
    (state.ReducingState, 1),
    (state.AggregatingState, 2),
    (state.BroadcastState, 2),
    (state.ReadOnlyBroadcastState, 2),
    (ValueStateDescriptor, 1),
    (ListStateDescriptor, 1),
    (MapStateDescriptor, 2),
    (ReducingStateDescriptor, 1),
    (AggregatingStateDescriptor, 3),
    (basic_types.TypeInformation, 1),
    (OutputTag, 1),
    (functions.MapFunction, 2),
    (functions.FlatMapFunction, 2),
    (functions.FilterFunction, 1),
    (functions.KeySelector, 2),
    (functions.Partitioner, 1),
    (functions.ReduceFunction, 1),
    (functions.AggregateFunction, 3),
    (functions.ProcessFunction, 2),
    (functions.KeyedProcessFunction, 3),
    (functions.KeyedProcessFunction.Context, 1),
    (functions.KeyedProcessFunction.OnTimerContext, 1),
    (functions.CoMapFunction, 3),
    (functions.CoFlatMapFunction, 3),
    (functions.CoProcessFunction, 3),
    (functions.KeyedCoProcessFunction, 4),
    (functions.BroadcastProcessFunction, 3),
    (functions.KeyedBroadcastProcessFunction, 4),
    (functions.ProcessWindowFunction, 4),
    (DataStream, 1),
    (KeyedStream, 2),
    (ConnectedStreams, 2),
    (WindowedStream, 3),
]


@pytest.mark.parametrize(("cls", "count"), GENERIC, ids=lambda value: getattr(value, "__qualname__", ""))
def test_as_many_parameters_as_in_java(cls: type, count: int) -> None:
    parameters = (int,) * count if count > 1 else int
    assert cls[parameters].__origin__ is cls  # type: ignore[index]
    with pytest.raises(TypeError):
        cls[(int,) * (count + 1)]  # type: ignore[index]


def test_what_is_made_with_parameters_is_what_is_made_without() -> None:
    descriptor, made = ValueStateDescriptor[int]("value", Types.LONG()), ListTypeInfo[int](Types.LONG())
    assert descriptor == ValueStateDescriptor("value", Types.LONG())
    assert made == Types.LIST(Types.LONG())
    assert pickle.loads(pickle.dumps((descriptor, made))) == (descriptor, made)


class Echo(KeyedProcessFunction[str, str, str]):
    def process_element(self, value: str, ctx: KeyedProcessFunction.Context[str]) -> Iterable[str]:
        yield value


def test_a_function_with_parameters_is_pickled_by_name_or_by_value() -> None:
    class Local(Echo):
        def process_element(self, value: str, ctx: KeyedProcessFunction.Context[str]) -> Iterable[str]:
            yield f"{ctx.get_current_key()}: {value}"

    assert type(pickle.loads(pickle.dumps(Echo()))) is Echo
    copy = cloudpickle.loads(cloudpickle.dumps(Local()))
    assert isinstance(copy, KeyedProcessFunction)
    harness = KeyedOneInputOperatorHarness(copy, lambda value: value[0])
    assert harness.process_element("ann") == ["a: ann"]
