"""Harnesses of two inputs, of broadcast state, of chains, and of whatever streams make."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pytest

from pyflinkstate import (
    BroadcastProcessFunction,
    CoMapFunction,
    CoProcessFunction,
    Duration,
    FilterFunction,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError, UserFunctionError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.testing import (
    MAX_WATERMARK,
    BroadcastOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    ManualClock,
    OneInputOperatorHarness,
    StreamRecord,
    TwoInputOperatorHarness,
    Watermark,
    harness_of,
    split,
)

RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
LIMITS = ValueStateDescriptor("limit", Types.LONG())


class Join(KeyedCoProcessFunction):
    """Pairs a record of the second input with the last one of the first; a timer forgets that."""

    def open(self, runtime_context: Any) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left"))

    def process_element1(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> None:
        self.left.update(value)
        ctx.timer_service().register_event_time_timer(100)

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context) -> Iterable[Any]:
        yield self.left.value(), value

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterable[Any]:
        self.left.clear()
        yield "forgot", ctx.get_current_key()


def join(**options: Any) -> KeyedTwoInputOperatorHarness:
    return KeyedTwoInputOperatorHarness(Join(), itemgetter(0), itemgetter(1), Types.STRING(), **options)


class TestTwoInputs:
    def test_equal_keys_meet(self) -> None:
        harness = join()
        assert harness.process_element1(("a", 1)) == []
        assert harness.process_element2((2, "a"), 5) == [(("a", 1), (2, "a"))]
        assert harness.process_element2((2, "b")) == [(None, (2, "b"))]
        assert harness.get_output()[0] == StreamRecord((("a", 1), (2, "a")), 5)

    def test_the_watermark_is_the_lesser_of_both(self) -> None:
        harness = join()
        harness.process_element1(("a", 1))
        assert harness.process_watermark1(200) == []
        assert harness.process_watermark2(50) == []
        assert harness.process_watermark2(150) == [("forgot", "a")]
        assert harness.process_watermark(180) == []
        assert harness.get_output() == [
            Watermark(50),
            StreamRecord(("forgot", "a"), 100),
            Watermark(150),
            Watermark(180),
        ]

    def test_without_keys(self) -> None:
        class Both(CoProcessFunction):
            def process_element1(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
                return [("one", value, ctx.timestamp())]

            def process_element2(self, value: Any, ctx: CoProcessFunction.Context) -> Iterable[Any]:
                return [("two", value, ctx.timer_service().current_watermark())]

        for subtask in range(3):
            harness = TwoInputOperatorHarness(Both(), parallelism=3, subtask=subtask)
            harness.process_watermark(4)
            assert harness.process_element1("a", 5) == [("one", "a", 5)]
            assert harness.process_element2("b") == [("two", "b", 4)]

    def test_a_map_of_both(self) -> None:
        class Both(CoMapFunction):
            def map1(self, value: Any) -> Any:
                return value + 1

            def map2(self, value: Any) -> Any:
                return value - 1

        of_streams = harness_of(lambda a, b: a.connect(b).map(Both()))
        assert isinstance(of_streams, TwoInputOperatorHarness)
        keyed = KeyedTwoInputOperatorHarness(Both(), str, str)
        for harness in (TwoInputOperatorHarness(Both()), keyed, of_streams):
            assert (harness.process_element1(1), harness.process_element2(1)) == ([2], [0])


class Limits(KeyedBroadcastProcessFunction):
    """Passes on what is above the broadcast limit, and notes the limit under the record's key."""

    def open(self, runtime_context: Any) -> None:
        self.limit = runtime_context.get_state(LIMITS)

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        limit = ctx.get_broadcast_state(RULES).get("limit") or 0
        self.limit.update(limit)
        return [value] if value[1] > limit else []

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put("limit", value)
        seen: list[Any] = []
        ctx.apply_to_keyed_state(LIMITS, lambda key, state: seen.append((key, state.value())))
        return [sorted(seen)]


class TestBroadcast:
    def harness(self, **options: Any) -> BroadcastOperatorHarness:
        return BroadcastOperatorHarness(Limits(), [RULES], itemgetter(0), Types.STRING(), **options)

    def test_records_see_what_was_broadcast(self) -> None:
        harness = self.harness()
        assert harness.process_element(("a", 1)) == [("a", 1)]
        assert harness.process_broadcast_element(5) == [[("a", 0)]]
        assert harness.process_element(("a", 5)) == []
        assert harness.process_element(("b", 6)) == [("b", 6)]
        assert harness.process_broadcast_element(7) == [[("a", 5), ("b", 5)]]

    def test_every_subtask_restores_broadcast_state(self) -> None:
        harness = self.harness()
        harness.process_broadcast_element(5)
        for part in split(harness.snapshot(), 3):
            restored = self.harness(restore=part)
            state = restored.subtask.state.operator.get_broadcast_state(RULES)
            assert dict(state.items()) == {"limit": 5}

    def test_without_keys(self) -> None:
        class Plain(BroadcastProcessFunction):
            def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
                return [(value, ctx.get_broadcast_state(RULES).get("limit"))]

            def process_broadcast_element(self, value: Any, ctx: Any) -> None:
                ctx.get_broadcast_state(RULES).put("limit", value)

        harness = BroadcastOperatorHarness(Plain(), [RULES], parallelism=2, subtask=1)
        assert harness.process_broadcast_element(3) == []
        assert harness.process_element("x") == [("x", 3)]


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value * 1000


class Twice(FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        return value, value


class Broken(Twice):
    def open(self, runtime_context: Any) -> None:
        raise OSError("no such file")


class Positive(FilterFunction):
    def filter(self, value: Any) -> bool:
        return value > 0


class Times(ProcessFunction):
    """Gives the times it is told; values above 9 go to the side."""

    BIG = OutputTag("big")

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        if value > 9:
            yield self.BIG, value
        yield value, ctx.timestamp(), timers.current_watermark(), timers.current_processing_time()


class TestChains:
    def test_a_chain_goes_record_by_record(self) -> None:
        harness = OneInputOperatorHarness(Positive(), Twice())
        assert [harness.process_element(value, value) for value in (1, -1, 2)] == [[1, 1], [], [2, 2]]
        assert harness.get_output()[-1] == StreamRecord(2, 2)

    def test_functions_are_told_time_by_hand(self) -> None:
        harness = OneInputOperatorHarness(Times(), clock=ManualClock(7))
        harness.process_watermark(3)
        assert harness.process_element(1, 5) == [(1, 5, 3, 7)]
        harness.set_processing_time(8)
        harness.process_watermark(2)
        assert harness.process_element(11) == [(11, None, 3, 8)]
        assert harness.get_side_output(Times.BIG) == [StreamRecord(11)]
        assert (harness.get_processing_time(), harness.get_watermark()) == (8, 3)

    def test_a_watermark_strategy_is_an_operator(self) -> None:
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
        harness = OneInputOperatorHarness(strategy.with_timestamp_assigner(Seconds()), Times())
        watermarks = [harness.process_element(value)[0][2] for value in (5, 4, 7, 7)]
        assert watermarks == [-(2**63), 3999, 3999, 5999]
        assert [item for item in harness.get_output() if isinstance(item, Watermark)] == [
            Watermark(3999),
            Watermark(5999),
        ]
        harness.process_watermark(9000)
        assert harness.get_watermark() == 5999
        harness.process_watermark(MAX_WATERMARK)
        assert harness.get_watermark() == MAX_WATERMARK

    def test_functions_are_opened_and_closed_once(self) -> None:
        events: list[str] = []

        class Noting(MapFunction):
            def open(self, runtime_context: Any) -> None:
                events.append(f"open {runtime_context.get_task_name()}")

            def map(self, value: Any) -> Any:
                return value

            def close(self) -> None:
                events.append("close")

        with OneInputOperatorHarness(Noting()) as harness:
            harness.process_element(1)
            harness.process_element(2)
            assert events == ["open Noting"]
        assert events == ["open Noting", "close"]

    def test_what_does_not_open_is_closed_and_reported(self) -> None:
        closed: list[str] = []

        class Opens(Twice):
            def close(self) -> None:
                closed.append("closed")

        with pytest.raises(UserFunctionError, match=r"no such file[\s\S]*in open\(\)"):
            OneInputOperatorHarness(Opens(), Broken())
        assert closed == ["closed"]

    def test_an_error_is_not_replaced_by_one_of_close(self, caplog: pytest.LogCaptureFixture) -> None:
        class FailsToClose(Twice):
            def close(self) -> None:
                raise TimeoutError("flush took too long")

        with pytest.raises(UserFunctionError, match="no such file"):
            OneInputOperatorHarness(FailsToClose(), Broken())
        with pytest.raises(KeyError), OneInputOperatorHarness(FailsToClose()):
            raise KeyError
        assert caplog.text.count("TimeoutError: flush took too long") == 2

    def test_errors_name_operator_and_record(self) -> None:
        harness = OneInputOperatorHarness(Positive(), output_type=Types.STRING())
        with pytest.raises(UserFunctionError, match=r"TypeError[\s\S]*operator 'Positive', record 'x'"):
            harness.process_element("x")
        with pytest.raises(BadRecordError, match=r"output_type"):
            harness.process_element(3)


def added(one: tuple[str, int], other: tuple[str, int]) -> tuple[str, int]:
    return one[0], one[1] + other[1]


class TestWindows:
    ASSIGNER = TumblingEventTimeWindows.of(10)

    @pytest.mark.parametrize(
        "made",
        [
            lambda: KeyedOneInputOperatorHarness(
                window_operator(TestWindows.ASSIGNER, contents=added), itemgetter(0)
            ),
            lambda: harness_of(
                lambda pairs: pairs.key_by(itemgetter(0)).window(TestWindows.ASSIGNER).reduce(added)
            ),
        ],
        ids=["operator", "stream"],
    )
    def test_of_an_operator_and_of_a_stream(self, made: Callable[[], Any]) -> None:
        harness = made()
        assert harness.process_element(("a", 1), 3) == []
        assert harness.process_element(("a", 2), 9) == []
        assert harness.num_event_time_timers() == 1
        assert harness.process_watermark(9) == [("a", 3)]
        assert harness.process_element(("a", 4), 5) == []
        assert harness.num_keyed_state_entries() == 0
        assert harness.metrics()["numLateRecordsDropped"].count == 1
        assert harness.get_output() == [StreamRecord(("a", 3), 9), Watermark(9)]

    def test_windows_of_all_records(self) -> None:
        harness = harness_of(lambda ones: ones.window_all(self.ASSIGNER).reduce(lambda a, b: a + b))
        for value in (1, 2):
            harness.process_element(value, 3)
        assert harness.process_watermark(MAX_WATERMARK) == [3]


class TestStreams:
    def test_partitioners_change_nothing_where_there_is_one_subtask(self) -> None:
        harness = harness_of(lambda words: words.rebalance().map(len).shuffle().filter(bool))
        assert (harness.process_element("ab"), harness.process_element("")) == ([2], [])
        keyed = harness_of(lambda words: words.broadcast().key_by(len).map(len))
        assert keyed.process_element("ab") == [2]

    def test_options_and_names_are_passed_on(self) -> None:
        harness = harness_of(
            lambda words: words.key_by(len).map(lambda word: word, Types.STRING()).name("words"),
            clock=ManualClock(4),
        )
        assert isinstance(harness, KeyedOneInputOperatorHarness)
        assert harness.get_processing_time() == 4
        assert harness.process_element("a") == ["a"]
        with pytest.raises(BadRecordError, match="'words'"):
            harness.process_element([1])

    def test_a_broadcast_stream(self) -> None:
        harness = harness_of(
            lambda pairs, rules: pairs.key_by(itemgetter(0)).connect(rules.broadcast(RULES)).process(Limits())
        )
        assert isinstance(harness, BroadcastOperatorHarness)
        harness.process_broadcast_element(5)
        assert harness.process_element(("a", 6)) == [("a", 6)]


class Above(ProcessFunction):
    """Gives the records above a parameter of the job."""

    def open(self, runtime_context: Any) -> None:
        self.limit = int(runtime_context.get_job_parameter("limit", "0"))

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        if value > self.limit:
            yield value


class KeyedAbove(KeyedProcessFunction):
    """The same on a keyed stream, with the name of a parameter that is not there."""

    def open(self, runtime_context: Any) -> None:
        self.limit = int(runtime_context.get_job_parameter("limit", "0"))
        self.other = runtime_context.get_job_parameter("other", "none")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        if value > self.limit:
            yield ctx.get_current_key(), self.other


class Modulo(KeySelector):
    def open(self, runtime_context: Any) -> None:
        self.divisor = int(runtime_context.get_job_parameter("divisor", "1"))

    def get_key(self, value: Any) -> int:
        return int(value) % self.divisor


class TestJobParameters:
    @pytest.mark.parametrize("limit", ["5", 5])
    def test_of_a_chain(self, limit: Any) -> None:
        harness = OneInputOperatorHarness(Above(), job_parameters={"limit": limit})
        assert [harness.process_element(n) for n in (5, 6)] == [[], [6]]
        assert OneInputOperatorHarness(Above()).process_element(5) == [5]

    def test_of_a_keyed_function_and_its_key_selector(self) -> None:
        harness = KeyedOneInputOperatorHarness(
            KeyedAbove(), Modulo(), job_parameters={"limit": 5, "divisor": "4"}
        )
        assert [harness.process_element(n) for n in (5, 6)] == [[], [(2, "none")]]

    def test_of_what_streams_make(self) -> None:
        harness = harness_of(
            lambda numbers: numbers.key_by(Modulo()).process(KeyedAbove()), job_parameters={"divisor": "4"}
        )
        assert harness.process_element(7) == [(3, "none")]
        chain = harness_of(lambda numbers: numbers.process(Above()), job_parameters={"limit": "5"})
        assert chain.process_element(5) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: TwoInputOperatorHarness(Join()),
            ConfigurationError,
            "CoProcessFunction",
            id="functions_of_another_kind_are_refused_1",
        ),
        pytest.param(
            lambda: KeyedTwoInputOperatorHarness(MapFunction, str, str),
            ConfigurationError,
            "KeyedCoProcessFunction",
            id="functions_of_another_kind_are_refused_2",
        ),
        pytest.param(
            lambda: BroadcastOperatorHarness(Limits(), [RULES]),
            ConfigurationError,
            " BroadcastProcessFunction",
            id="keys_and_function_must_fit",
        ),
        pytest.param(
            lambda: OneInputOperatorHarness(Above(), job_parameters=["limit"]),
            ConfigurationError,
            "job parameters are a dict",
            id="what_is_no_dict_is_refused",
        ),
        *(
            pytest.param(
                lambda function=function: OneInputOperatorHarness(function),
                ConfigurationError,
                "harness_of",
                id="plain_callables_and_keyed_functions_are_refused",
            )
            for function in (str, Join())
        ),
        *(
            pytest.param(
                lambda build=build: harness_of(build),
                ConfigurationError,
                "a harness for each",
                id="more_than_one_operator_is_refused",
            )
            for build in (
                lambda stream: stream.map(str).key_by(str).map(str),
                lambda stream: stream.key_by(str).map(str).map(str),
            )
        ),
        *(
            pytest.param(
                lambda build=build: harness_of(build),
                ConfigurationError,
                "adds an operator to a stream",
                id="no_operator_is_refused",
            )
            for build in (lambda stream: stream, lambda stream: None, lambda stream: stream.key_by(str))
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
