"""The loop over a frame's records: keys, isolated results, and which record was under way."""

from collections.abc import Iterator
from typing import Any

import pytest

from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.record_loop import RecordLoop


def test_each_record_is_processed_under_its_key() -> None:
    keys = KeyContext()
    results: list[Any] = []

    def process(value: str, context: str) -> Iterator[Any]:
        yield keys.key, keys.map_index, value, context

    RecordLoop(keys).run(([3, 5], ("a", "b"), ["x", "y"]), process, "context", results)
    assert results == [("a", 3, "x", "context"), ("b", 5, "y", "context")]


def test_a_result_is_isolated_before_the_function_goes_on() -> None:
    refilled: list[int] = []
    results: list[Any] = []

    def process(value: int, _: Any) -> Iterator[Any]:
        refilled.append(value)
        yield refilled
        yield value, refilled
        refilled.clear()

    RecordLoop(KeyContext()).run(([0, 0], ("a", "a"), [1, 2]), process, None, results)
    assert results == [[1], (1, [1]), [2], (2, [2])]


def test_a_function_may_give_nothing() -> None:
    results: list[Any] = []
    RecordLoop(KeyContext()).run(([0], ("a",), [1]), lambda value, context: None, None, results)
    assert results == []


def test_the_record_under_way_is_known_when_the_function_fails() -> None:
    loop = RecordLoop(KeyContext())

    def process(value: int, _: Any) -> Iterator[int]:
        yield 1 // value

    columns = (["a", "b", "c"], [1, 0, 1])
    with pytest.raises(ZeroDivisionError):
        loop.run(([0, 0, 0], *columns), process, None, [])
    assert loop.under_way(*columns) == ["b", 0]


def test_columns_must_have_one_length() -> None:
    loop = RecordLoop(KeyContext())
    loop.run(([0], ("a",), [1]), lambda value, context: None, None, [])
    with pytest.raises(ValueError, match="differ in length"):
        loop.run(([0, 0], ("a",), [1]), lambda value, context: None, None, [])
    assert loop.under_way(("a",), [1]) == [None, None]


class Timed:
    current_timestamp: int | None = None


def test_records_with_timestamps_give_results_with_theirs() -> None:
    keys, context = KeyContext(), Timed()
    results: list[Any] = []
    timestamps: list[Any] = []

    def process(value: int, given: Timed) -> Iterator[Any] | None:
        at = keys.key, keys.map_index, given.current_timestamp
        return iter([at] * value) if value else None

    columns = [3, 4, 5], ("a", "b", "c"), [2, 0, 1], [10, 20, None]
    RecordLoop(keys).run_timed(columns, process, context, results, timestamps)
    assert results == [("a", 3, 10), ("a", 3, 10), ("c", 5, None)]
    assert timestamps == [10, 10, None]


def test_a_timed_record_that_fails_is_known() -> None:
    loop = RecordLoop(KeyContext())
    columns = (["a", "b", "c"], [1, 0, 1])

    def process(value: int, _: Any) -> list[int]:
        return [1 // value]

    with pytest.raises(ZeroDivisionError):
        loop.run_timed(([0, 0, 0], *columns, [1, 2, 3]), process, Timed(), [], [])
    assert loop.under_way(*columns) == ["b", 0]
    with pytest.raises(ValueError, match="differ in length"):
        loop.run_timed(([0], ("a",), [1], []), process, Timed(), [], [])
