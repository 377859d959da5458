"""What type a stream has: that of its source, or the one that the program declares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from local_environment import local_environment
from pass_through import AllWindow, Async, Broadcast, CoMap, KeyedProcess, Process, Window, same

from pyflinkstate.api import (
    MapStateDescriptor,
    OutputTag,
    Row,
    RowTypeInfo,
    Time,
    TumblingEventTimeWindows,
    TypeInformation,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.datastream import AsyncDataStream
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import Projection
from pyflinkstate.runtime.plan import (
    CHECK,
    WATERMARKS,
    ChainNode,
    SideOutputNode,
    SourceNode,
    StatefulNode,
    UnionNode,
)
from pyflinkstate.runtime.program import DataStream, StreamExecutionEnvironment
from pyflinkstate.runtime.program.user_functions import check_same_type, converted_at_source, type_of
from pyflinkstate.runtime.sources import CollectionSource, NumberSequenceSource
from pyflinkstate.testing import OneInputOperatorHarness

PAIR = Types.TUPLE([Types.STRING(), Types.FLOAT()])
PICKLED = Types.PICKLED_BYTE_ARRAY()
SOURCE = SourceNode(CollectionSource([]), "source", PAIR)


def keyed(**settings: Any) -> StatefulNode:
    return StatefulNode(SOURCE, hash, PICKLED, None, "keyed", **settings)


def test_what_gives_on_its_records_keeps_their_type() -> None:
    assert type_of(SOURCE) == PAIR
    assert type_of(ChainNode(SOURCE, "filter", bool, "filter")) == PAIR
    assert type_of(ChainNode(SOURCE, WATERMARKS, WatermarkStrategy.no_watermarks(), "w")) == PAIR
    assert type_of(UnionNode((SOURCE, SOURCE))) == PAIR
    assert type_of(keyed(keeps_type=True)) == PAIR


def test_what_makes_other_records_has_the_type_that_it_declares() -> None:
    for kind in ("map", "flat_map", "process"):
        assert type_of(ChainNode(SOURCE, kind, str, kind)) == PICKLED
        assert type_of(ChainNode(SOURCE, kind, str, kind, Types.STRING())) == Types.STRING()
    assert type_of(keyed()) == PICKLED
    assert type_of(keyed(output_type=Types.LONG(), keeps_type=True)) == Types.LONG()
    assert type_of(SideOutputNode(keyed(), "late", "late", Types.LONG())) == Types.LONG()
    assert type_of(SourceNode(CollectionSource([]), "source")) == PICKLED


class Environment:
    """What streams ask of theirs."""

    def get_parallelism(self) -> int:
        return 2


@pytest.mark.parametrize("is_keyed", [True, False])
def test_what_a_window_reduces_has_the_type_of_its_records_as_in_pyflink(is_keyed: bool) -> None:
    env: Any = Environment()
    stream, assigner = DataStream(env, SOURCE), TumblingEventTimeWindows.of(1000)
    windows: Any = stream.key_by(hash).window(assigner) if is_keyed else stream.window_all(assigner)
    function = Window() if is_keyed else AllWindow()
    assert windows.reduce(max).get_type() == PAIR
    assert windows.reduce(max, output_type=Types.STRING()).get_type() == Types.STRING()
    assert windows.reduce(max, function).get_type() == PICKLED
    assert windows.apply(function).get_type() == PICKLED


def test_a_projection_takes_the_types_of_its_fields() -> None:
    def projected(parent: Any, *indexes: int) -> Any:
        return type_of(ChainNode(parent, "map", Projection(indexes), "project"))

    assert projected(SOURCE, 1) == Types.TUPLE([Types.FLOAT()])
    assert projected(keyed(), 1) == PICKLED
    with pytest.raises(ConfigurationError, match=r"project\(2\)"):
        projected(SOURCE, 2)


def test_streams_of_different_types_are_no_union() -> None:
    check_same_type((SOURCE, SOURCE))
    numbers = SourceNode(CollectionSource([]), "numbers", Types.INT())
    strings = SourceNode(CollectionSource([]), "strings", Types.STRING())
    with pytest.raises(ConfigurationError, match="streams of different types: Integer and String"):
        check_same_type((numbers, strings))


@pytest.mark.parametrize(
    ("type_info", "record", "converted"),
    [
        (PAIR, ("a", 110.1), ("a", 110.0999984741211)),
        (Types.ROW([Types.FLOAT()]), (30.2,), Row(f0=30.200000762939453)),
        (Types.ROW_NAMED(["x", "y"], [Types.INT(), Types.STRING()]), (1, "a"), Row(x=1, y="a")),
        (Types.DOUBLE(), 110.1, 110.1),
    ],
)
def test_a_source_converts_what_stands_for_its_type(type_info: Any, record: Any, converted: Any) -> None:
    assert converted_at_source([record], type_info, "source") == [converted]


def test_a_record_that_does_not_fit_is_an_error_that_names_it() -> None:
    with pytest.raises(BadRecordError, match=r"operator 'collection'.*record \('a',\)"):
        converted_at_source([("a",)], PAIR, "collection")


# --- types that programs declare for results, side outputs and sources -------------------------------------


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
        node = stream._node
        assert isinstance(node, SourceNode)
        assert [operator.kind for operator in node.operators()] == kinds
