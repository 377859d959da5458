"""Offsets are JSON values: what a checkpoint would refuse or change is refused when it is returned."""

from __future__ import annotations

import datetime
import enum
import json
from typing import Any

import attrs
import numpy
import pytest
from hypothesis import example, given, strategies as st

from pyflinkstate.errors import FunctionResultError, SourceError
from pyflinkstate.runtime.sources import Available, BatchReaderSource, Epoch, Source, SplitEpoch
from pyflinkstate.runtime.sources.source_set import GuardedSource, SourceSet, part_that_is_no_json

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(max_size=3), st.dates()
)
VALUES = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        st.lists(parts, max_size=3),
        st.tuples(parts),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.none()), parts, max_size=3),
    ),
    max_leaves=8,
)


def survives(value: Any) -> bool:
    """Return whether a value is the same when JSON has written and read it."""
    try:
        return bool(json.loads(json.dumps(value, allow_nan=False)) == value)
    except (TypeError, ValueError):
        return False


@given(VALUES)
@example({"partitions": [{"a": [1, 2.5, None, True]}], "\udcff": 2**70})
def test_what_json_keeps_as_it_is_is_an_offset_and_nothing_else(value: Any) -> None:
    assert (part_that_is_no_json(value) is None) == survives(value)


class Side(enum.IntEnum):
    LEFT = 1


@pytest.mark.parametrize("value", [Side.LEFT, numpy.float64(0.5), numpy.str_("a")], ids=repr)
def test_what_is_a_number_or_a_text_may_be_of_a_class_of_its_own(value: Any) -> None:
    assert part_that_is_no_json({"at": value}) is None
    assert survives(value)


NO_JSON = [
    ((1, 2), r"offset is a tuple, \(1, 2\), which would be read back as a list: use a list"),
    ({"at": [0, (1,)]}, r"offset\['at'\]\[1\] is a tuple"),
    ({0: 100}, "offset has the key 0, and the keys of JSON are strings: use str"),
    ({"orders": {0: 5}}, r"offset\['orders'\] has the key 0"),
    ({"next": numpy.int64(5)}, r"offset\['next'\] is .*5.*, of type numpy.int64"),
    (datetime.date(2024, 2, 29), r"offset is datetime.date\(2024, 2, 29\), of type datetime.date"),
    ({"seen": {"a"}}, r"offset\['seen'\] is \{'a'\}, of type builtins.set"),
    ([0.5, float("nan")], r"offset\[1\] is nan, which is not a number in JSON: use None"),
    (float("-inf"), "offset is -inf"),
]


@attrs.define
class Fixed(Source):
    """Returns one offset all the time."""

    offset: Any

    def initial_offset(self) -> Any:
        return self.offset

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(self.offset)

    def plan(self, start: Any, end: Any) -> Epoch:
        return SplitEpoch([], lambda split, _: split)


@pytest.mark.parametrize(("offset", "flaw"), NO_JSON, ids=lambda value: str(value)[:20])
def test_any_other_offset_is_refused_with_the_part_that_is_wrong(offset: Any, flaw: str) -> None:
    source = GuardedSource(Fixed(offset), "shelf")
    with pytest.raises(FunctionResultError, match=rf"'shelf': initial_offset returned .*: {flaw}") as caught:
        source.initial_offset()
    assert not caught.value.recoverable
    assert caught.value.context == {"source": "shelf"}
    with pytest.raises(FunctionResultError, match=rf"'shelf': latest_offset returned .*: {flaw}"):
        source.latest_offset(0, whole=False)


def test_the_offset_of_each_of_several_sources_is_checked() -> None:
    both = SourceSet({"good-0": Fixed(1), "odd-1": Fixed({0: 1})})
    with pytest.raises(FunctionResultError, match=r"offset\['odd-1'\] has the key 0"):
        GuardedSource(both, "sources").initial_offset()
    with pytest.raises(FunctionResultError, match=r"offset\['odd-1'\] has the key 0"):
        GuardedSource(both, "sources").restored({"good-0": 5}, may_drop=False)


def test_the_position_of_a_single_source_is_restored_as_it_is() -> None:
    source = GuardedSource(Fixed(1), "shelf")
    assert source.restored({"any": 1}, may_drop=False) == source.planned({"any": 1}) == {"any": 1}


def test_so_is_what_a_function_for_a_batch_reader_returns() -> None:
    source = BatchReaderSource(lambda start, end: None, lambda start: {"orders": {0: 5}})
    with pytest.raises(FunctionResultError, match=r"'kafka': latest_offset .*\['orders'\] has the key 0"):
        GuardedSource(source, "kafka").latest_offset("earliest", whole=False)


def test_what_is_not_even_available_is_an_error_of_the_source() -> None:
    class Careless(Fixed):
        def latest_offset(self, start: Any, whole: bool) -> Any:
            return 5

    with pytest.raises(SourceError, match="'shelf': latest_offset raised AttributeError"):
        GuardedSource(Careless(0), "shelf").latest_offset(0, whole=False)
