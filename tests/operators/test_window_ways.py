"""The fast ways of the window operator against its general way: same results, state and timers at each step.

Random frames, watermarks, snapshots that are written late, restores in which the ways swap their state, and
restores into another program: with another lateness, trigger, size or gap.
"""

import copy
import threading
import traceback

import attrs
import pytest
from hypothesis import example, given, settings, strategies as st
from support_windows import Collect, Listing, WindowHarness

from pyflinkstate import (
    AggregateFunction,
    ContinuousEventTimeTrigger,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    MergingWindowAssigner,
    OutputTag,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    WindowFunction,
)
from pyflinkstate.api import MAX_LONG_VALUE, MIN_LONG_VALUE, TimeWindow, TimeWindowSerializer
from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.heap.backend import HeapSnapshotStrategy
from pyflinkstate.errors import BadRecordError, ConfigurationError, StateValueError, UserFunctionError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.operators.windows.fast_windows import AlignedWindows, SessionWindows
from pyflinkstate.runtime.wire import NO_WATERMARK
from pyflinkstate.testing import KeyedOneInputOperatorHarness

LATE = OutputTag("late")
SIDE = OutputTag("side")


class Counting(AggregateFunction):
    """An accumulator that cannot change in place; its result goes to a side output if it is even."""

    def create_accumulator(self):
        return (0, "")

    def add(self, value, accumulator):
        return accumulator[0] + 1, f"{accumulator[1]}{value}"

    def get_result(self, accumulator):
        return accumulator if accumulator[0] % 2 else (SIDE, accumulator)

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Remembering(ProcessWindowFunction):
    """Counts how often windows fire, in state of the key, as merging windows have none of their own."""

    firings = ValueStateDescriptor("firings", Types.LONG())

    def process(self, key, context, elements):
        state = context.global_state().get_state(self.firings)
        state.update((state.value() or 0) + 1)
        elements.append("changed")
        yield key, context.window(), context.current_watermark(), state.value(), elements

    def clear(self, context):
        context.global_state().get_state(self.firings).clear()


class Gap(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 1 + int(element or 3) % 7


class Apart(MergingWindowAssigner):
    """Windows that overlap and never merge: sessions that are restored from it do not lie apart."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp, timestamp + 9)]

    def merge_windows(self, windows, callback):
        pass

    def get_default_trigger(self, env):
        return EventTimeTrigger()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


def joined(old, new):
    return f"{old}{new}"


CONTENTS = {
    "list": {"function": Remembering()},
    "typed list": {"function": Collect(), "contents_type": Types.STRING()},
    "reduce": {"contents": joined},
    "typed reduce": {"contents": joined, "contents_type": Types.STRING(), "function": Remembering()},
    "aggregate": {"contents": Counting()},
    "mutable aggregate": {"contents": Listing(), "function": Collect()},
}
numbers = st.integers(1, 20)
aligned = st.one_of(
    st.builds(lambda size, offset: TumblingEventTimeWindows(size, offset % size), numbers, numbers),
    st.builds(lambda size, offset: TumblingEventTimeWindows(size, -(offset % size)), numbers, numbers),
    st.builds(
        lambda size, slide, offset: SlidingEventTimeWindows(size, slide, offset % slide),
        numbers,
        numbers,
        numbers,
    ),
)
sessions = st.one_of(
    st.builds(EventTimeSessionWindows, numbers),
    st.just(EventTimeSessionWindows.with_dynamic_gap(Gap())),
)
triggers = st.sampled_from([EventTimeTrigger(), EventTimeTrigger(), PurgingTrigger(EventTimeTrigger())])
other_triggers = st.sampled_from(
    [EventTimeTrigger(), CountTrigger(3), ContinuousEventTimeTrigger(4), PurgingTrigger(EventTimeTrigger())]
)
latenesses = st.sampled_from([0, 0, 1, 5, 20])
elements = st.tuples(st.sampled_from("abc"), st.integers(-5, 60))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("frame"), st.lists(elements, min_size=1, max_size=8)),
        st.tuples(st.just("frame"), st.lists(elements, min_size=1, max_size=8)),
        st.tuples(st.just("advance"), st.integers(0, 15)),
        st.tuples(st.just("advance"), st.integers(0, 15)),
        st.tuples(st.just("nothing")),
        st.tuples(st.just("hold")),
        st.tuples(st.just("restore"), st.integers(0, 2)),
    ),
    max_size=25,
)


@attrs.define
class Held:
    """A snapshot that was taken, and is not yet written, with what was in state then."""

    resources: object
    strategy: HeapSnapshotStrategy
    entries: dict
    timers: dict


class Ways:
    """The same operators, one with its fast way and one that is made to take the general way."""

    def __init__(self, operators):
        self.operators = operators
        self.watermark = NO_WATERMARK
        self.number = 0
        self.held = None
        self.begin(0, [(), ()])

    def begin(self, which, restored):
        self.fast, self.general = (
            WindowHarness(
                self.operators[which], restore=handles, watermark=self.watermark, is_general=is_general
            )
            for handles, is_general in zip(restored, (False, True), strict=True)
        )

    def frame(self, pairs):
        records = [(key, str(self.number + at), timestamp) for at, (key, timestamp) in enumerate(pairs)]
        self.number += len(pairs)
        expected = one_by_one(self.general, records)
        if self.fast.operator.fast_way is None:
            assert one_by_one(self.fast, records) == expected
        else:
            assert as_a_frame(self.fast, records) == expected
        return isinstance(expected, str)

    def advance(self, by):
        self.watermark = max(self.watermark, -10) + by
        assert self.fast.advance(self.watermark) == self.general.advance(self.watermark)

    def nothing(self):
        """An element of None, which clears what is reduced or aggregated, and no list takes."""
        if self.fast.operator.contents.is_list:
            return False
        expected = one_by_one(self.general, [("a", None, 30)])
        assert one_by_one(self.fast, [("a", None, 30)]) == expected
        return isinstance(expected, str)

    def hold(self):
        self.write()
        strategy = HeapSnapshotStrategy(self.fast.backend)
        resources = strategy.sync_prepare_resources()
        entries, timers = copy.deepcopy(self.fast.entries()), self.fast.timers()
        self.held = Held(resources, strategy, entries, timers)

    def write(self):
        if self.held is not None:
            held, self.held = self.held, None
            handle = held.strategy.async_snapshot(held.resources, MemoryCheckpoint(), threading.Event())
            restored = WindowHarness(self.operators[0], restore=[handle])
            assert restored.entries() == held.entries
            assert restored.timers() == held.timers

    def restore(self, which):
        self.write()
        before = self.fast.side(), self.general.side()
        assert before[0] == before[1]
        assert self.fast.dropped() == self.general.dropped()
        self.begin(which % len(self.operators), [[self.general.snapshot()], [self.fast.snapshot()]])

    def check(self):
        assert self.fast.entries() == self.general.entries()
        assert self.fast.timers() == self.general.timers()
        for harness in (self.fast, self.general):
            for queue in harness.backend.registered_queues.values():
                queue._check()
            for table in harness.backend.registered_kv_states.values():
                for state_map in table.maps:
                    state_map._check()

    def end(self):
        self.write()
        assert self.fast.advance() == self.general.advance()
        self.check()
        assert self.fast.side() == self.general.side()
        assert self.fast.dropped() == self.general.dropped()


def one_by_one(harness, records):
    emitted = []
    for record in records:
        try:
            emitted += harness.process(*record)
        except ConfigurationError as error:
            return str(error)
    return emitted


def as_a_frame(harness, records):
    keys, values, timestamps = zip(*records, strict=True)
    indexes = []
    for key in keys:
        harness.backend.set_current_key(key)
        indexes.append(harness.backend.key_context.map_index)
    try:
        harness.operator.fast_way.run((indexes, keys, values, timestamps), harness.output)
    except ConfigurationError as error:
        assert harness.operator.fast_way.under_way(values) != [None]
        return str(error)
    harness.backend.clear_current_key()
    return harness.taken()


def run(operators, history):
    run_on(Ways(operators), history)


def run_on(ways, history):
    for what, *details in history:
        if getattr(ways, what)(*details):
            return  # the job has failed, in both ways alike
        ways.check()
    ways.end()


def operators_of(assigners, own_triggers, lateness, kind, late_tag):
    return [
        window_operator(assigner, trigger, allowed, late_tag, **CONTENTS[kind])
        for assigner, trigger, allowed in zip(assigners, own_triggers, lateness, strict=True)
    ]


def programs(assigners):
    """Three programs of the same state; the first has a fast way."""
    return st.builds(
        operators_of,
        st.tuples(assigners, assigners, assigners),
        st.tuples(triggers, other_triggers, triggers),
        st.tuples(latenesses, latenesses, latenesses),
        st.sampled_from(sorted(CONTENTS)),
        st.sampled_from([None, LATE]),
    )


@settings(max_examples=60, deadline=None)
@given(programs(aligned), steps)
def test_windows_of_a_fixed_size(operators, history):
    assert isinstance(WindowHarness(operators[0]).operator.fast_way, AlignedWindows)
    run(operators, history)


@settings(max_examples=60, deadline=None)
@given(programs(sessions), steps)
def test_sessions(operators, history):
    assert isinstance(WindowHarness(operators[0]).operator.fast_way, SessionWindows)
    run(operators, history)


#: Windows in flight that a program without lateness finds over when the last element merges them.
OVER = [
    ("frame", [("a", -1)]),
    ("advance", 9),
    ("frame", [("a", 0)]),
    ("advance", 9),
    ("frame", [("a", 0)]),
    ("restore", 1),
    ("nothing",),
]


#: Two windows that overlap, of which the last element touches one.
OVERLAPPING = [("frame", [("a", 0), ("a", 3)]), ("restore", 1), ("frame", [("a", 11)])]


@settings(max_examples=60, deadline=None)
@given(sessions, latenesses, st.sampled_from(sorted(CONTENTS)), steps)
@example(EventTimeSessionWindows(2), 0, "aggregate", OVERLAPPING)
@example(EventTimeSessionWindows.with_dynamic_gap(Gap()), 0, "aggregate", OVER)
def test_sessions_that_did_not_lie_apart(assigner, lateness, kind, history):
    operators = operators_of(
        [Apart(), assigner, assigner], [EventTimeTrigger()] * 3, [20, lateness, 0], kind, LATE
    )
    run(operators, history)


def test_sessions_that_were_not_written_in_order():
    """As by Flink, whose sessions in flight are in a hash map."""
    ways = Ways([window_operator(EventTimeSessionWindows(2), **CONTENTS["list"])])
    ways.frame([("a", 0), ("a", 10), ("a", 20)])
    for harness in (ways.fast, ways.general):
        harness.backend.set_current_key("a")
        state = harness.operator.running.merging_state
        state.update([*state.get()][::-1])
    run_on(ways, [("restore", 0), ("frame", [("a", 21)]), ("frame", [("a", 11), ("a", 2)])])


class Daily(TumblingEventTimeWindows):
    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(0, 100)]


class Eager(EventTimeTrigger):
    def on_element(self, element, timestamp, window, ctx):
        super().on_element(element, timestamp, window, ctx)
        return CountTrigger(1).on_element(element, timestamp, window, ctx)


class Wider(EventTimeSessionWindows):
    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp - 5, timestamp + 5)]


@pytest.mark.parametrize(
    ("assigner", "trigger"),
    [
        (TumblingEventTimeWindows(10), CountTrigger(2)),
        (TumblingEventTimeWindows(10), ContinuousEventTimeTrigger(2)),
        (TumblingEventTimeWindows(10), PurgingTrigger(CountTrigger(2))),
        (TumblingEventTimeWindows(10), PurgingTrigger(PurgingTrigger(EventTimeTrigger()))),
        (TumblingEventTimeWindows(2**62), None),
        (TumblingProcessingTimeWindows(10), None),
        (TumblingEventTimeWindows(10), ProcessingTimeTrigger()),
        (ProcessingTimeSessionWindows(10), None),
        (CountTumblingWindowAssigner(10), None),
        (Apart(), None),
        (Daily(10), None),
        (TumblingEventTimeWindows(10), Eager()),
        (TumblingEventTimeWindows(10), PurgingTrigger(Eager())),
        (Wider(10), None),
    ],
    ids=repr,
)
def test_what_is_not_known_such_as_a_subclass_takes_the_general_way(assigner, trigger):
    assert WindowHarness(window_operator(assigner, trigger, function=Collect())).operator.fast_way is None


@pytest.mark.parametrize("is_general", [False, True])
@pytest.mark.parametrize(
    "assigner", [TumblingEventTimeWindows(10), SlidingEventTimeWindows(10, 5), EventTimeSessionWindows(10)]
)
class TestErrors:
    def harness(self, assigner, is_general):
        return WindowHarness(window_operator(assigner, function=Collect()), is_general=is_general)

    @pytest.mark.parametrize(
        ("value", "timestamp", "error", "message"),
        [
            (1, None, BadRecordError, "needs timestamps"),
            (1, MIN_LONG_VALUE, BadRecordError, "needs timestamps"),
            (1, MAX_LONG_VALUE, StateValueError, "64-bit"),
            (None, 5, StateValueError, "None cannot be added"),
        ],
        ids=["no timestamp", "the least", "a window beyond 64 bits", "None in a list"],
    )
    def test_what_is_refused(self, assigner, is_general, value, timestamp, error, message):
        with pytest.raises(error, match=message):
            self.harness(assigner, is_general).process("a", value, timestamp)

    def test_a_time_near_the_bounds(self, assigner, is_general):
        harness = self.harness(assigner, is_general)
        for timestamp in (-(2**62), 2**62, 2**61 + 1):
            harness.process("a", timestamp, timestamp)
        fired = harness.advance()
        assert {element for (_, _, collected), _ in fired for element in collected} == {
            -(2**62),
            2**62,
            2**61 + 1,
        }
        harness.assert_empty()


def test_many_windows_at_a_time():
    harness, general = (
        WindowHarness(window_operator(TumblingEventTimeWindows(1), function=Collect()), is_general=is_general)
        for is_general in (False, True)
    )
    for timestamp in [*range(1500), *range(0, 1500, 7)]:
        harness.process("a", timestamp, timestamp)
        general.process("a", timestamp, timestamp)
    assert harness.entries() == general.entries()
    assert harness.advance() == general.advance()


class Fails(WindowFunction):
    def apply(self, key, window, inputs):
        raise LookupError("no such window")


class TestSubtask:
    def harness(self, assigner):
        operator = window_operator(assigner, contents=joined, contents_type=Types.STRING())
        return KeyedOneInputOperatorHarness(operator, key_selector=lambda value: str(value)[0])

    @pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(10)])
    def test_frames_go_to_the_fast_way(self, assigner):
        harness = self.harness(assigner)
        for value, timestamp in (("a1", 1), ("b1", 2), ("a2", 3)):
            assert harness.process_element(value, timestamp) == []
        assert sorted(harness.process_watermark(30)) == ["a1a2", "b1"]
        assert harness.num_keyed_state_entries() == harness.num_event_time_timers() == 0

    @pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(10)])
    def test_an_error_names_the_record_and_its_key(self, assigner):
        harness = self.harness(assigner)
        harness.process_element("a1", 1)
        with pytest.raises(StateValueError, match=r"7 \(int\) does not fit STRING") as caught:
            harness.process_element(7, 2)
        assert "key '7', record 7" in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10), EventTimeSessionWindows(9)])
    def test_an_error_while_a_window_fires_names_its_time_and_its_key(self, assigner):
        operator = window_operator(assigner, function=Fails())
        harness = KeyedOneInputOperatorHarness(operator, key_selector=lambda value: str(value)[0])
        harness.process_element("a1", 1)
        harness.process_element("b1", 11)
        with pytest.raises(UserFunctionError, match="no such window") as caught:
            harness.process_watermark(10)
        assert "key 'a', in on_timer() at 9" in "".join(traceback.format_exception(caught.value))
