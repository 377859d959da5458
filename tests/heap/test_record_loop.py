"""The loops over the records of a frame and over its due timers, against a list that is sorted anew."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, strategies as st
from tiered_support import HAS_ROCKSDB, tiered_queue

from pyflinkstate.api import Types
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.record_loop import RecordLoop
from pyflinkstate.backends.heap.timer_queue import Timer, TimerQueue
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE
from pyflinkstate.backends.types.migration import RegisteredQueueMeta


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


@pytest.mark.parametrize("is_timed", [False, True])
def test_the_record_under_way_is_known_when_the_function_fails_and_columns_have_one_length(
    is_timed: bool,
) -> None:
    loop = RecordLoop(KeyContext())

    def process(value: int, _: Any) -> Iterator[int]:
        yield 1 // value

    def run(indexes: list[int], keys: Any, values: list[int]) -> None:
        if is_timed:
            loop.run_timed((indexes, keys, values, values), process, Timed(), [], [])
        else:
            loop.run((indexes, keys, values), process, None, [])

    columns = (["a", "b", "c"], [1, 0, 1])
    with pytest.raises(ZeroDivisionError):
        run([0, 0, 0], *columns)
    assert loop.under_way(*columns) == ["b", 0]
    run([0], ("a",), [1])
    with pytest.raises(ValueError, match="differ in length"):
        run([0, 0], ("a",), [1])
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


GROUPS = KeyGroupRange(2, 5)
QUEUES = [TimerQueue, *([tiered_queue] if HAS_ROCKSDB else [])]
NAMESPACES = {True: ["w", "x"], False: [VOID_NAMESPACE]}


class Context:
    current_timestamp: int | None = None


def index_of(key: int) -> int:
    return key % len(GROUPS)


class SortedList:
    """The model: triples of timestamp, key and namespace in the order of adding."""

    def __init__(self) -> None:
        self.timers: list[tuple[int, int, Any]] = []

    def register(self, *timer: Any) -> None:
        if timer not in self.timers:
            self.timers.append(timer)

    def delete(self, *timer: Any) -> None:
        if timer in self.timers:
            self.timers.remove(timer)

    def first(self, until_ms: int) -> tuple[int, int, Any] | None:
        due = [timer for timer in self.timers if timer[0] <= until_ms]
        return min(due, key=lambda timer: (timer[0], index_of(timer[1])), default=None)


@st.composite
def actions(draw: st.DrawFn, namespaced: bool) -> tuple[bool, tuple[int, int, Any]]:
    """Whether to add or to delete, and which timer."""
    timer = draw(st.integers(-2, 6)), draw(st.integers(0, 7)), draw(st.sampled_from(NAMESPACES[namespaced]))
    return draw(st.booleans()), timer


@pytest.mark.parametrize("new_queue", QUEUES)
@given(st.data(), st.booleans(), st.integers(-3, 7))
def test_timers_that_a_timer_adds_and_deletes_are_honoured(
    new_queue: Any, data: st.DataObject, namespaced: bool, until_ms: int
) -> None:
    script = data.draw(st.lists(st.lists(actions(namespaced), max_size=3), max_size=25))
    begin = data.draw(st.lists(actions(namespaced), max_size=25))
    meta = RegisteredQueueMeta("timers", Types.STRING()) if namespaced else RegisteredQueueMeta("timers")
    queue, model, keys = new_queue(meta, GROUPS), SortedList(), KeyContext()

    def act(on: Any, adds: bool, timer: tuple[int, int, Any]) -> None:
        index = (index_of(timer[1]),) if on is queue else ()
        (on.register if adds else on.delete)(*timer, *index)

    for adds, timer in begin:
        act(queue, adds, timer)
        act(model, adds, timer)
    left = iter(script)
    context, results, timestamps = Context(), [], []

    def on_timer(timestamp: int, given_context: Context) -> Iterator[Any]:
        fired = (timestamp, keys.key, queue.namespace)
        assert fired == model.first(until_ms)
        assert given_context.current_timestamp == timestamp
        assert keys.map_index == index_of(keys.key)
        model.delete(*fired)
        queue._check()
        for adds, timer in next(left, ()):
            act(queue, adds, timer)
            act(model, adds, timer)
            queue._check()
            assert len(queue) == len(model.timers)
        yield fired

    RecordLoop(keys).fire(queue, until_ms, on_timer, context, results, timestamps, True)
    assert model.first(until_ms) is None
    assert timestamps == [timestamp for timestamp, _, _ in results]
    assert {(timer.timestamp_ms, timer.key, timer.namespace) for timer in queue.timers()} == set(model.timers)
    queue._check()


@pytest.mark.parametrize(("by_event_time", "expected"), [(True, [5, 5]), (False, [None, None])])
def test_results_have_the_time_of_their_timer_if_it_is_event_time(by_event_time, expected) -> None:
    queue = TimerQueue(RegisteredQueueMeta("timers"), GROUPS)
    queue.add(Timer(5, 1), 3)
    results: list[Any] = []
    timestamps: list[Any] = []
    loop = RecordLoop(KeyContext())
    loop.fire(queue, 9, lambda at, context: ["a", "b"], Context(), results, timestamps, by_event_time)
    assert (results, timestamps) == (["a", "b"], expected)


def test_the_timer_that_fails_is_known_and_later_ones_stay() -> None:
    queue = TimerQueue(RegisteredQueueMeta("timers"), GROUPS)
    for time in (1, 2, 3):
        queue.add(Timer(time, 7), 5)

    def on_timer(timestamp: int, context: Context) -> None:
        if timestamp == 2:
            raise ValueError(timestamp)

    with pytest.raises(ValueError, match="2"):
        RecordLoop(KeyContext()).fire(queue, 9, on_timer, Context(), [], [], True)
    assert (queue.timestamp_ms, queue.key, queue.map_index, len(queue)) == (2, 7, 3, 1)


def test_a_moment_of_many_timers_does_not_slow_down_with_each() -> None:
    """Timers of one time and one key group that each put off the next one: steps are counted by equality."""
    compared = 0

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            return hash(self.number)

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return isinstance(other, Key) and self.number == other.number

    queue = TimerQueue(RegisteredQueueMeta("timers"), GROUPS)
    made = [Key(number) for number in range(2000)]
    for key in made:
        queue.add(Timer(1, key), 2)

    def on_timer(timestamp: int, context: Context) -> None:
        queue.register(2, queue.key, VOID_NAMESPACE, 0)

    RecordLoop(KeyContext()).fire(queue, 1, on_timer, Context(), [], [], True)
    assert len(queue) == 2000
    assert compared < 20 * len(made)
