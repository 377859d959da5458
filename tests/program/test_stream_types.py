"""What type a stream has, and what a source makes of records."""

from __future__ import annotations

from typing import Any

import pytest
from pass_through import AllWindow, Window

from pyflinkstate.api import (
    Row,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import Projection
from pyflinkstate.runtime.plan import (
    WATERMARKS,
    ChainNode,
    SideOutputNode,
    SourceNode,
    StatefulNode,
    UnionNode,
)
from pyflinkstate.runtime.program import DataStream
from pyflinkstate.runtime.program.user_functions import check_same_type, converted_at_source, type_of
from pyflinkstate.runtime.sources import CollectionSource

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
