"""Timestamps that are assigned a frame at a time, against those that a chain assigns record by record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st

from pyflinkstate import MapFunction
from pyflinkstate.api import (
    MAX_WATERMARK,
    NO_TIMESTAMP,
    NO_WATERMARK,
    TimestampAssigner,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, PyFlinkStateError, UserFunctionError
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator
from pyflinkstate.runtime.tasks import Chain, TaskInfo
from pyflinkstate.runtime.tasks.records import FollowedRecords, assigned
from pyflinkstate.runtime.wire import FrameCutter

FRAME = 4


class ByValue(TimestampAssigner):
    """The record is its timestamp; adds what it had before, if it had one."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        return value if record_timestamp == NO_TIMESTAMP else value + record_timestamp


def assigner(strategy: WatermarkStrategy, name: str = "a") -> ChainedOperator:
    return ChainedOperator(WATERMARKS, f"time {name}", strategy, assigner_id=name)


def chain(*operators: ChainedOperator, reports: list[Any] | None = None, **watermarks: int) -> Chain:
    told = [] if reports is None else reports
    return Chain(operators, TaskInfo(0, 1, 0, report=lambda **it: told.append(it)), Counter(), watermarks)


@attrs.frozen
class Source:
    """Records with the timestamps that the source gives them, and the watermark behind the last one."""

    records: list[int]
    own: list[int | None]
    end: int = NO_WATERMARK

    def read(self, made: Chain) -> Iterator[int]:
        for record, made.source_time.timestamp in zip(self.records, self.own, strict=True):
            yield record
        made.source_time.watermark = self.end


def frames(made: Chain, records: Any) -> list[Any]:
    """What a task takes until there is no more, with the watermark behind each frame."""
    cutter = FrameCutter(FRAME)
    taken = []
    while True:
        batch, timestamps = records.take(cutter)
        taken.append((batch, list(timestamps), made.time.watermark))
        if not batch:
            return taken


strategies = st.builds(
    WatermarkStrategy, st.sampled_from([None, 0, 3]), st.none(), st.sampled_from([None, ByValue()])
)
small = st.integers(-5, 20)


@st.composite
def sources(draw: st.DrawFn) -> Source:
    records = draw(st.lists(small, max_size=3 * FRAME))
    own = [draw(st.one_of(st.none(), small)) for _ in records]
    return Source(records, own, draw(st.sampled_from([NO_WATERMARK, MAX_WATERMARK])))


@given(sources(), st.lists(strategies, min_size=1, max_size=2), st.booleans(), st.integers(-3, 12))
def test_frames_and_records_meet_the_same_time(
    source: Source, given_strategies: list[WatermarkStrategy], filters: bool, began: int
) -> None:
    operators = [assigner(strategy, f"a{number}") for number, strategy in enumerate(given_strategies)]
    if filters:
        operators.insert(len(operators) - 1, ChainedOperator("filter", "odd", lambda record: record % 2))
    reports: list[Any] = []
    expected, made = chain(*operators, a0=began), chain(*operators, a0=began, reports=reports)
    one_by_one = FollowedRecords([expected.run(source.read(expected))], expected.time)
    at_once = made.run_timed(source.read(made), True)
    assert frames(made, at_once) == frames(expected, one_by_one)
    assert made.watermarks == expected.watermarks
    assert reports == ([{"watermarks": made.watermarks}] if made.watermarks else [])


@given(st.lists(small, max_size=3 * FRAME), strategies)
def test_a_source_without_timestamps_need_not_be_followed(
    records: list[int], strategy: WatermarkStrategy
) -> None:
    expected, made = (chain(assigner(strategy)) for _ in range(2))
    one_by_one = FollowedRecords([expected.run(records)], expected.time)
    assert frames(made, made.run_timed(records, False)) == frames(expected, one_by_one)
    assert made.watermarks == expected.watermarks


def test_a_chain_that_does_not_end_with_an_assigner_is_followed() -> None:
    reports: list[Any] = []
    negative = ChainedOperator("map", "neg", lambda record: -record)
    made = chain(assigner(WatermarkStrategy(0, None, ByValue())), negative, reports=reports)
    taken = frames(made, made.run_timed([1, 2, 3, 4, 5], False))
    assert taken == [([-1, -2, -3, -4], [1, 2, 3, 4], 2), ([-5], [5], 4), ([], [], 4)]
    assert reports == [{"watermarks": {"a": 4}}]


class Faulty(TimestampAssigner):
    """Raises what a record is, or returns it."""

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        if isinstance(value, Exception):
            raise value
        return value


@pytest.mark.parametrize(
    ("records", "kind", "text"),
    [
        (
            [1, 2, "x", ValueError("later")],
            BadRecordError,
            "returned 'x'\n  in operator 'time a', record 'x'",
        ),
        (
            [1, ValueError("no"), "x"],
            UserFunctionError,
            "ValueError: no\n  in operator 'time a', record ValueErr",
        ),
        ([1, StopIteration(), 2], UserFunctionError, "StopIteration"),
        ([1, True], BadRecordError, "returned True"),
        ([2**63], BadRecordError, "returned 9223372036854775808"),
        ([-(2**63) - 1], BadRecordError, "returned -9223372036854775809"),
        ([1.0], BadRecordError, "returned 1.0"),
    ],
    ids=str,
)
def test_the_first_record_without_a_timestamp_is_named(
    records: Iterable[Any], kind: type[PyFlinkStateError], text: str
) -> None:
    made = chain(assigner(WatermarkStrategy(0, None, Faulty())))
    with pytest.raises(kind) as caught:
        frames(made, made.run_timed(records, False))
    assert text in str(caught.value)


class Closing(MapFunction):
    is_closed = False

    def map(self, value: Any) -> Any:
        return value

    def close(self) -> None:
        self.is_closed = True


def test_the_functions_before_the_assigner_are_closed_when_it_fails() -> None:
    function = Closing()
    made = chain(ChainedOperator("map", "map", function), assigner(WatermarkStrategy(0, None, Faulty())))
    timed = made.run_timed([1, "x", 2], False)
    with pytest.raises(BadRecordError):
        frames(made, timed)
    assert function.is_closed


def test_a_close_that_raises_does_not_hide_the_record_without_a_timestamp(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class FailsToClose(Closing):
        def close(self) -> None:
            super().close()
            raise TimeoutError("flush took too long")

    function = FailsToClose()
    made = chain(ChainedOperator("map", "map", function), assigner(WatermarkStrategy(0, None, Faulty())))
    with pytest.raises(BadRecordError, match="returned 'x'"):
        frames(made, made.run_timed([1, "x", *range(FRAME)], False))
    assert function.is_closed
    assert "TimeoutError: flush took too long" in caplog.text


class Exits(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        raise SystemExit(3) if value == 7 else KeyboardInterrupt


@pytest.mark.parametrize(("record", "expected"), [(7, UserFunctionError), (8, KeyboardInterrupt)])
def test_sys_exit_is_an_error_of_the_assigner_and_an_interrupt_is_none(
    record: int, expected: type[BaseException]
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Exits())
    with pytest.raises(expected):
        assigned("mine", strategy.timestamp_assigner, [record], [None])
