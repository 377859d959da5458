"""The types that programs declare for results, side outputs and the records of sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from local_environment import local_environment
from pass_through import Async, Broadcast, CoMap, KeyedProcess, Process, Window, same

from pyflinkstate.api import (
    MapStateDescriptor,
    OutputTag,
    Row,
    RowTypeInfo,
    Time,
    TypeInformation,
    Types,
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


#: The calls that take an ``output_type``.
CALLS: dict[str, Callable[[DataStream, Any], DataStream]] = {
    "map": lambda stream, declared: stream.map(same, declared),
    "flat_map": lambda stream, declared: stream.flat_map(same, declared),
    "process": lambda stream, declared: stream.process(Process(), declared),
    "keyed map": lambda stream, declared: stream.key_by(same).map(same, declared),
    "keyed process": lambda stream, declared: stream.key_by(same).process(KeyedProcess(), declared),
    "connected map": lambda stream, declared: stream.connect(stream).map(CoMap(), declared),
    "broadcast process": lambda stream, declared: stream.connect(stream.broadcast(STATE)).process(
        Broadcast(), declared
    ),
    "window": lambda stream, declared: stream.key_by(same).count_window(2).apply(Window(), declared),
    "ordered_wait": lambda stream, declared: AsyncDataStream.ordered_wait(
        stream, Async(), Time.seconds(1), output_type=declared
    ),
    "unordered_wait": lambda stream, declared: AsyncDataStream.unordered_wait(
        stream, Async(), Time.seconds(1), output_type=declared
    ),
}
NO_TYPES = [int, "LONG", [int], [Types.LONG(), None], (Types.LONG(),)]


NO_ENV: Any = None


def stream() -> DataStream:
    return DataStream(NO_ENV, SourceNode(CollectionSource([]), "source"))


class TestOutputTypes:
    @pytest.mark.parametrize("call", CALLS)
    def test_a_list_of_types_stands_for_a_row_as_in_pyflink(self, call: str) -> None:
        assert CALLS[call](stream(), FIELDS).get_type() == ROW
        assert CALLS[call](stream(), ROW).get_type() == ROW
        assert CALLS[call](stream(), None).get_type() == Types.PICKLED_BYTE_ARRAY()

    def test_results_are_rows(self) -> None:
        declared: Any = FIELDS
        harness = OneInputOperatorHarness(Process(), output_type=declared)
        assert harness.process_element(("a", 1)) == [Row(f0="a", f1=1)]


#: What takes a declared type, under which name, and what is none there.
TAKES: list[tuple[Callable[[Any], Any], str, list[Any]]] = [
    *(
        (lambda declared, call=call: call(stream(), declared), "output_type", NO_TYPES)
        for call in CALLS.values()
    ),
    (lambda declared: OneInputOperatorHarness(Process(), output_type=declared), "output_type", NO_TYPES),
    (lambda declared: OutputTag("late", declared), "OutputTag 'late': type_info", NO_TYPES),
    (
        lambda declared: StreamExecutionEnvironment.from_source(
            NO_ENV, CollectionSource([1]), type_info=declared
        ),
        "type_info",
        [int, "LONG", FIELDS],
    ),
]


@pytest.mark.parametrize(
    ("take", "name", "declared"), [(take, name, one) for take, name, no_types in TAKES for one in no_types]
)
def test_what_is_no_type_is_refused(take: Callable[[Any], Any], name: str, declared: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"^{name} {MUST_BE}"):
        take(declared)


class TestSideOutputs:
    def test_a_list_of_types_stands_for_a_row_as_in_pyflink(self) -> None:
        declared: Any = FIELDS
        tag = OutputTag("late", declared)
        assert tag.type_info == ROW
        assert stream().process(Process()).get_side_output(tag).get_type() == ROW


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
        doubled = stream.map(same)
        with pytest.raises(
            BadRecordError,
            match=r"operator 'numbers': a record does not fit type_info: .*LONG[\s\S]*record 'x'",
        ):
            list(doubled.execute_and_collect())

    def test_each_reader_gets_checked_records(self, env: StreamExecutionEnvironment) -> None:
        stream = env.from_source(CollectionSource([("a", 1)]), type_info=ROW)
        both = stream.map(same).union(stream.filter(bool).map(same))
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
