"""Timestamps and watermarks inside a chain: one holder of time, which follows the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pytest

from pyflinkstate import Duration, OutputTag, ProcessFunction
from pyflinkstate.api import (
    MAX_WATERMARK,
    NO_TIMESTAMP,
    NO_WATERMARK,
    TimestampAssigner,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, NotKeyedStreamError, UserFunctionError
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator, KeptTimestamp
from pyflinkstate.runtime.tasks import Chain, TaskInfo, chain as chain_module
from pyflinkstate.runtime.wire import OperatorMetrics

LATE = OutputTag("late")


@attrs.define
class ByValue(TimestampAssigner):
    """The record is its timestamp; notes what timestamps records had before."""

    factor: int = 1
    before: list[int] = attrs.Factory(list)

    def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
        self.before.append(record_timestamp)
        return value * self.factor


class Tell(ProcessFunction):
    """Gives each record with what it is told of time; odd ones also go to the side."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        if value % 2:
            yield LATE, value
        yield value, ctx.timestamp(), timers.current_watermark(), timers.current_processing_time()


def assign(out_of_orderness: int | None = 0, assigner: Any = None, name: str = "a") -> ChainedOperator:
    strategy = WatermarkStrategy(out_of_orderness, None, ByValue() if assigner is None else assigner)
    return ChainedOperator(WATERMARKS, f"time {name}", strategy, assigner_id=name)


def operator(kind: str, function: Any) -> ChainedOperator:
    return ChainedOperator(kind, kind, function, has_side_outputs=True)


TELL = operator("process", Tell())


def chain(*operators: ChainedOperator, **watermarks: int) -> Chain:
    return Chain(operators, TaskInfo(0, 1, 0, OperatorMetrics(lambda: 42)), Counter(), watermarks)


def told(made: Chain, records: Iterable[Any]) -> list[tuple[Any, int | None, int]]:
    """Each record that comes out, with the holder's timestamp and watermark at that moment."""
    return [(record, made.time.timestamp, made.time.watermark) for record in made.run(records)]


#: Operators before one that tells the time, the first watermarks of assigners, records, what is told of
#: time with each result, the watermarks of assigners that had records, and the watermark at the end.
Told = list[tuple[Any, int | None, int]]
STORIES: dict[str, tuple[list[ChainedOperator], dict[str, int], list[Any], Told, dict[str, int], int]] = {
    "a record meets the watermark of those before it": (
        [assign()],
        {},
        [5, 3, 9],
        [(5, 5, NO_WATERMARK), (3, 3, 4), (9, 9, 4)],
        {"a": 8},
        8,
    ),
    "records that were kept have the timestamps that they had, or none": (
        [assign(0, KeptTimestamp()), operator("map", lambda pair: 2 * pair[1] if pair[1] else 0)],
        {},
        [("a", 5), ("b", None), ("c", 9)],
        [(10, 5, NO_WATERMARK), (0, None, 4), (18, 9, 4)],
        {"a": 8},
        8,
    ),
    "the watermark stays behind as far as records may be out of order": (
        [assign(4)],
        {},
        [10, 2],
        [(10, 10, NO_WATERMARK), (2, 2, 5)],
        {"a": 5},
        5,
    ),
    "it goes on from where it was and never back": (
        [assign()],
        {"a": 100},
        [5, 7],
        [(5, 5, 100), (7, 7, 100)],
        {"a": 100},
        100,
    ),
    "a partition without records reports nothing": ([assign()], {"a": 3}, [], [], {}, 3),
    "without watermarks records have timestamps alone": (
        [assign(None)],
        {},
        [2, 4],
        [(2, 2, NO_WATERMARK), (4, 4, NO_WATERMARK)],
        {"a": NO_WATERMARK},
        NO_WATERMARK,
    ),
    "of two assigners each has its own watermark and the last one goes on": (
        [assign(0, ByValue(), "a"), TELL, operator("map", lambda told: told[0]), assign(0, ByValue(10), "b")],
        {"a": 1},
        [4, 6],
        [(4, 40, NO_WATERMARK), (6, 60, 39)],
        {"a": 5, "b": 59},
        59,
    ),
    "what flat_map makes of a record has its timestamp and meets its watermark": (
        [assign(), operator("flat_map", lambda value: [value, value + 100])],
        {},
        [2, 4],
        [(2, 2, NO_WATERMARK), (102, 2, NO_WATERMARK), (4, 4, 1), (104, 4, 1)],
        {"a": 3},
        3,
    ),
    "records that a filter drops advance time all the same": (
        [assign(), operator("filter", lambda value: value < 5)],
        {},
        [2, 50, 4],
        [(2, 2, NO_WATERMARK), (4, 4, 49)],
        {"a": 49},
        49,
    ),
    "also if all are dropped": (
        [assign(), operator("filter", lambda value: False)],
        {},
        [5, 50],
        [],
        {"a": 49},
        49,
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name: str) -> None:
    operators, began, records, expected, watermarks, end = STORIES[name]
    made = chain(*operators, TELL, **began)
    assert made.time.watermark == began.get("b" if "b" in watermarks else "a", NO_WATERMARK)
    found = []
    for record, timestamp, watermark, now_ms in made.run(records):
        assert (timestamp, watermark, now_ms) == (made.time.timestamp, made.time.watermark, 42)
        found.append((record, timestamp, watermark))
    assert (found, made.watermarks, made.time.watermark) == (expected, watermarks, end)


def test_the_strategy_of_out_of_order_records_has_their_bound() -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(4))
    assert strategy.max_out_of_orderness_ms == 4


def test_without_a_timestamp_assigner_records_keep_theirs() -> None:
    made = chain(ChainedOperator(WATERMARKS, "time", WatermarkStrategy(0), assigner_id="a"))

    def records() -> Iterator[int]:
        for record in (1, 2, 3):
            made.source_time.timestamp = None if record == 2 else record * 10
            yield record

    assert [(r, t) for r, t, _ in told(made, records())] == [(1, 10), (2, None), (3, 30)]
    assert made.watermarks == {"a": 29}


def test_an_assigner_is_told_the_timestamp_before() -> None:
    first, second = ByValue(), ByValue(10)
    made = chain(assign(0, first, "a"), operator("map", lambda value: value + 1), assign(0, second, "b"))
    assert told(made, [1, 2]) == [(2, 20, NO_WATERMARK), (3, 30, 19)]
    assert first.before == [NO_TIMESTAMP, NO_TIMESTAMP]
    assert second.before == [1, 2]


def test_operators_before_an_assigner_are_told_of_the_time_before_it() -> None:
    seen: list[Any] = []

    def note(told: tuple[Any, ...]) -> Any:
        seen.append(told[:3])
        return told[0]

    made = chain(TELL, operator("map", note), assign())
    made.source_time.timestamp, made.source_time.watermark = 7, 3
    assert list(made.run([2])) == [2]
    assert seen == [(2, 7, 3)]


@pytest.mark.parametrize("are_read", [True, False])
def test_side_outputs_have_the_timestamps_of_their_records_and_are_dropped_if_nobody_reads(
    are_read: bool,
) -> None:
    made = chain(assign(), attrs.evolve(TELL, has_side_outputs=are_read))
    assert len(list(made.run([1, 2, 3]))) == 3
    assert made.side == ({"late": ([1, 3], [1, 3])} if are_read else {})


def test_the_end_of_time_before_an_assigner_is_the_end_behind_it() -> None:
    made = chain(assign())

    def records() -> Iterator[int]:
        yield 5
        made.source_time.watermark = MAX_WATERMARK

    assert told(made, records()) == [(5, 5, NO_WATERMARK)]
    assert made.time.watermark == MAX_WATERMARK
    assert made.watermarks == {"a": 4}, "a checkpoint keeps how far records went"


# --- what is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp", [None, 1.5, "7", True, 2**63, -(2**63) - 1])
def test_what_is_no_timestamp_names_operator_and_record(timestamp: Any) -> None:
    class Wrong(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
            return timestamp

    with pytest.raises(BadRecordError, match=r"whole number of milli[\s\S]*operator 'time a', record 'r'"):
        list(chain(assign(0, Wrong())).run(["r"]))


def test_an_assigner_that_raises_names_operator_and_record() -> None:
    class Broken(TimestampAssigner):
        def extract_timestamp(self, value: Any, record_timestamp: int) -> Any:
            return value["at"]

    with pytest.raises(UserFunctionError, match=r"KeyError[\s\S]*operator 'time a', record \{\}"):
        list(chain(assign(0, Broken())).run([{}]))


@pytest.mark.parametrize("what", ["register", "delete"])
@pytest.mark.parametrize("domain", ["event", "processing"])
def test_timers_are_refused_on_streams_without_keys(what: str, domain: str) -> None:
    class Timers(ProcessFunction):
        def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
            getattr(ctx.timer_service(), f"{what}_{domain}_time_timer")(5)

    with pytest.raises(NotKeyedStreamError, match=r"after key_by\(\)[\s\S]*operator 'process', record 1"):
        list(chain(operator("process", Timers())).run([1]))


class Twice(ProcessFunction):
    """Gives each record twice, in one call."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value
        yield value


class Same(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        return (value,)


@pytest.mark.parametrize("most", [1, 2, 3])
def test_blocks_of_operators_give_what_nested_ones_give(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    drop_small = operator("filter", lambda value: value > 3)
    operators = [
        operator("process", Twice()),
        assign(0, name="first"),
        drop_small,
        operator("flat_map", lambda value: [value] * (value % 3)),
        assign(2, ByValue(2), "second"),
        TELL,
    ]

    def outcome() -> list[Any]:
        made = chain(*operators, first=1)
        return [told(made, [5, 3, 9, 4]), made.watermarks, made.side, made.counts, made.time]

    nested = outcome()
    assert len(nested[0]) > 4
    monkeypatch.setattr(chain_module, "MAX_NESTED", most)
    assert outcome() == nested


@pytest.mark.parametrize(
    "step",
    [
        operator("map", lambda value: value),
        operator("filter", lambda value: True),
        operator("flat_map", lambda value: [value]),
        operator("process", Same()),
        assign(),
    ],
    ids=lambda step: step.kind,
)
def test_a_chain_may_have_any_length(step: ChainedOperator) -> None:
    long = [attrs.evolve(step, name=f"{step.kind} {number}", assigner_id="") for number in range(2000)]
    assert list(chain(*long).run([5, 7])) == [5, 7]
