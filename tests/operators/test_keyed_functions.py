"""Rolling ``reduce``, ``sum``, ``min``, ``max`` and the like, as PyFlink 2.3 was seen to do them."""

from __future__ import annotations

import enum
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from pyflinkstate import Row, Types
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators.function_operators import (
    BatchReduce,
    FieldReduce,
    RecordChoice,
    RollingReduce,
    key_order,
)
from pyflinkstate.runtime.wire import MAX_WATERMARK
from pyflinkstate.testing import KeyedOneInputOperatorHarness

RECORDS = [("a", 3, "x"), ("a", 1, "y"), ("b", 7, "z"), ("a", 1, "w"), ("a", 5, "v"), ("a", 5, "u")]

FUNCTIONS = {
    "sum": (FieldReduce(1, operator.add), ["3x", "4x", "7z", "5x", "10x", "15x"]),
    "min": (FieldReduce(1, min), ["3x", "1x", "7z", "1x", "1x", "1x"]),
    "max": (FieldReduce(1, max), ["3x", "3x", "7z", "3x", "5x", "5x"]),
    "min_by": (RecordChoice(1, operator.gt), ["3x", "1y", "7z", "1y", "1y", "1y"]),
    "max_by": (RecordChoice(1, operator.lt), ["3x", "3x", "7z", "3x", "5v", "5v"]),
}


def run(reduce: Any, records: Sequence[tuple[Any, Any]]) -> list[Any]:
    keys = iter([key for key, _ in records])
    harness = KeyedOneInputOperatorHarness(reduce, lambda _: next(keys))
    results = [value for _, record in records for value in harness.process_element(record)]
    return results + harness.process_watermark(MAX_WATERMARK)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("make", [tuple, list, lambda record: Row(*record)], ids=["tuple", "list", "Row"])
def test_every_record_gives_the_result_so_far(name: str, make: Any) -> None:
    func, expected = FUNCTIONS[name]
    results = run(RollingReduce(func), [(record[0], make(record)) for record in RECORDS])
    assert [f"{result[1]}{result[2]}" for result in results] == expected
    assert {type(result) for result in results} == {type(make(RECORDS[0]))}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_in_batch_mode_every_key_gives_its_last_result(name: str) -> None:
    func, expected = FUNCTIONS[name]
    results = run(BatchReduce(func), [(record[0], record) for record in RECORDS])
    assert [(result[0], f"{result[1]}{result[2]}") for result in results] == [
        ("a", expected[-1]),
        ("b", "7z"),
    ]


def test_reduce_combines_what_is_stored_with_what_is_new() -> None:
    def combine(first: Any, second: Any) -> Any:
        return first[0], first[1] * 10 + second[1], first[2] + second[2]

    records = [(record[0], record) for record in RECORDS]
    assert run(RollingReduce(combine), records)[0] == RECORDS[0]
    assert run(BatchReduce(combine), records) == [("a", 31155, "xywvu"), ("b", 7, "z")]


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        (["ccc", "b", "ab", "a", "B", "bb", "ba"], ["B", "a", "b", "ab", "ba", "bb", "ccc"]),
        (["é", "zz", "z"], ["z", "zz", "é"]),
        ([300, 10, -1, 257, 2, 1], [-1, 1, 2, 10, 257, 300]),
        ([(2,), "a", 1], [1, "a", (2,)]),
    ],
)
def test_in_batch_mode_keys_come_in_flinks_order(keys: list[Any], order: list[Any]) -> None:
    assert run(BatchReduce(lambda first, _: first), [(key, key) for key in keys]) == order
    assert sorted(keys, key=key_order) == order


def test_in_batch_mode_nothing_comes_before_the_end_and_nothing_twice() -> None:
    harness = KeyedOneInputOperatorHarness(BatchReduce(operator.add), str)
    assert (harness.process_element(1), harness.process_watermark(2**62)) == ([], [])
    assert harness.process_watermark(MAX_WATERMARK) == [1]
    assert harness.backend.num_key_value_state_entries() == 0


def test_a_plain_value_is_its_own_field_0() -> None:
    assert run(RollingReduce(FieldReduce(0, operator.add)), [("k", 1), ("k", 2)]) == [1, 3]
    assert run(RollingReduce(RecordChoice(0, operator.lt)), [("k", 1), ("k", 2)]) == [1, 2]


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


@pytest.mark.parametrize("make", [np.int64, np.float32, np.bool_, lambda number: Size(1 + number)])
def test_numbers_whose_classes_have_items_are_plain_values(make: Any) -> None:
    records = [("k", make(0)), ("k", make(1))]
    assert run(RollingReduce(FieldReduce(0, operator.add)), records) == [make(0), make(0) + make(1)]
    assert run(RollingReduce(FieldReduce(0, max)), records) == [make(0), make(1)]
    assert run(RollingReduce(RecordChoice(0, operator.gt)), records) == [make(0), make(0)]


def test_a_record_of_numpys_has_fields() -> None:
    first, second = np.array([(1, 2.0), (3, 4.0)], dtype=[("a", "i8"), ("b", "f8")])
    summed = run(RollingReduce(FieldReduce("a", operator.add)), [("k", first), ("k", second)])[1]
    assert summed.tolist() == (4, 2.0)


@pytest.mark.parametrize("func", [FieldReduce(1, operator.add), RecordChoice("n", operator.lt)])
def test_another_field_of_a_plain_value_is_refused_at_the_second_record(func: Any) -> None:
    with pytest.raises(BadRecordError, match="the plain value 1 has no field"):
        run(RollingReduce(func), [("k", 1), ("k", 2)])
    assert run(RollingReduce(func), [("k", 1)]) == [1]


@pytest.mark.parametrize("position", [1.0, None, True, (1,)])
def test_a_position_is_an_index_or_a_name(position: Any) -> None:
    with pytest.raises(ConfigurationError, match="take the index"):
        FieldReduce(position, operator.add)


def test_a_field_may_be_named() -> None:
    rows = Types.ROW_NAMED(["k", "n"], [Types.STRING(), Types.LONG()])
    records = [("a", rows.check(("a", number))) for number in (1, 2)]
    assert [row.n for row in run(RollingReduce(FieldReduce("n", operator.add)), records)] == [1, 3]
