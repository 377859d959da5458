"""The harness of an operator on a keyed stream: what it gives, and that it is the real thing underneath."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pytest

from pyflinkstate import (
    CheckpointedFunction,
    CheckpointListener,
    HashMapStateBackend,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    StateTtlConfig,
    Time,
    TimeDomain,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    IncompatibleCheckpointError,
    InvalidKeyError,
    KeyGroupRangeError,
    NoCurrentKeyError,
    ParallelismError,
    StateMigrationError,
    UserFunctionError,
)
from pyflinkstate.testing import (
    MAX_WATERMARK,
    NO_WATERMARK,
    KeyedOneInputOperatorHarness,
    ManualClock,
    StreamRecord,
    Watermark,
    split,
)

ODD = OutputTag("odd", Types.LONG())
KEYS = [f"key-{number}" for number in range(40)]


class Sums(KeyedProcessFunction):
    """Sums of each key; odd numbers also go to the side; ``("at", domain, time)`` sets a timer."""

    def __init__(self, ttl_ms: int | None = None) -> None:
        self.ttl_ms = ttl_ms

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("sum", Types.LONG())
        if self.ttl_ms is not None:
            config = StateTtlConfig.new_builder(Time.milliseconds(self.ttl_ms)).build()
            descriptor.enable_time_to_live(config)
        self.sum = runtime_context.get_state(descriptor)
        self.records = runtime_context.get_metrics_group().counter("records")

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.records.inc()
        _, what, *rest = value
        if what == "at":
            domain, time = rest
            timers = ctx.timer_service()
            event = domain is TimeDomain.EVENT_TIME
            (timers.register_event_time_timer if event else timers.register_processing_time_timer)(time)
            return
        if what % 2:
            yield ODD, what
        self.sum.update((self.sum.value() or 0) + what)
        yield ctx.get_current_key(), self.sum.value()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield ctx.get_current_key(), ctx.time_domain().name, timestamp, self.sum.value()


def sums(ttl_ms: int | None = None, **options: Any) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(Sums(ttl_ms), itemgetter(0), Types.STRING(), **options)


EVENT, PROCESSING = TimeDomain.EVENT_TIME, TimeDomain.PROCESSING_TIME


class TestOutput:
    def test_a_call_returns_what_it_gave_and_all_of_it_is_kept_in_order(self) -> None:
        harness = sums()
        assert harness.process_element(("a", 2), 7) == [("a", 2)]
        assert harness.process_element(("b", 4)) == [("b", 4)]
        assert harness.process_watermark(9) == []
        assert harness.process_element(("a", 6), 8) == [("a", 8)]
        assert harness.extract_output_values() == [("a", 2), ("b", 4), ("a", 8)]
        assert harness.get_output() == [
            StreamRecord(("a", 2), 7),
            StreamRecord(("b", 4)),
            Watermark(9),
            StreamRecord(("a", 8), 8),
        ]

    def test_side_outputs_are_apart_and_keep_their_timestamps(self) -> None:
        harness = sums()
        harness.process_element(("a", 1), 5)
        harness.process_element(("a", 3))
        assert harness.extract_output_values() == [("a", 1), ("a", 4)]
        assert harness.get_side_output(ODD) == [StreamRecord(1, 5), StreamRecord(3)]
        assert harness.extract_side_output_values(OutputTag("odd")) == [1, 3]
        assert harness.get_side_output(OutputTag("never used")) == []
        harness.get_output().clear()
        harness.get_side_output(ODD).clear()
        assert harness.extract_output_values() == [("a", 1), ("a", 4)]
        assert harness.extract_side_output_values(ODD) == [1, 3]

    def test_results_are_checked_against_their_type(self) -> None:
        harness = sums(output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        assert harness.process_element(("a", 1)) == [("a", 1)]
        with pytest.raises(
            BadRecordError, match=r"'Sums'[\s\S]*output_type[\s\S]*record \('a', 2147483648\)"
        ):
            harness.process_element(("a", 2**31 - 1))
        with pytest.raises(BadRecordError, match="side output odd"):
            harness.get_side_output(OutputTag("odd", Types.STRING()))
        assert harness.metrics()["records"].count == 2


class TestTime:
    def test_event_time_timers_fire_in_order_and_before_the_watermark_goes_on(self) -> None:
        harness = sums()
        for time in (30, 10, 20):
            harness.process_element(("a", "at", EVENT, time))
        assert harness.num_event_time_timers() == 3
        assert harness.process_watermark(20) == [("a", "EVENT_TIME", time, None) for time in (10, 20)]
        assert harness.num_event_time_timers() == 1
        assert harness.get_output()[1:] == [StreamRecord(("a", "EVENT_TIME", 20, None), 20), Watermark(20)]

    def test_a_watermark_never_goes_back(self) -> None:
        harness = sums()
        assert harness.get_watermark() == NO_WATERMARK
        for timestamp in (5, 3, 5):
            harness.process_watermark(timestamp)
        assert harness.get_output() == [Watermark(5)]
        harness.process_watermark(MAX_WATERMARK)
        assert harness.get_watermark() == MAX_WATERMARK

    def test_processing_time_timers_fire_when_the_clock_says_so(self) -> None:
        harness = sums()
        for time in (30, 10):
            harness.process_element(("a", "at", PROCESSING, time))
        assert harness.num_processing_time_timers() == 2
        assert harness.set_processing_time(9) == []
        assert harness.set_processing_time(10) == [("a", "PROCESSING_TIME", 10, None)]
        assert (harness.get_processing_time(), harness.num_processing_time_timers()) == (10, 1)
        assert harness.get_output() == [StreamRecord(("a", "PROCESSING_TIME", 10, None))]

    def test_timers_that_are_due_fire_before_the_next_record_as_in_a_slot(self) -> None:
        harness = sums()
        harness.process_element(("a", "at", PROCESSING, -1))
        assert harness.process_element(("a", 2)) == [("a", "PROCESSING_TIME", -1, None), ("a", 2)]

    def test_one_clock_is_behind_time_to_live_and_timers(self) -> None:
        harness = sums(ttl_ms=100)
        harness.process_element(("a", 1))
        harness.process_element(("a", "at", PROCESSING, 99))
        assert harness.set_processing_time(99) == [("a", "PROCESSING_TIME", 99, 1)]
        harness.process_element(("a", "at", PROCESSING, 100))
        assert harness.set_processing_time(100) == [("a", "PROCESSING_TIME", 100, None)]

    def test_a_clock_may_be_shared(self) -> None:
        clock = ManualClock(50)
        first, second = sums(ttl_ms=100, clock=clock), sums(ttl_ms=100, clock=clock)
        for harness in (first, second):
            harness.process_element(("a", 1))
        first.set_processing_time(150)
        assert second.get_processing_time() == 150
        assert second.process_element(("a", 1)) == [("a", 1)]


class TestState:
    @pytest.mark.parametrize("backend", [HashMapStateBackend(), HashMapStateBackend(async_snapshots=False)])
    @pytest.mark.parametrize("parallelism", [1, 2, 3, 7])
    def test_a_snapshot_is_restored_at_any_parallelism(
        self, backend: HashMapStateBackend, parallelism: int
    ) -> None:
        old = sums(state_backend=backend)
        for number, key in enumerate(KEYS):
            old.process_element((key, number))
            old.process_element((key, "at", EVENT, number))
        old.process_watermark(-5)
        parts = split(old.snapshot(), parallelism)
        new = [sums(state_backend=backend, restore=part) for part in parts]
        assert sum(harness.num_keyed_state_entries() for harness in new) == len(KEYS)
        assert {harness.get_watermark() for harness in new} == {-5}
        fired = [result for harness in new for result in harness.process_watermark(100)]
        assert sorted(fired) == sorted((key, "EVENT_TIME", n, n) for n, key in enumerate(KEYS))

    def test_several_snapshots_become_one(self) -> None:
        old = [sums(parallelism=3, subtask=subtask) for subtask in range(3)]
        for key in KEYS:
            owned = [harness for harness in old if _takes(harness, (key, 2))]
            assert len(owned) == 1
        for number, harness in enumerate(old):
            harness.process_watermark(10 + number)
        whole = sums(restore=[harness.snapshot() for harness in old])
        assert whole.get_watermark() == 10
        assert [whole.process_element((key, 2)) for key in KEYS] == [[(key, 4)] for key in KEYS]

    def test_a_snapshot_does_not_change_any_more(self) -> None:
        harness = sums()
        harness.process_element(("a", 2))
        snapshot = harness.snapshot()
        harness.process_element(("a", 2))
        assert harness.num_keyed_state_entries() == 1
        assert sums(restore=[snapshot]).process_element(("a", 2)) == [("a", 4)]

    def test_checkpoints_are_numbered_on(self) -> None:
        harness = sums()
        assert [harness.snapshot().checkpoint_id for _ in range(2)] == [1, 2]
        assert harness.snapshot(7).checkpoint_id == 7
        assert sums(restore=[harness.snapshot()]).snapshot().checkpoint_id == 9

    def test_a_function_takes_part_in_checkpoints(self) -> None:
        function = Listening()
        harness = KeyedOneInputOperatorHarness(function, str, clock=ManualClock(3))
        harness.snapshot()
        harness.notify_checkpoint_complete(1)
        harness.notify_checkpoint_aborted(2)
        KeyedOneInputOperatorHarness(function, str, restore=[harness.snapshot(4, 5)])
        assert function.heard == [None, (1, 3), "complete 1", "aborted 2", (4, 5), 4]

    def test_incompatible_state_is_refused_as_in_a_job(self) -> None:
        class Other(Listening):
            def open(self, runtime_context: Any) -> None:
                runtime_context.get_state(ValueStateDescriptor("sum", Types.STRING()))

        old = sums()
        old.process_element(("a", 1))
        with pytest.raises(StateMigrationError):
            KeyedOneInputOperatorHarness(Other(), str, Types.STRING(), restore=[old.snapshot()])


def _takes(harness: KeyedOneInputOperatorHarness, record: Any) -> bool:
    try:
        harness.process_element(record)
    except KeyGroupRangeError:
        return False
    return True


class Listening(KeyedProcessFunction, CheckpointedFunction, CheckpointListener):
    """Notes what it is told of checkpoints."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def initialize_state(self, context: Any) -> None:
        self.heard.append(context.get_restored_checkpoint_id())

    def snapshot_state(self, context: Any) -> None:
        self.heard.append((context.get_checkpoint_id(), context.get_checkpoint_timestamp()))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.append(f"complete {checkpoint_id}")

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(f"aborted {checkpoint_id}")

    def process_element(self, value: Any, ctx: Any) -> None:
        return None


class TestMistakes:
    def test_the_users_errors_come_as_those_of_a_job(self) -> None:
        class Broken(Listening):
            def process_element(self, value: Any, ctx: Any) -> Any:
                return 1 // value

        harness = KeyedOneInputOperatorHarness(Broken(), lambda value: "k", name="divide")
        with pytest.raises(UserFunctionError, match=r"ZeroDivisionError[\s\S]*'divide', key 'k', record 0"):
            harness.process_element(0)

    def test_a_key_of_another_subtask_names_its_owner(self) -> None:
        harnesses = [sums(parallelism=2, subtask=subtask) for subtask in range(2)]
        (other,) = (harness for harness in harnesses if not _takes(harness, ("a", 1)))
        with pytest.raises(KeyGroupRangeError, match=r"key 'a' belongs to subtask \d of 2"):
            other.process_element(("a", 1))

    def test_no_key_is_set_in_open(self) -> None:
        class Eager(Listening):
            def open(self, runtime_context: Any) -> None:
                runtime_context.get_state(ValueStateDescriptor("v")).value()

        with pytest.raises(NoCurrentKeyError, match=r"in open\(\)"):
            KeyedOneInputOperatorHarness(Eager(), str)

    def test_a_key_selector_may_be_an_object(self) -> None:
        class First(KeySelector):
            def get_key(self, value: Any) -> Any:
                return value[0]

        assert KeyedOneInputOperatorHarness(Sums(), First()).process_element(("a", 2)) == [("a", 2)]

    def test_max_parallelism_is_that_of_the_snapshot(self) -> None:
        snapshot = sums(max_parallelism=16).snapshot()
        assert sums(restore=[snapshot]).snapshot().max_parallelism == 16
        with pytest.raises(IncompatibleCheckpointError, match="16, which cannot become 32"):
            sums(max_parallelism=32, restore=[snapshot])
        with pytest.raises(IncompatibleCheckpointError, match="differ in max parallelism"):
            split([snapshot, sums().snapshot()], 1)

    def test_an_error_of_the_test_is_not_replaced_by_one_of_close(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        class FailsToClose(Listening):
            def close(self) -> None:
                raise TimeoutError("flush took too long")

        with pytest.raises(KeyError), KeyedOneInputOperatorHarness(FailsToClose(), str):
            raise KeyError
        assert "flush took too long" in caplog.text
        with pytest.raises(UserFunctionError, match="flush took too long"):
            KeyedOneInputOperatorHarness(FailsToClose(), str).close()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: sums().process_element(()),
            UserFunctionError,
            r"IndexError[\s\S]*operator 'Sums', record \(\)",
            id="a_key_selector_that_raises",
        ),
        pytest.param(
            lambda: KeyedOneInputOperatorHarness(Sums(), "name"),
            ConfigurationError,
            "key_selector",
            id="a_key_selector_must_be_callable",
        ),
        pytest.param(
            lambda: sums(parallelism=3, max_parallelism=2),
            ParallelismError,
            "not within bounds: 3",
            id="parallelism_must_fit_1",
        ),
        pytest.param(
            lambda: sums(parallelism=2, subtask=2),
            ConfigurationError,
            "there is no subtask 2",
            id="parallelism_must_fit_2",
        ),
        pytest.param(
            lambda: split(sums(max_parallelism=2).snapshot(), 3),
            ParallelismError,
            "not within bounds: 3",
            id="parallelism_must_fit_3",
        ),
        *(
            pytest.param(
                lambda key=key: sums().process_element((key, 1)),
                InvalidKeyError,
                "operator 'Sums'",
                id=f"a_bad_key_{key}",
            )
            for key in (None, 3)
        ),
        *(
            pytest.param(
                lambda function=function: KeyedOneInputOperatorHarness(function, str),
                ConfigurationError,
                "KeyedProcessFunction.*harness_of",
                id="what_is_no_function_of_a_keyed_stream",
            )
            for function in (MapFunction, len, 7)
        ),
        pytest.param(
            lambda: split([], 1),
            ConfigurationError,
            "snapshots of all subtasks",
            id="nothing_cannot_be_split",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
