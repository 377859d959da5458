"""Chains of operators without state: what they give, their life cycle, and how they fail."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import pytest
from slot_functions import Mean
from support_runtime import PACKAGE, raising

from pyflinkstate import (
    AggregatingStateDescriptor,
    FilterFunction,
    FlatMapFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    ProcessFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    TimestampAssigner,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, NotKeyedStreamError, UserFunctionError
from pyflinkstate.runtime.plan import WATERMARKS, ChainedOperator
from pyflinkstate.runtime.tasks import Chain, TaskInfo

INFO = TaskInfo(subtask=1, parallelism=4, attempt=2)


def run(*operators: ChainedOperator, records: Iterable[Any] = range(6)) -> list[Any]:
    return list(Chain(operators, INFO, Counter()).run(records))


class Recorded:
    """Notes what is called in a list that several functions share."""

    def __init__(self, name: str, calls: list[str], fail_in: str = "") -> None:
        self.name, self.calls, self.fail_in = name, calls, fail_in

    def note(self, what: str) -> None:
        self.calls.append(f"{what} {self.name}")
        if what == self.fail_in:
            raise LookupError(f"{self.name} fails in {what}")

    def open(self, runtime_context: RuntimeContext) -> None:
        self.context = runtime_context
        self.note("open")

    def close(self) -> None:
        self.note("close")


class RichMap(Recorded, MapFunction):
    def map(self, value: int) -> int:
        self.note("run")
        return value * 10


class RichFilter(Recorded, FilterFunction):
    def filter(self, value: int) -> bool:
        return value % 2 == 0


class RichFlatMap(Recorded, FlatMapFunction):
    def flat_map(self, value: int) -> Iterable[int] | None:
        return None if value == 3 else [value] * (value % 3)


class RichProcess(Recorded, ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp()


def generator(value: int) -> Iterable[int]:
    for _ in range(value % 3):
        yield value


#: kind, a function of it, and what comes out of 0..5.
FUNCTIONS: dict[str, tuple[str, Callable[[], Any], list[Any]]] = {
    "map, plain": ("map", lambda: lambda value: value * 10, [0, 10, 20, 30, 40, 50]),
    "map, rich": ("map", lambda: RichMap("m", []), [0, 10, 20, 30, 40, 50]),
    "map, built-in": ("map", lambda: str, ["0", "1", "2", "3", "4", "5"]),
    "map, to None": ("map", lambda: lambda value: None, [None] * 6),
    "filter, plain": ("filter", lambda: lambda value: value % 2 == 0, [0, 2, 4]),
    "filter, rich": ("filter", lambda: RichFilter("f", []), [0, 2, 4]),
    "filter, truthy": ("filter", lambda: lambda value: "x" * value, [1, 2, 3, 4, 5]),
    "flat_map, list": ("flat_map", lambda: lambda value: [value] * (value % 3), [1, 2, 2, 4, 5, 5]),
    "flat_map, generator": ("flat_map", lambda: generator, [1, 2, 2, 4, 5, 5]),
    "flat_map, rich": ("flat_map", lambda: RichFlatMap("fm", []), [1, 2, 2, 4, 5, 5]),
    "flat_map, None": ("flat_map", lambda: lambda value: None, []),
    "process": ("process", lambda: RichProcess("p", []), [(value, None) for value in range(6)]),
}


@pytest.mark.parametrize("case", FUNCTIONS)
def test_what_an_operator_makes_of_its_records(case: str) -> None:
    kind, function, expected = FUNCTIONS[case]
    assert run(ChainedOperator(kind, "op", function())) == expected


def test_a_chain_passes_results_on_record_by_record() -> None:
    calls: list[str] = []
    operators = [
        ChainedOperator("map", "first", lambda value: calls.append(f"first {value}") or value),
        ChainedOperator("flat_map", "second", lambda value: [value, -value]),
        ChainedOperator("map", "third", lambda value: calls.append(f"third {value}") or value),
    ]
    assert run(*operators, records=[1, 2]) == [1, -1, 2, -2]
    assert calls == ["first 1", "third 1", "third -1", "first 2", "third 2", "third -2"]


def test_no_operators_and_no_records() -> None:
    assert run(records=[1, 2]) == [1, 2]
    assert run(ChainedOperator("map", "m", str), records=[]) == []


# --- the life cycle ------------------------------------------------------------------------------


def three(calls: list[str], **fail_in: str) -> list[ChainedOperator]:
    made = {"a": RichMap, "b": RichFilter, "c": RichMap}
    kinds = {"a": "map", "b": "filter", "c": "map"}
    return [
        ChainedOperator(kinds[name], name, cls(name, calls, fail_in.get(name, "")))
        for name, cls in made.items()
    ]


OPENED, RUN, CLOSED = ["open a", "open b", "open c"], ["run a", "run c"], ["close a", "close b", "close c"]
#: Where functions fail, the records, the error, what is called, and whose error in ``close`` is only logged.
LIVES: dict[str, tuple[dict[str, str], list[int], str, list[str], str]] = {
    "each is opened and closed once": ({}, [0], "", [*OPENED, *RUN, *CLOSED], ""),
    "also without records": ({}, [], "", [*OPENED, *CLOSED], ""),
    "closed once if one fails": ({"c": "run"}, [0], "c fails in run", [*OPENED, *RUN, *CLOSED], ""),
    "only what was opened is closed": (
        {"b": "open"},
        [0],
        r"b fails in open[\s\S]*operator 'b', in open",
        ["open a", "open b", "close a"],
        "",
    ),
    "an error in close keeps no other from closing": (
        {"a": "close"},
        [0],
        r"a fails in close[\s\S]*operator 'a'",
        [*OPENED, *RUN, *CLOSED],
        "",
    ),
    "of several errors in close the first is raised": (
        {"a": "close", "b": "close"},
        [0],
        "a fails in close",
        [*OPENED, *RUN, *CLOSED],
        "b",
    ),
    "an error in close does not hide what did not open": (
        {"a": "close", "c": "open"},
        [0],
        "c fails in open",
        [*OPENED, "close a", "close b"],
        "a",
    ),
}


def logged(caplog: pytest.LogCaptureFixture) -> str:
    """Return the names of the functions whose error in ``close`` was logged."""
    told = "{0} fails in close\n  in operator '{0}', in close()"
    return "".join(name for name in "abc" if told.format(name) in caplog.text)


@pytest.mark.parametrize("case", LIVES)
def test_the_life_of_functions(case: str, caplog: pytest.LogCaptureFixture) -> None:
    fail_in, records, error, expected, only_logged = LIVES[case]
    calls: list[str] = []
    with pytest.raises(UserFunctionError, match=error) if error else nullcontext():
        assert run(*three(calls, **fail_in), records=records) == [100 * record for record in records]
    assert (calls, logged(caplog)) == (expected, only_logged)


@pytest.mark.parametrize(("fail_in", "only_logged"), [({}, ""), ({"a": "close", "b": "close"}, "ab")])
def test_functions_are_closed_when_nobody_reads_on(
    fail_in: dict[str, str], only_logged: str, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    running = Chain(three(calls, **fail_in), INFO, Counter()).run(range(100))
    assert next(running) == 0
    running.close()
    assert (calls[-3:], logged(caplog)) == (CLOSED, only_logged)


def failing_in_close(calls: list[str]) -> list[ChainedOperator]:
    return three(calls, a="close", b="close")


def test_a_close_that_raises_does_not_hide_why_the_chain_has_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The first error says whether the job may restart, and the other one would say yes."""
    calls: list[str] = []
    check = ChainedOperator("map", "check", raising(BadRecordError("the record is bad")))
    with pytest.raises(BadRecordError, match=r"the record is bad[\s\S]*operator 'check'") as caught:
        run(*failing_in_close(calls), check)
    assert not caught.value.recoverable
    assert calls[-3:] == CLOSED
    assert logged(caplog) == "ab"


def test_an_error_of_the_source_is_not_blamed_on_an_operator_nor_hidden_by_a_close_that_raises() -> None:
    calls: list[str] = []

    def broken() -> Iterable[int]:
        yield 1
        raise ConnectionResetError("upstream")

    with pytest.raises(ConnectionResetError, match="upstream"):
        run(*failing_in_close(calls), records=broken())
    assert calls[-3:] == CLOSED


def test_a_close_that_ends_the_process_is_an_error_of_its_operator() -> None:
    calls: list[str] = []

    class Exits(RichMap):
        def close(self) -> None:
            raise SystemExit(3)

    exits = ChainedOperator("map", "exits", Exits("exits", calls))
    with pytest.raises(UserFunctionError, match=r"SystemExit: 3\s+in operator 'exits', in close\(\)"):
        run(exits, *three(calls), records=[])
    assert calls[-3:] == CLOSED


#: What the functions below raise.
ENDING: BaseException = SystemExit("no more of this")


def exits(*_: Any) -> Any:
    raise ENDING


class YieldsThenExits(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        yield value
        exits()


class ExitsInProcess(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        exits()
        yield value


class ExitsInOpen(RichMap):
    def open(self, runtime_context: RuntimeContext) -> None:
        exits()


class ExitsInGauge(RichMap):
    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        runtime_context.get_metrics_group().gauge("exits", exits)


class ExitingAssigner(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return exits()


EXITS = {
    "map": exits,
    "filter": exits,
    "flat_map": YieldsThenExits(),
    "process": ExitsInProcess(),
    WATERMARKS: WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ExitingAssigner()),
}


@pytest.mark.parametrize("kind", EXITS)
def test_sys_exit_in_a_function_is_an_error_of_its_operator(kind: str) -> None:
    with pytest.raises(
        UserFunctionError, match=r"SystemExit: no more of this\s+in operator 'mine', record 7"
    ):
        run(ChainedOperator(kind, "mine", EXITS[kind], assigner_id="a"), records=[7])


@pytest.mark.parametrize(("function", "place"), [(ExitsInOpen, r"in open\(\)"), (ExitsInGauge, "in a gauge")])
def test_so_it_is_where_there_is_no_record(function: type[RichMap], place: str) -> None:
    with pytest.raises(UserFunctionError, match=rf"(?s)SystemExit: no more of this.*{place}"):
        list(
            Chain([ChainedOperator("map", "mine", function("mine", []))], TaskInfo(0, 1, 0), Counter()).run(
                []
            )
        )


@pytest.mark.parametrize("kind", EXITS)
def test_an_interrupt_of_the_task_is_no_error_of_a_function(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's workers leave SIGINT to Python, and end by SIGKILL or SIGTERM, which no code sees."""
    monkeypatch.setattr(sys.modules[__name__], "ENDING", KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(ChainedOperator(kind, "mine", EXITS[kind], assigner_id="a"), records=[7])


def test_a_chain_may_be_closed_in_the_middle_of_a_function() -> None:
    results = Chain([ChainedOperator("flat_map", "mine", YieldsThenExits())], INFO, Counter()).run([7])
    assert next(results) == 7
    results.close()


def test_the_runtime_context_tells_where_the_function_runs() -> None:
    function = RichMap("m", [])
    run(ChainedOperator("map", "enrich", function))
    context = function.context
    assert function.get_runtime_context() is context
    assert (context.get_task_name(), context.get_task_name_with_subtasks()) == ("enrich", "enrich (2/4)")
    numbers = (
        context.get_index_of_this_subtask(),
        context.get_number_of_parallel_subtasks(),
        context.get_max_number_of_parallel_subtasks(),
        context.get_attempt_number(),
    )
    assert numbers == (1, 4, 4, 2)


KEYED_STATES: dict[str, Callable[[RuntimeContext], Any]] = {
    "value": lambda context: context.get_state(ValueStateDescriptor("value")),
    "list": lambda context: context.get_list_state(ListStateDescriptor("list")),
    "map": lambda context: context.get_map_state(MapStateDescriptor("map")),
    "reducing": lambda context: context.get_reducing_state(ReducingStateDescriptor("reducing", max)),
    "aggregating": lambda context: context.get_aggregating_state(
        AggregatingStateDescriptor("aggregating", Mean())
    ),
}


@pytest.mark.parametrize("kind", KEYED_STATES)
def test_keyed_state_off_a_keyed_stream_is_refused(kind: str) -> None:
    class Stateful(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.state = KEYED_STATES[kind](runtime_context)

        def map(self, value: int) -> int:
            return value

    with pytest.raises(NotKeyedStreamError) as caught:
        run(ChainedOperator("map", "enrich", Stateful()))
    assert f"keyed state {kind!r}" in str(caught.value)
    assert "operator 'enrich'" in str(caught.value)
    assert caught.value.context["state"] == kind


# --- failures ------------------------------------------------------------------------------------


def divide(value: int) -> float:
    return 1 / (value - 4)


def divide_lazily(value: int) -> Iterable[float]:
    yield divide(value)


class Divide(ProcessFunction):
    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterable[float]:
        return [divide(value)]


FAILING: dict[str, Any] = {
    "map": divide,
    "filter": divide,
    "flat_map": divide_lazily,
    "process": Divide(),
}


@pytest.mark.parametrize("kind", FAILING)
def test_an_error_names_operator_and_record_and_shows_the_users_own_lines(kind: str) -> None:
    before = ChainedOperator("map", "before", lambda value: value)
    after = ChainedOperator("map", "after", lambda value: value)
    with pytest.raises(UserFunctionError) as caught:
        run(before, ChainedOperator(kind, "ratio", FAILING[kind]), after)
    text = str(caught.value)
    assert text.startswith("ZeroDivisionError: division by zero")
    assert "operator 'ratio', record 4" in text
    assert "return 1 / (value - 4)" in text
    assert PACKAGE not in text
    assert caught.value.context["operator"] == "ratio"
    assert caught.value.context["record"] == "4"


def test_a_long_record_is_cut_and_a_repr_that_raises_is_no_obstacle() -> None:
    class Shy:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    with pytest.raises(UserFunctionError, match=r"record \[0, 1, .*\.\.\."):
        run(ChainedOperator("map", "fail", lambda value: value + 1), records=[list(range(10_000))])
    with pytest.raises(UserFunctionError, match="<Shy, whose repr raised RuntimeError>"):
        run(ChainedOperator("map", "fail", lambda value: value + 1), records=[Shy()])


def test_an_exception_whose_text_cannot_be_had_is_reported_all_the_same() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def fail(value: int) -> int:
        raise MuteError

    with pytest.raises(UserFunctionError, match="MuteError"):
        run(ChainedOperator("map", "fail", fail))


# --- counts --------------------------------------------------------------------------------------


def test_filters_count_what_they_drop_together_if_they_share_a_name() -> None:
    counts: Counter[str] = Counter()
    operators = [
        ChainedOperator("filter", "even", lambda value: value % 2 == 0),
        ChainedOperator("filter", "large", lambda value: value > 4),
        ChainedOperator("filter", "large", lambda value: value > 6),
        ChainedOperator("filter", "all", lambda value: True),
    ]
    assert list(Chain(operators, INFO, counts).run(range(10))) == [8]
    assert counts == {"even.records_dropped": 5, "large.records_dropped": 4, "all.records_dropped": 0}
