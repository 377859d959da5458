"""Timestamps and watermarks inside a chain: one holder of time, which follows the record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import attrs
import pytest

from pyflinkstate import Duration, OutputTag, ProcessFunction
from pyflinkstate.api.time import (
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


def test_a_record_meets_the_watermark_of_those_before_it() -> None:
    assert told(chain(assign()), [5, 3, 9]) == [(5, 5, NO_WATERMARK), (3, 3, 4), (9, 9, 4)]


def test_behind_the_last_record_is_its_own_watermark() -> None:
    made = chain(assign())
    list(made.run([5, 3, 9]))
    assert made.time.watermark == 8
    assert made.watermarks == {"a": 8}


def test_records_that_were_kept_have_the_timestamps_that_they_had() -> None:
    """One that had none has none again, and advances no watermark."""
    made = chain(assign(0, KeptTimestamp()))
    records = [("a", 5), ("b", None), ("c", 9)]
    assert told(made, records) == [
        (("a", 5), 5, NO_WATERMARK),
        (("b", None), None, 4),
        (("c", 9), 9, 4),
    ]
    assert made.watermarks == {"a": 8}


def test_the_watermark_stays_behind_as_far_as_records_may_be_out_of_order() -> None:
    made = chain(assign(4))
    list(made.run([10, 2]))
    assert made.watermarks == {"a": 5}
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(4))
    assert strategy.max_out_of_orderness_ms == 4


def test_it_goes_on_from_where_it_was_and_never_back() -> None:
    made = chain(assign(), a=100)
    assert made.time.watermark == 100
    assert told(made, [5, 7]) == [(5, 5, 100), (7, 7, 100)]
    assert made.watermarks == {"a": 100}


def test_a_partition_without_records_reports_nothing() -> None:
    made = chain(assign(), a=3)
    assert list(made.run([])) == []
    assert (made.watermarks, made.time.watermark) == ({}, 3)


def test_without_watermarks_records_have_timestamps_alone() -> None:
    made = chain(assign(None), TELL)
    assert [told[:3] for told in made.run([2, 4])] == [(2, 2, NO_WATERMARK), (4, 4, NO_WATERMARK)]


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


def test_of_two_assigners_each_has_its_own_watermark_and_the_last_one_goes_on() -> None:
    made = chain(
        assign(0, ByValue(), "a"), TELL, operator("map", lambda t: t[0]), assign(0, ByValue(10), "b"), a=1
    )
    assert told(made, [4, 6]) == [(4, 40, NO_WATERMARK), (6, 60, 39)]
    assert made.watermarks == {"a": 5, "b": 59}
    assert made.time.watermark == 59


def test_operators_before_an_assigner_are_told_of_the_time_before_it() -> None:
    seen: list[Any] = []

    def note(told: tuple[Any, ...]) -> Any:
        seen.append(told[:3])
        return told[0]

    made = chain(TELL, operator("map", note), assign())
    made.source_time.timestamp, made.source_time.watermark = 7, 3
    assert list(made.run([2])) == [2]
    assert seen == [(2, 7, 3)]


def test_what_flat_map_makes_of_a_record_has_its_timestamp_and_meets_its_watermark() -> None:
    made = chain(assign(), operator("flat_map", lambda value: [value, value + 100]), TELL)
    assert [out[:3] for out in made.run([2, 4])] == [
        (2, 2, NO_WATERMARK),
        (102, 2, NO_WATERMARK),
        (4, 4, 1),
        (104, 4, 1),
    ]


def test_records_that_a_filter_drops_advance_time_all_the_same() -> None:
    made = chain(assign(), operator("filter", lambda value: value < 5), TELL)
    assert [out[:3] for out in made.run([2, 50, 4])] == [(2, 2, NO_WATERMARK), (4, 4, 49)]
    assert list(chain(assign(), operator("filter", bool)).run([0, 0])) == []


def test_a_watermark_behind_records_that_were_all_dropped_goes_on() -> None:
    made = chain(assign(), operator("filter", lambda value: False))
    list(made.run([5, 50]))
    assert (made.time.watermark, made.watermarks) == (49, {"a": 49})


def test_side_outputs_have_the_timestamps_of_their_records() -> None:
    made = chain(assign(), TELL)
    assert len(list(made.run([1, 2, 3]))) == 3
    assert made.side == {"late": ([1, 3], [1, 3])}


def test_side_outputs_that_nobody_reads_are_dropped() -> None:
    made = chain(attrs.evolve(TELL, has_side_outputs=False))
    assert len(list(made.run([1, 2, 3]))) == 3
    assert made.side == {}


def test_the_end_of_time_before_an_assigner_is_the_end_behind_it() -> None:
    made = chain(assign())

    def records() -> Iterator[int]:
        yield 5
        made.source_time.watermark = MAX_WATERMARK

    assert told(made, records()) == [(5, 5, NO_WATERMARK)]
    assert made.time.watermark == MAX_WATERMARK
    assert made.watermarks == {"a": 4}, "a checkpoint keeps how far records went"


def test_processing_time_is_that_of_the_task() -> None:
    assert list(chain(TELL).run([2])) == [(2, None, NO_WATERMARK, 42)]


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
        return [told(made, [5, 3, 9, 4]), made.watermarks, made.side, made._counts, made.time]

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
