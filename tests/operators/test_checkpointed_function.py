"""Functions that take part in checkpoints: when they are called, what they see, where they may be used."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any

import pytest
from slot_functions import Mean
from support_runtime import PICKLED

from pyflinkstate import (
    CheckpointedFunction,
    CheckpointListener,
    DataStream,
    FilterFunction,
    FlatMapFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    KeyedProcessFunction,
    KeySelector,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ReduceFunction,
    RuntimeContext,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import MemoryCheckpoint, OperatorSubtaskState
from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    FunctionResultError,
    KeyGroupRangeError,
    NoCurrentKeyError,
    NotKeyedStreamError,
    SnapshotCancelledError,
    StateAccessError,
    StateRegistrationError,
    UnsupportedFeatureError,
    UserFunctionError,
)
from pyflinkstate.runtime.plan import Partitioning, SourceNode, StatefulNode
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.wire import CheckpointTrigger
from pyflinkstate.testing import (
    NO_WATERMARK,
    CheckpointedOperatorHarness,
    KeyedOneInputOperatorHarness,
    OneInputOperatorHarness,
    OperatorSnapshot,
    harness_of,
)

SEEN = ListStateDescriptor("seen", Types.STRING())
TOTAL = ValueStateDescriptor("total", Types.LONG())
RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


class Noting(KeyedProcessFunction, CheckpointedFunction):
    """Notes what is called, and may do something at each call."""

    def __init__(
        self,
        at_initialize: Callable[[FunctionInitializationContext], Any] = lambda context: None,
        at_snapshot: Callable[[FunctionSnapshotContext], Any] = lambda context: None,
    ) -> None:
        self.at_initialize, self.at_snapshot = at_initialize, at_snapshot
        self.events: list[str] = []
        self.found: list[Any] = []

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.events.append("initialize_state")
        self.found.append(self.at_initialize(context))

    def open(self, runtime_context: RuntimeContext) -> None:
        self.events.append("open")

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.events.append("snapshot_state")
        self.found.append(self.at_snapshot(context))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        self.events.append("process_element")
        return ()

    def close(self) -> None:
        self.events.append("close")


class FailingToClose(Noting):
    """Fails at last."""

    def close(self) -> None:
        raise TimeoutError("flush took too long")


class Buffering(KeyedProcessFunction, CheckpointedFunction):
    """Keeps values in a plain list that it only puts into state when it must, and a total by key."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.state = context.get_operator_state_store().get_list_state(SEEN)
        self.rules = context.get_operator_state_store().get_broadcast_state(RULES)
        self.total = context.get_keyed_state_store().get_state(TOTAL)
        self.seen = list(self.state.get())

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        self.state.update(self.seen)
        self.rules.put("checkpoint", context.get_checkpoint_id())

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        key, number = value
        self.seen.append(f"{key}={number}")
        self.total.update((self.total.value() or 0) + number)
        yield self.total.value()


def opened(function: Any, **options: Any) -> KeyedOneInputOperatorHarness:
    """Return the harness of a function whose records are pairs of key and value."""
    return KeyedOneInputOperatorHarness(function, itemgetter(0), **options)


def written_by_one(function: KeyedProcessFunction, *records: tuple[str, int]) -> OperatorSnapshot:
    harness = opened(function)
    for key, value in records:
        harness.process_element((key, value))
    return harness.snapshot()


# --- the life of a function ------------------------------------------------------------------------


def test_a_function_is_initialized_before_it_is_opened_and_told_of_every_checkpoint() -> None:
    function = Noting()
    harness = opened(function)
    harness.process_element(("a", 1))
    harness.snapshot()
    harness.snapshot()
    harness.process_element(("a", 1))
    harness.close()
    assert function.events == [
        "initialize_state",
        "open",
        "process_element",
        "snapshot_state",
        "snapshot_state",
        "process_element",
        "close",
    ]


def restored_or_not(context: FunctionInitializationContext) -> tuple[bool, int | None]:
    return context.is_restored(), context.get_restored_checkpoint_id()


@pytest.mark.parametrize(
    ("written_by", "expected"),
    [(None, (False, None)), (Noting(), (True, 1)), (Buffering(), (True, 1))],
    ids=["not restored", "without state", "with state"],
)
def test_a_function_is_told_whether_it_is_restored_and_from_which_checkpoint(
    written_by: Any, expected: tuple[bool, int | None]
) -> None:
    function = Noting(restored_or_not)
    opened(function, restore=[written_by_one(written_by, ("a", 1))] if written_by else [])
    assert function.found == [expected]


def test_a_snapshot_knows_its_checkpoint() -> None:
    function = Noting(
        at_snapshot=lambda context: (context.get_checkpoint_id(), context.get_checkpoint_timestamp())
    )
    harness = opened(function)
    harness.snapshot(7, 1_700_000_000_000)
    assert function.found[-1] == (7, 1_700_000_000_000)


def use_keyed_state(context: FunctionInitializationContext) -> Any:
    return context.get_keyed_state_store().get_state(TOTAL).value()


def test_no_key_is_set_in_initialize_state() -> None:
    with pytest.raises(NoCurrentKeyError):
        opened(Noting(use_keyed_state))


def test_no_key_is_set_in_snapshot_state() -> None:
    states: list[Any] = []
    function = Noting(
        at_initialize=lambda context: states.append(context.get_keyed_state_store().get_state(TOTAL)),
        at_snapshot=lambda context: states[0].value(),
    )
    harness = opened(function)
    harness.process_element(("a", 1))
    with pytest.raises(NoCurrentKeyError) as caught:
        harness.snapshot()
    assert isinstance(caught.value, StateAccessError)
    assert "in snapshot_state()" in str(caught.value)


@pytest.mark.parametrize("error", [ValueError("too late"), SystemExit(3)], ids=repr)
def test_an_error_in_snapshot_state_fails_that_snapshot_alone(error: BaseException) -> None:
    errors = [error]

    def fail_once(_: FunctionSnapshotContext) -> None:
        if errors:
            raise errors.pop()

    harness = opened(Noting(at_snapshot=fail_once))
    with pytest.raises(UserFunctionError, match=r"in snapshot_state\(\)"):
        harness.snapshot()
    assert harness.process_element(("a", 1)) == []
    assert harness.snapshot().state == OperatorSubtaskState()


def test_an_error_in_initialize_state_is_reported_as_one_of_the_function() -> None:
    function = Noting(lambda context: 1 // 0)
    with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
        opened(function)
    assert function.events == ["initialize_state"]


@pytest.mark.parametrize("function", [Noting(), FailingToClose()], ids=["well", "with an error"])
def test_closing_a_function_cancels_the_snapshots_being_written(function: Noting) -> None:
    harness = opened(function)
    snapshot = harness.subtask.snapshot(CheckpointTrigger(1, 0, "memory"), MemoryCheckpoint())
    with contextlib.suppress(UserFunctionError):
        harness.close()
    with pytest.raises(SnapshotCancelledError):
        snapshot.futures.finish()


# --- operator state through a function -------------------------------------------------------------


def everything(subtasks: list[KeyedOneInputOperatorHarness]) -> list[str]:
    functions: list[Any] = [harness.subtask._function for harness in subtasks]
    return sorted(element for function in functions for element in function.seen)


def test_a_function_keeps_all_its_state_over_many_changes_of_parallelism() -> None:
    expected: list[str] = []
    totals: dict[str, int] = {}
    written: list[OperatorSnapshot] = []
    for run, parallelism in enumerate((1, 3, 2, 4)):
        subtasks = [
            opened(Buffering(), parallelism=parallelism, subtask=index, restore=written)
            for index in range(parallelism)
        ]
        assert everything(subtasks) == sorted(expected)
        for number in range(20):
            key, value = f"key-{number}", 100 * run + number
            (owner,) = (subtask for subtask in subtasks if owns(subtask, key))
            totals[key] = totals.get(key, 0) + value
            expected.append(f"{key}={value}")
            assert owner.process_element((key, value)) == [totals[key]]
        written = [subtask.snapshot() for subtask in subtasks]


def owns(harness: KeyedOneInputOperatorHarness, key: str) -> bool:
    with contextlib.suppress(KeyGroupRangeError):
        harness.backend.key_group_of(key)
        return True
    return False


def test_a_list_and_a_broadcast_state_may_not_share_a_name_and_keyed_state_may() -> None:
    same = ValueStateDescriptor(SEEN.name, Types.LONG())

    def initialize(context: FunctionInitializationContext) -> None:
        store = context.get_operator_state_store()
        store.get_list_state(SEEN).add("a")
        context.get_keyed_state_store().get_state(same)
        with pytest.raises(StateRegistrationError):
            store.get_broadcast_state(MapStateDescriptor(SEEN.name))

    written = written_by_one(Noting(initialize))
    assert (
        set(written.state.managed_operator.states) == set(written.state.managed_keyed.sections) == {SEEN.name}
    )


def test_state_that_the_program_no_longer_asks_for_is_kept() -> None:
    first = written_by_one(Buffering(), ("a", 1), ("b", 2))

    class Plain(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
            return None

    second = opened(Plain(), restore=[first]).snapshot()
    again = Buffering()
    harness = opened(again, restore=[second])
    assert again.seen == ["a=1", "b=2"]
    assert harness.process_element(("b", 1)) == [3]


# --- raw state through a function ------------------------------------------------------------------


class Raw(Noting):
    """Writes raw state of both kinds, and notes what it is given of both."""

    def __init__(self) -> None:
        super().__init__(self.read, self.write)
        self.outputs: list[Any] = []

    def read(self, context: FunctionInitializationContext) -> Any:
        self.own = dict(context.get_raw_keyed_state_inputs())
        self.shared = list(context.get_raw_operator_state_inputs())

    def open(self, runtime_context: RuntimeContext) -> None:
        self.subtask = runtime_context.get_index_of_this_subtask()

    def write(self, context: FunctionSnapshotContext) -> Any:
        keyed = context.get_raw_keyed_operator_state_output()
        for key_group in self.own:
            keyed.start_new_key_group(key_group)
            keyed.write(self.own[key_group])
        operator = context.get_raw_operator_state_output()
        for data in self.shared:
            operator.start_new_partition()
            operator.write(data)
        self.outputs += [keyed, operator]


def test_each_snapshot_has_the_raw_state_that_was_written_for_it() -> None:
    function = Raw()
    harness = opened(function)
    function.own, function.shared = {1: b"first"}, [b"first"]
    first = harness.snapshot()
    function.own, function.shared = {}, []
    second = harness.snapshot().state
    assert (second.raw_keyed, second.raw_operator) == (None, None)
    again = Raw()
    opened(again, restore=[first])
    assert (again.own, again.shared) == ({1: b"first"}, [b"first"])


def test_raw_state_of_a_key_group_of_another_subtask_fails_the_snapshot() -> None:
    function = Raw()
    harness = opened(function, parallelism=2)
    function.own = {64: b"not mine"}
    with pytest.raises(CheckpointError, match=r"key group 64 is not in[\s\S]*in snapshot_state\(\)"):
        harness.snapshot()


def test_what_is_written_to_a_raw_output_after_snapshot_state_is_not_in_the_snapshot() -> None:
    function = Raw()
    harness = opened(function)
    function.own, function.shared = {1: b"in time"}, [b"in time"]
    snapshot = harness.subtask.snapshot(CheckpointTrigger(1, 0, "memory"), MemoryCheckpoint())
    for output in function.outputs:
        with contextlib.suppress(CheckpointError):
            output.write(b" too late")
    again = Raw()
    opened(again, restore=[OperatorSnapshot(snapshot.futures.finish(), 1, NO_WATERMARK, 128)])
    assert (again.own, again.shared) == ({1: b"in time"}, [b"in time"])


# --- where such a function may be used -------------------------------------------------------------


class CheckpointedMap(MapFunction, CheckpointedFunction):
    """Numbers all records of its subtask, over restores."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.numbers = context.get_operator_state_store().get_list_state(ListStateDescriptor("number"))

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: Any) -> Any:
        self.numbers.add(value)
        return len(list(self.numbers.get())), value


class CheckpointedFlatMap(CheckpointedMap, FlatMapFunction):
    def flat_map(self, value: Any) -> Iterable[Any]:
        return [self.map(value)]


class CheckpointedFilter(CheckpointedMap, FilterFunction):
    def filter(self, value: Any) -> bool:
        return self.map(value)[0] > 1


class CheckpointedProcess(CheckpointedMap, ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        return [self.map(value)]


def stream() -> DataStream:
    """A stream without keys; nothing runs, so it needs no environment."""
    return DataStream(None, SourceNode(CollectionSource([1], 1), "numbers"))  # type: ignore[arg-type]


USES: dict[str, Callable[[DataStream], DataStream]] = {
    "map": lambda made: made.map(CheckpointedMap()),
    "flat_map": lambda made: made.flat_map(CheckpointedFlatMap()),
    "filter": lambda made: made.filter(CheckpointedFilter()),
}


WITHOUT_KEYS = {**USES, "process": lambda made: made.process(CheckpointedProcess())}


@pytest.mark.parametrize(
    ("name", "results", "has_keys"),
    [
        (name, ["b"] if name == "filter" else [(2, "b")], has_keys)
        for has_keys, names in ((False, WITHOUT_KEYS), (True, USES))
        for name in names
    ],
)
def test_with_keys_and_without_it_lives_in_a_slot_and_keeps_its_operator_state(
    name: str, results: Any, has_keys: bool
) -> None:
    def built(made: DataStream) -> DataStream:
        return WITHOUT_KEYS[name](made.key_by(str, PICKLED) if has_keys else made)

    first = harness_of(built)
    first.process_element("a")
    assert harness_of(built, restore=[first.snapshot()]).process_element("b") == results


class ReturnsNumber(CheckpointedFlatMap):
    def flat_map(self, value: Any) -> Any:
        return 7


def test_without_keys_errors_name_the_method_of_the_user() -> None:
    harness = harness_of(lambda made: made.flat_map(ReturnsNumber()))
    with pytest.raises(
        FunctionResultError, match=r"^ReturnsNumber\.flat_map\(\) \(test_checkpointed_function"
    ):
        harness.process_element("a")


@pytest.mark.parametrize("name", WITHOUT_KEYS)
@pytest.mark.parametrize("behind", ["a source", "a keyed operator"])
def test_without_keys_it_is_an_operator_of_its_own(name: str, behind: str) -> None:
    made = WITHOUT_KEYS[name](stream() if behind == "a source" else stream().key_by(str).map(str))
    node = made.uid("mine").set_parallelism(3)._node
    assert isinstance(node, StatefulNode)
    assert (node.uid, node.parallelism, node.partitioning) == ("mine", 3, Partitioning.FORWARD)
    assert node.name == f"Checkpointed{name.title().replace('_M', 'M')}"


def test_without_keys_a_filter_keeps_the_type_of_its_records() -> None:
    typed = DataStream(None, SourceNode(CollectionSource(["a"], 1), "texts", Types.STRING()))  # type: ignore[arg-type]
    assert typed.filter(CheckpointedFilter()).get_type() == Types.STRING()
    assert typed.map(CheckpointedMap()).get_type() == Types.PICKLED_BYTE_ARRAY()


class KeyedStateWithoutKeys(CheckpointedMap):
    """Asks for keyed state, at one place or the other."""

    def __init__(self, at_initialize: bool) -> None:
        self.at_initialize = at_initialize

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if self.at_initialize:
            context.get_keyed_state_store().get_state(TOTAL)

    def open(self, runtime_context: RuntimeContext) -> None:
        runtime_context.get_state(TOTAL)


@pytest.mark.parametrize("at_initialize", [True, False])
def test_without_keys_there_is_no_keyed_state(at_initialize: bool) -> None:
    with pytest.raises(NotKeyedStreamError, match=r"keyed state 'total' .* after key_by\(\)"):
        CheckpointedOperatorHarness(KeyedStateWithoutKeys(at_initialize))


class TimerWithoutKeys(CheckpointedProcess):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(1)
        return []


def test_without_keys_there_are_no_timers() -> None:
    harness = harness_of(lambda made: made.process(TimerWithoutKeys()))
    with pytest.raises(NotKeyedStreamError, match="timers belong to keys"):
        harness.process_element("a")


class SeesTime(CheckpointedProcess):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        yield value, ctx.timestamp(), ctx.timer_service().current_watermark()
        yield OutputTag("side"), value


def test_without_keys_it_sees_event_time_and_has_side_outputs() -> None:
    harness = harness_of(lambda made: made.process(SeesTime()))
    harness.process_watermark(5)
    assert harness.process_element("a", 7) == [("a", 7, 5)]
    assert [record.value for record in harness.get_side_output(OutputTag("side"))] == ["a"]


class ToldOfCheckpoints(MapFunction, CheckpointListener):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.heard: list[int] = []

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.heard.append(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.heard.append(-checkpoint_id)

    def map(self, value: Any) -> Any:
        return value, list(self.heard)


@pytest.mark.parametrize("with_keys", [True, False])
def test_a_listener_is_told_with_keys_and_without(with_keys: bool) -> None:
    def built(made: DataStream) -> DataStream:
        return (made.key_by(str) if with_keys else made).map(ToldOfCheckpoints())

    harness = harness_of(built)
    harness.subtask.checkpoint_complete(4)
    harness.subtask.checkpoint_aborted(5)
    assert harness.process_element("a") == [("a", [4, -5])]


def test_the_harness_of_chains_says_which_one_runs_it() -> None:
    with pytest.raises(ConfigurationError, match="CheckpointedOperatorHarness runs it"):
        OneInputOperatorHarness(CheckpointedMap())


class CheckpointedSelector(KeySelector, CheckpointedMap):
    def get_key(self, value: Any) -> Any:
        return value


def test_on_a_keyed_stream_a_process_function_is_taken_as_it_is() -> None:
    function = Noting()
    assert stream().key_by(str).process(function)._node.function is function


class CheckpointedReduce(ReduceFunction, CheckpointedMap, ToldOfCheckpoints):
    """Counts all its calls, over restores, and notes the checkpoints that it is told of."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        calls, _ = self.map(value2)
        return value2[0], calls, list(self.heard)


def reduced(made: DataStream) -> DataStream:
    return made.key_by(itemgetter(0)).reduce(CheckpointedReduce())


def test_a_rolling_reduce_function_keeps_its_operator_state_and_is_told_of_checkpoints() -> None:
    first = harness_of(reduced)
    first.process_element(("a", 1))
    assert first.process_element(("a", 2)) == [("a", 1, [])]
    second = harness_of(reduced, restore=[first.snapshot()])
    second.notify_checkpoint_complete(4)
    second.notify_checkpoint_aborted(5)
    assert second.process_element(("a", 3)) == [("a", 2, [4, -5])]


class CheckpointedMean(Mean, CheckpointedMap):
    """Combines elements."""


def windows() -> Any:
    return stream().key_by(str).window(TumblingEventTimeWindows.of(10))


SELECTOR = r"CheckpointedSelector is a .* key selectors and partitioners"
COMBINING = r"Checkpointed.* is a .* make the window function one"


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda: stream().key_by(CheckpointedSelector()), SELECTOR),
        (lambda: stream().partition_custom(lambda key, _: 0, CheckpointedSelector()), SELECTOR),
        (lambda: windows().reduce(CheckpointedReduce()), COMBINING),
        (lambda: windows().aggregate(CheckpointedMean()), COMBINING),
    ],
)
def test_what_says_where_records_go_or_combines_elements_of_windows_cannot_be_one(
    use: Callable[[], Any], message: str
) -> None:
    with pytest.raises(UnsupportedFeatureError, match=message):
        use()


def subtask_of(function: Any) -> int:
    index: int = function.get_runtime_context().get_index_of_this_subtask()
    return index


class KnowsItsPlace(ReduceFunction, MapFunction, CheckpointedFunction):
    """Asks where it runs before it is opened, as it needs that to pick its part of a union list."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        self.place = subtask_of(self)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        pass

    def map(self, value: Any) -> Any:
        return value, self.place

    def reduce(self, value1: Any, value2: Any) -> Any:
        return value2[0], self.place


def test_a_function_has_its_runtime_context_when_its_state_is_initialized() -> None:
    """Flink: ``AbstractUdfStreamOperator.setup`` comes before ``initializeState``."""
    function = Noting()
    function.at_initialize = lambda context: subtask_of(function)
    opened(function, parallelism=2, subtask=1)
    assert function.found == [1]


def test_so_has_one_without_keys_and_one_inside_another() -> None:
    assert harness_of(lambda made: made.map(KnowsItsPlace())).process_element("a") == [("a", 0)]
    harness = harness_of(lambda made: made.key_by(itemgetter(0)).reduce(KnowsItsPlace()))
    harness.process_element(("a", 1))
    assert harness.process_element(("a", 2)) == [("a", 0)]
