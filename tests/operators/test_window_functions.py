"""Contents and functions of windows: reduced, aggregated or all elements; state of window and key."""

from functools import partial

import pytest
from support_windows import Collect, CollectInContext, Listing, Mean, WindowHarness, play

from pyflinkstate import (
    AllWindowFunction,
    CountTrigger,
    EventTimeSessionWindows,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import ConfigurationError, StateRegistrationError
from pyflinkstate.runtime.operators import window_operator

TEN = TumblingEventTimeWindows.of(10)


class TestContents:
    @pytest.mark.parametrize(
        ("options", "values", "stored", "result"),
        [
            ({"contents": lambda old, new: old * 10 + new}, (1, 2, 3), 123, 123),
            ({"contents": lambda old, new: old + new}, (0,), 0, 0),
            ({"contents": Mean(), "contents_type": Types.LIST(Types.LONG())}, (3, 4), [7, 2], 3.5),
            ({"contents": Mean(), "function": Collect()}, (1, 2, 6), [9, 3], ("a", [3.0])),
            ({"contents": Mean(), "function": CollectInContext()}, (2,), [2, 1], ("a", [2])),
            ({"contents": max, "function": CollectInContext()}, (2, 3), 3, ("a", [3])),
            ({"contents": list, "function": CollectInContext()}, (2, 3), [2, 3], ("a", [2, 3])),
        ],
        ids=[
            "a reduced value passes through",
            "a reduced zero is a result",
            "an aggregated value passes through",
            "aggregated, with a window function",
            "aggregated, with a process function",
            "reduced, with a process function",
            "all elements",
        ],
    )
    def test_what_is_kept_and_what_comes_out(self, options, values, stored, result):
        harness = WindowHarness(window_operator(TEN, **options))
        for value in values:
            harness.process("a", value, value)
        assert harness.entries() == {"window-contents": {("a", TimeWindow(0, 10)): stored}}
        if type(result) is tuple:
            result = (result[0], TimeWindow(0, 10), result[1])
        assert harness.advance(9) == [(result, 9)]
        harness.assert_empty()

    def test_reducing_in_place_changes_neither_other_windows_nor_what_was_emitted(self):
        def extend(old, new):
            old.extend(new)
            return old

        sliding = SlidingEventTimeWindows.of(20, 10)
        harness = WindowHarness(window_operator(sliding, CountTrigger.of(1), contents=extend))
        first = harness.process("a", [1], 5)
        second = harness.process("a", [2], 15)
        assert (first, second) == ([([1], 19), ([1], 9)], [([2], 29), ([1, 2], 19)])

    def test_aggregating_in_place_does_not_change_what_was_emitted(self):
        harness = WindowHarness(window_operator(TEN, CountTrigger.of(1), contents=Listing()))
        emitted = [harness.process("a", value, 0) for value in (1, 2)]
        assert emitted == [[([1], 9)], [([1, 2], 9)]]

    def test_a_function_that_changes_its_elements_does_not_change_state(self):
        class Sorting(ProcessWindowFunction):
            def process(self, key, context, elements):
                elements.sort()
                return [list(elements)]

        harness = WindowHarness(window_operator(TEN, allowed_lateness_ms=9, function=Sorting()))
        harness.process("a", 2, 1)
        harness.process("a", 1, 1)
        assert harness.advance(9) == [([1, 2], 9)]
        assert harness.entries()["window-contents"] == {("a", TimeWindow(0, 10)): [2, 1]}

    def test_no_result_and_side_outputs(self):
        tag = OutputTag("big")

        class Sides(ProcessWindowFunction):
            def process(self, key, context, elements):
                if elements[0] > 1:
                    return [(tag, elements[0])]
                return None

        harness = WindowHarness(window_operator(TEN, function=Sides()))
        harness.process("a", 1, 1)
        harness.process("b", 2, 1)
        assert harness.advance() == []
        assert harness.side() == {"big": [(2, 9)]}

    def test_functions_of_streams_that_are_not_keyed(self):
        class Apply(AllWindowFunction):
            def apply(self, window, inputs):
                yield window, list(inputs)

        class Process(ProcessAllWindowFunction):
            def process(self, context, elements):
                yield context.window(), list(elements)

        for function in (Apply(), Process()):
            harness = WindowHarness(window_operator(TEN, function=function))
            harness.process(0, 1, 1)
            assert harness.advance() == [((TimeWindow(0, 10), [1]), 9)]


class Counting(ProcessWindowFunction):
    """Counts firings: of the window, of the key, and what was cleared."""

    def __init__(self, clears=True):
        self.clears = clears
        self.closed = 0
        self.of_window = ValueStateDescriptor("firings", Types.LONG())
        self.of_key = ValueStateDescriptor("all-firings", Types.LONG())

    def open(self, runtime_context):
        self.name = runtime_context.get_task_name()

    def close(self):
        self.closed += 1

    def process(self, key, context, elements):
        states = [
            context.window_state().get_state(self.of_window),
            context.global_state().get_state(self.of_key),
        ]
        for state in states:
            state.update((state.value() or 0) + 1)
        yield [context.window().start, *(state.value() for state in states)]
        yield [context.current_processing_time(), context.current_watermark()]

    def clear(self, context):
        if self.clears:
            assert context.window_state().get_state(self.of_window).value()
            context.window_state().get_state(self.of_window).clear()


class TestStateOfFunctions:
    def test_the_function_is_opened_and_closed(self):
        harness = WindowHarness(window_operator(TEN, function=Counting()))
        assert harness.operator.function.name == "windows"
        harness.operator.close()
        assert harness.operator.function.closed == 1

    def test_contents_are_closed_although_the_function_is_not(self):
        class FailsToClose(Counting):
            def close(self):
                super().close()
                raise TimeoutError("flush took too long")

        class ClosingMean(Mean):
            closed = 0

            def close(self):
                self.closed += 1

        harness = WindowHarness(window_operator(TEN, contents=ClosingMean(), function=FailsToClose()))
        with pytest.raises(TimeoutError, match="flush took too long"):
            harness.operator.close()
        assert harness.operator.function.closed == harness.operator.contents.function.closed == 1

    def test_every_kind_of_per_window_state(self):
        class Kinds(ProcessWindowFunction):
            def process(self, key, context, elements):
                listed = context.window_state().get_list_state(ListStateDescriptor("listed"))
                mapped = context.window_state().get_map_state(MapStateDescriptor("mapped"))
                listed.add_all(elements)
                mapped.put(key, len(elements))
                yield list(listed.get()), dict(mapped.items())

        harness = WindowHarness(window_operator(TEN, allowed_lateness_ms=9, function=Kinds()))
        harness.process("a", 1, 1)
        assert harness.advance(9) == [(([1], {"a": 1}), 9)]
        assert harness.process("a", 2, 2) == [(([1, 1, 2], {"a": 2}), 9)]

    def test_per_window_state_is_refused_where_windows_merge(self):
        harness = WindowHarness(
            window_operator(EventTimeSessionWindows.with_gap(10), function=Counting(clears=False))
        )
        harness.process("a", 1, 1)
        with pytest.raises(ConfigurationError, match=r"'firings'.*merge.*global_state"):
            harness.advance()

    def test_per_window_state_needs_the_right_descriptor(self):
        class Wrong(ProcessWindowFunction):
            def process(self, key, context, elements):
                context.window_state().get_state(ListStateDescriptor("listed"))

        harness = WindowHarness(window_operator(TEN, function=Wrong()))
        harness.process("a", 1, 1)
        with pytest.raises(StateRegistrationError, match="ValueStateDescriptor"):
            harness.advance()


def counting(assigner, now_ms=0, *, clears=True, **options):
    operator = window_operator(assigner, function=Counting(clears), **options)
    return WindowHarness(operator, now_ms=now_ms)


#: How to make a harness, and the steps that :func:`play` takes with it.
STORIES = {
    "state of a window is its own, and global state the key's": (
        partial(counting, TEN, now_ms=77, allowed_lateness_ms=5),
        ("process", "a", 1, 1, ...),
        ("advance", 9, [([0, 1, 1], 9), ([77, 9], 9)]),
        ("process", "a", 1, 2, [([0, 2, 2], 9), ([77, 9], 9)]),
        ("process", "a", 1, 12, ...),
        ("advance", 19, [([10, 1, 3], 19), ([77, 19], 19)]),
        ("process", "b", 1, 22, ...),
        ("advance", 29, [([20, 1, 1], 29), ([77, 29], 29)]),
        ("advance", 34, []),
        ("entries", {"all-firings": {"a": 3, "b": 1}}),
    ),
    "state of a window that is not cleared stays": (
        partial(counting, TEN, clears=False),
        ("process", "a", 1, 1, ...),
        ("advance", 9, ...),
        ("entries", {"firings": {("a", TimeWindow(0, 10)): 1}, "all-firings": {"a": 1}}),
    ),
    "a generator reads the state of its own window": (
        partial(counting, SlidingEventTimeWindows.of(20, 10)),
        ("process", "a", 1, 15, ...),
        ("advance", 29, [([0, 1, 1], 19), ([0, 29], 19), ([10, 1, 2], 29), ([0, 29], 29)]),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    make, *steps = STORIES[name]
    play(make(), *steps)
