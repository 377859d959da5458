"""The types that programs declare for results, side outputs and the records of sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from local_environment import local_environment

from pyflinkstate.api import (
    AsyncFunction,
    BroadcastProcessFunction,
    CoMapFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    Row,
    RowTypeInfo,
    Time,
    TypeInformation,
    Types,
    WindowFunction,
)
from pyflinkstate.datastream import AsyncDataStream
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.plan import CHECK, SourceNode
from pyflinkstate.runtime.program import DataStream, StreamExecutionEnvironment
from pyflinkstate.runtime.sources import CollectionSource, NumberSequenceSource
from pyflinkstate.testing import OneInputOperatorHarness

FIELDS = [Types.STRING(), Types.LONG()]
ROW = RowTypeInfo(FIELDS)
MUST_BE = r"must be made by Types, such as Types\.LONG\(\), not "
STATE = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Own(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        yield value


class OwnKeyed(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


class OwnOfBoth(CoMapFunction):
    def map1(self, value: Any) -> Any:
        return value

    map2 = map1


class OwnOfWindow(WindowFunction):
    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        return list(inputs)


class OwnLater(AsyncFunction):
    async def async_invoke(self, value: Any) -> Any:
        return [value]


class OwnOfBroadcast(BroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Any:
        yield value


def own(value: Any) -> Any:
    return value


#: The calls that take an ``output_type``.
CALLS: dict[str, Callable[[DataStream, Any], DataStream]] = {
    "map": lambda stream, declared: stream.map(own, declared),
    "flat_map": lambda stream, declared: stream.flat_map(own, declared),
    "process": lambda stream, declared: stream.process(Own(), declared),
    "keyed map": lambda stream, declared: stream.key_by(own).map(own, declared),
    "keyed process": lambda stream, declared: stream.key_by(own).process(OwnKeyed(), declared),
    "connected map": lambda stream, declared: stream.connect(stream).map(OwnOfBoth(), declared),
    "broadcast process": lambda stream, declared: stream.connect(stream.broadcast(STATE)).process(
        OwnOfBroadcast(), declared
    ),
    "window": lambda stream, declared: stream.key_by(own).count_window(2).apply(OwnOfWindow(), declared),
    "ordered_wait": lambda stream, declared: AsyncDataStream.ordered_wait(
        stream, OwnLater(), Time.seconds(1), output_type=declared
    ),
    "unordered_wait": lambda stream, declared: AsyncDataStream.unordered_wait(
        stream, OwnLater(), Time.seconds(1), output_type=declared
    ),
}
NO_TYPES = [int, "LONG", [int], [Types.LONG(), None], (Types.LONG(),)]


def stream() -> DataStream:
    env: Any = None
    return DataStream(env, SourceNode(CollectionSource([]), "source"))


class TestOutputTypes:
    @pytest.mark.parametrize("call", CALLS)
    def test_a_list_of_types_stands_for_a_row_as_in_pyflink(self, call: str) -> None:
        assert CALLS[call](stream(), FIELDS).get_type() == ROW
        assert CALLS[call](stream(), ROW).get_type() == ROW
        assert CALLS[call](stream(), None).get_type() == Types.PICKLED_BYTE_ARRAY()

    @pytest.mark.parametrize("declared", NO_TYPES)
    @pytest.mark.parametrize("call", CALLS)
    def test_what_is_neither_is_refused(self, call: str, declared: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"^output_type {MUST_BE}"):
            CALLS[call](stream(), declared)

    def test_results_are_rows(self) -> None:
        declared: Any = FIELDS
        harness = OneInputOperatorHarness(Own(), output_type=declared)
        assert harness.process_element(("a", 1)) == [Row(f0="a", f1=1)]

    def test_a_harness_refuses_what_is_no_type(self) -> None:
        declared: Any = int
        with pytest.raises(ConfigurationError, match=f"^output_type {MUST_BE}<class 'int'>"):
            OneInputOperatorHarness(Own(), output_type=declared)


class TestSideOutputs:
    def test_a_list_of_types_stands_for_a_row_as_in_pyflink(self) -> None:
        declared: Any = FIELDS
        tag = OutputTag("late", declared)
        assert tag.type_info == ROW
        assert stream().process(Own()).get_side_output(tag).get_type() == ROW

    @pytest.mark.parametrize("declared", NO_TYPES)
    def test_what_is_neither_is_refused(self, declared: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"^OutputTag 'late': type_info {MUST_BE}"):
            OutputTag("late", declared)


class TestSources:
    @pytest.fixture
    def env(self, monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
        return local_environment(monkeypatch)

    def test_records_are_converted_to_the_declared_type(self, env: StreamExecutionEnvironment) -> None:
        declared = Types.ROW_NAMED(["name", "n"], FIELDS)
        source = CollectionSource([("a", 1), {"name": "b", "n": 2}])
        stream = env.from_source(source, source_name="pairs", type_info=declared)
        assert stream.get_type() == declared
        assert list(stream.execute_and_collect()) == [Row(name="a", n=1), Row(name="b", n=2)]

    def test_a_record_that_does_not_fit_fails_the_job(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(CollectionSource([1, "x"]), source_name="numbers", type_info=Types.LONG())
        doubled = stream.map(own)
        with pytest.raises(
            BadRecordError,
            match=r"operator 'numbers': a record does not fit type_info: .*LONG[\s\S]*record 'x'",
        ):
            list(doubled.execute_and_collect())

    def test_each_reader_gets_checked_records(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(CollectionSource([("a", 1)]), type_info=ROW)
        both = stream.map(own).union(stream.filter(bool).map(own))
        assert list(both.execute_and_collect()) == [Row(f0="a", f1=1)] * 2

    @pytest.mark.parametrize(
        ("declared", "kinds"),
        [
            (None, []),
            (Types.LONG(), []),
            (Types.INT(), [CHECK]),
        ],
    )
    def test_a_source_that_declares_its_type_itself_is_not_checked(
        self, env: StreamExecutionEnvironment, declared: TypeInformation | None, kinds: list[str]
    ) -> None:
        stream = env.from_source(NumberSequenceSource(1, 2), type_info=declared)
        assert stream.get_type() == (declared or Types.LONG())
        node = stream.node
        assert isinstance(node, SourceNode)
        assert [operator.kind for operator in node.operators()] == kinds

    @pytest.mark.parametrize("declared", [int, "LONG", FIELDS])
    def test_what_is_no_type_is_refused(self, env: StreamExecutionEnvironment, declared: Any) -> None:
        with pytest.raises(ConfigurationError, match=f"^type_info {MUST_BE}"):
            env.from_source(CollectionSource([1]), type_info=declared)
