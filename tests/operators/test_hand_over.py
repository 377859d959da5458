"""A result is what it was when it was emitted; records and keys share nothing that can change.

``PYFLINK`` is what PyFlink 2.3 prints for the same programs, with parallelism 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from pyflinkstate import (
    CoProcessFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    Time,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.runtime.operators import BatchReduce
from pyflinkstate.testing import (
    BroadcastOperatorHarness,
    KeyedOneInputOperatorHarness,
    OneInputOperatorHarness,
    harness_of,
)

RECORDS = [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)]
SIDE = OutputTag("side")
HISTORIES = [("a", [1]), ("b", [10]), ("a", [1, 2]), ("a", [1, 2, 3]), ("b", [10, 20])]
REFILLED = [{"key": key, "n": number} for key, number in RECORDS]

PYFLINK: dict[str, list[Any]] = {
    "value state": HISTORIES,
    "declared": HISTORIES,
    "reduce": HISTORIES,
    "side output": HISTORIES,
    "on_timer": [("a", [1]), ("a", [1, 2]), ("a", [1, 2, 3]), ("b", [10]), ("b", [10, 20])],
    "flat_map": [{"key": key, "n": number + more} for key, number in RECORDS for more in range(3)],
    "process": REFILLED,
    "window": REFILLED,
    "chain": [
        {"key": key, "n": n}
        for key, n in [("a", 2), ("b", 10), ("b", 12), ("a", 2), ("a", 4), ("a", 4), ("b", 20), ("b", 22)]
    ],
    "connected": [{"one": 1}, {"one": 10}, {"one": 2}, {"one": 3}, {"one": 20}],
}


class History(KeyedProcessFunction):
    def __init__(self, tag: OutputTag | None = None) -> None:
        self.tag = tag

    def open(self, runtime_context: RuntimeContext) -> None:
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        seen = self.seen.value() or []
        seen.append(value[1])
        self.seen.update(seen)
        result = value[0], seen
        yield result if self.tag is None else (self.tag, result)


class Timed(History):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:  # type: ignore[override]
        ctx.timer_service().register_event_time_timer(value[1])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield from super().process_element((ctx.get_current_key(), timestamp), ctx)


def merged(first: Any, second: Any) -> Any:
    first[1].extend(second[1])
    return first


class Refill(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterator[Any]:
        record: dict[str, Any] = {}
        for number in range(3):
            record["key"], record["n"] = value[0], value[1] + number
            yield record


class RefillOne(ProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.record: dict[str, Any] = {}

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        self.record["key"], self.record["n"] = value
        yield self.record


class RefillInWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.record: dict[str, Any] = {}

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
        for _, number in elements:
            self.record["key"], self.record["n"] = key, number
            yield self.record


class RefillOfTwo(CoProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.record: dict[str, Any] = {}

    def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        self.record["one"] = value[1]
        yield self.record

    def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        return self.process_element1(value, ctx)


def by_name(record: Any) -> Any:
    return record[0]


PAIRS = Types.TUPLE([Types.STRING(), Types.LIST(Types.LONG())])
RECORD = Types.MAP(Types.STRING(), Types.STRING())

PROGRAMS: dict[str, Any] = {
    "value state": lambda records: records.key_by(by_name).process(History()),
    "declared": lambda records: records.key_by(by_name).process(History(), output_type=PAIRS),
    "reduce": lambda records: records.key_by(by_name).reduce(merged),
    "side output": lambda records: records.key_by(by_name).process(History(SIDE)),
    "on_timer": lambda records: records.key_by(by_name).process(Timed()),
    "flat_map": lambda records: records.flat_map(Refill()),
    "process": lambda records: records.process(RefillOne()),
    "window": lambda records: records.key_by(by_name).count_window(1).process(RefillInWindow()),
    "chain": lambda records: (
        records.flat_map(Refill())
        .map(lambda record: (record["key"], record))
        .filter(lambda pair: pair[1]["n"] % 2 == 0)
        .map(lambda pair: pair[1])
    ),
    "connected": lambda records, others: records.connect(others).process(RefillOfTwo()),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_they_give_on_pyflink(name: str) -> None:
    harness = harness_of(PROGRAMS[name])
    process = harness.process_element1 if name == "connected" else harness.process_element
    for key, number in RECORDS:
        process((key, [number]) if name == "reduce" else (key, number))
    if name == "on_timer":
        for time in (1, 2, 3, 10, 20):
            harness.process_watermark(time)
    if name == "side output":
        assert harness.extract_side_output_values(SIDE) == PYFLINK[name]
    else:
        assert harness.extract_output_values() == PYFLINK[name]


@pytest.mark.parametrize("output_type", [None, RECORD, Types.LIST(Types.PICKLED_BYTE_ARRAY())], ids=str)
@pytest.mark.parametrize("kind", ["map", "flat_map"])
def test_a_function_of_a_chain_may_go_on_with_what_it_gave(
    kind: str, output_type: TypeInformation | None
) -> None:
    """With a declared type as well, whether its check makes new values or not."""
    record: dict[str, str] = {}
    given: Any = [record] if output_type not in (None, RECORD) else record

    def refilled(value: str) -> Any:
        record["v"] = value
        return given

    function = refilled if kind == "map" else (lambda text: map(refilled, text))
    harness = harness_of(lambda records: getattr(records, kind)(function, output_type))
    for value in ("xy", "z"):
        harness.process_element(value)
    found = [part[0] if isinstance(part, list) else part for part in harness.extract_output_values()]
    assert found == [{"v": value} for value in (["xy", "z"] if kind == "map" else "xyz")]


def test_a_result_that_a_check_makes_anew_is_not_copied_before() -> None:
    copies: list[str] = []

    class Noted(dict[str, str]):
        def __deepcopy__(self, memo: Any) -> Any:
            copies.append("copied")
            return self

    harness = harness_of(lambda records: records.map(lambda text: Noted(text=text), RECORD))
    assert harness.process_element("x") == [{"text": "x"}]
    assert not copies
    undeclared = harness_of(lambda records: records.map(lambda text: Noted(text=text)))
    undeclared.process_element("x")
    assert copies


def test_side_outputs_of_a_chain() -> None:
    class Tagging(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Iterator[Any]:
            record: dict[str, int] = {}
            for number in range(2):
                record["n"] = value + number
                yield SIDE, record
                yield record

    harness = OneInputOperatorHarness(Tagging(), output_type=None)
    assert harness.process_element(1) == [{"n": 1}, {"n": 2}]
    assert harness.extract_side_output_values(SIDE) == [{"n": 1}, {"n": 2}]


def test_what_a_chain_hands_on_may_be_what_cannot_be_copied() -> None:
    harness = harness_of(
        lambda records: records.map(lambda text: (c for c in text)).flat_map(lambda characters: characters)
    )
    assert harness.process_element("abc") == ["a", "b", "c"]


def test_a_function_does_not_change_the_record_that_a_test_gave() -> None:
    record = ("a", [1])
    harness = harness_of(PROGRAMS["reduce"])
    harness.process_element(record)
    assert harness.process_element(("a", [2])) == [("a", [1, 2])]
    assert record == ("a", [1])
    changing = harness_of(lambda records: records.map(lambda record: record.append(1) or record))
    mine: list[int] = []
    assert changing.process_element(mine) == [[1]]
    assert mine == []


def test_batch_reduce() -> None:
    harness = KeyedOneInputOperatorHarness(BatchReduce(merged), by_name)
    payload = [0]
    for key in "abab":
        harness.process_element((key, payload))
    assert harness.process_watermark(2**63 - 1) == [("a", [0, 0]), ("b", [0, 0])]


def test_an_element_of_several_windows_is_each_windows_own() -> None:
    class Changing(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Any]:
            for element in elements:
                element[1].append("seen")
                yield element

    harness = harness_of(
        lambda records: (
            records.key_by(by_name)
            .window(SlidingEventTimeWindows.of(Time.milliseconds(20), Time.milliseconds(10)))
            .process(Changing())
        )
    )
    harness.process_element(("a", []), 15)
    harness.process_watermark(100)
    assert harness.extract_output_values() == [("a", ["seen"]), ("a", ["seen"])]


class Rules:
    """A broadcast function; each record of the other input gets the rules as they are."""

    DESCRIPTOR = MapStateDescriptor("rules", Types.STRING(), Types.PICKLED_BYTE_ARRAY())


def test_broadcast_state_is_what_it_was_and_so_are_results() -> None:
    class Ruled(KeyedBroadcastProcessFunction):
        def __init__(self) -> None:
            self.rule: list[str] = []

        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            rules = ctx.get_broadcast_state(Rules.DESCRIPTOR)
            yield dict(rules.items())

        def process_broadcast_element(self, value: str, ctx: Any) -> Iterator[Any]:
            self.rule.append(value)
            ctx.get_broadcast_state(Rules.DESCRIPTOR).put(value, self.rule)
            yield self.rule

    harness = BroadcastOperatorHarness(Ruled(), [Rules.DESCRIPTOR], by_name)
    harness.process_broadcast_element("x")
    harness.process_broadcast_element("y")
    harness.process_element(("a", 1))
    assert harness.extract_output_values() == [["x"], ["x", "y"], {"x": ["x"], "y": ["x", "y"]}]
