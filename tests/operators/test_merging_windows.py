"""Merging windows: the set, after Flink's ``MergingWindowSetTest``, and sessions through the operator."""

from functools import partial

import pytest
from support_windows import Collect, Mean, WindowHarness, collecting, fired, play

from pyflinkstate import (
    CountTrigger,
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    MergingWindowAssigner,
    OutputTag,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    Time,
    TimeWindow,
    TimeWindowSerializer,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.operators.windows.window_state import MergingWindowSet

LATE = OutputTag("late")
GAP = EventTimeSessionWindows.with_gap(Time.milliseconds(10))


class Stored:
    """A list state of one key, in memory; counts writes."""

    def __init__(self):
        self.pairs = []
        self.writes = 0

    def get(self):
        return self.pairs

    def update(self, pairs):
        self.pairs = pairs
        self.writes += 1


class Merges:
    """Notes what was merged."""

    def __init__(self):
        self.calls = []

    def __call__(self, *call):
        self.calls.append(call)

    def taken(self):
        calls, self.calls = self.calls, []
        return calls


def never(*call):
    raise AssertionError(f"nothing is to be merged, but {call}")


def window(start, end):
    return TimeWindow(start, end)


@pytest.fixture
def windows():
    return MergingWindowSet(GAP, Stored())


def windows_of(bounds):
    return [window(*each) for each in bounds]


#: Steps: a window that is added, what it becomes, and what is merged: the merged window, the windows, its
#: state window, and the other state windows. At the end, the state windows of some windows.
MERGED = {
    "windows apart are their own state windows": (
        [((0, 4), (0, 4), []), ((5, 8), (5, 8), [])],
        {(0, 4): (0, 4), (5, 8): (5, 8), (1, 2): None},
    ),
    "growing keeps the state window": (
        [
            ((0, 3), (0, 3), []),
            ((1, 4), (0, 4), [((0, 4), [(0, 3)], (0, 3), [])]),
            ((-1, 1), (-1, 4), [((-1, 4), [(0, 4)], (0, 3), [])]),
        ],
        {(-1, 4): (0, 3), (0, 4): None},
    ),
    "three become one": (
        [
            ((10, 13), (10, 13), []),
            ((0, 3), (0, 3), []),
            ((5, 8), (5, 8), []),
            ((3, 10), (0, 13), [((0, 13), [(0, 3), (5, 8), (10, 13)], (0, 3), [(5, 8), (10, 13)])]),
        ],
        {(0, 13): (0, 3)},
    ),
    "a window that covers others is none of theirs": (
        [
            ((1, 3), (1, 3), []),
            ((5, 8), (5, 8), []),
            ((0, 9), (0, 9), [((0, 9), [(1, 3), (5, 8)], (1, 3), [(5, 8)])]),
        ],
        {(0, 9): (1, 3)},
    ),
    "a window inside another merges nothing": (
        [((1, 10), (1, 10), []), ((3, 5), (1, 10), []), ((1, 10), (1, 10), [])],
        {(1, 10): (1, 10)},
    ),
    "adding the same window keeps its state window": (
        [((0, 3), (0, 3), []), ((2, 6), (0, 6), [((0, 6), [(0, 3)], (0, 3), [])]), ((0, 6), (0, 6), [])],
        {(0, 6): (0, 3)},
    ),
    "windows that touch merge": (
        [((0, 3), (0, 3), []), ((3, 6), (0, 6), [((0, 6), [(0, 3)], (0, 3), [])])],
        {(0, 6): (0, 3)},
    ),
}


class TestMergingWindowSet:
    @pytest.mark.parametrize("name", MERGED)
    def test_what_is_merged(self, name, windows):
        steps, state_windows = MERGED[name]
        merges = Merges()
        for added, result, calls in steps:
            assert windows.add_window(window(*added), merges) == window(*result)
            assert merges.taken() == [
                (window(*merged), windows_of(parts), window(*state_window), windows_of(others))
                for merged, parts, state_window, others in calls
            ]
        for each, expected in state_windows.items():
            assert windows.get_state_window(window(*each)) == (expected and window(*expected))

    def test_retired_windows_are_gone(self, windows):
        windows.add_window(window(0, 3), never)
        windows.retire_window(window(0, 3))
        assert windows.get_state_window(window(0, 3)) is None
        assert windows.add_window(window(1, 4), never) == window(1, 4)
        with pytest.raises(KeyError):
            windows.retire_window(window(0, 3))

    def test_it_is_written_only_if_it_has_changed(self):
        state = Stored()
        first = MergingWindowSet(GAP, state)
        first.persist()
        assert state.writes == 0
        first.add_window(window(0, 3), never)
        first.add_window(window(2, 5), Merges())
        first.persist()
        first.persist()
        assert (state.pairs, state.writes) == ([(window(0, 5), window(0, 3))], 1)
        again = MergingWindowSet(GAP, state)
        again.add_window(window(1, 2), never)
        again.persist()
        assert state.writes == 1
        assert again.get_state_window(window(0, 5)) == window(0, 3)
        again.retire_window(window(0, 5))
        again.persist()
        assert (state.pairs, state.writes) == ([], 2)

    @pytest.mark.parametrize(
        ("merged", "into"),
        [([(7, 8)], (7, 9)), ([(0, 3), (7, 8)], (0, 8)), ([(1, 2)], (1, 2)), ([(0, 3), (1, 2)], (20, 23))],
    )
    def test_an_assigner_that_merges_what_is_not_there_is_refused(self, merged, into):
        class Wrong(EventTimeSessionWindows):
            def merge_windows(self, windows, callback):
                if window(1, 2) in windows:
                    callback.merge([window(*each) for each in merged], window(*into))

        windows = MergingWindowSet(Wrong(1), Stored())
        windows.add_window(window(0, 3), never)
        windows.add_window(window(20, 23), never)
        with pytest.raises(ConfigurationError, match="may merge only those"):
            windows.add_window(window(1, 2), never)


class Twos(MergingWindowAssigner):
    """Merges pairs that the new window is not part of: windows that begin at the same ten."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp, 1000)]

    def merge_windows(self, windows, callback):
        tens = {}
        for each in windows:
            tens.setdefault(each.start // 10, []).append(each)
        for group in tens.values():
            if len(group) > 1:
                callback.merge(group, TimeWindow(min(group).start, 1000))

    def get_default_trigger(self, env):
        return EventTimeTrigger()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


class TestSessions:
    @pytest.mark.parametrize("gap", [0, -1, None, 1.5, True])
    def test_a_gap_that_is_not_positive_is_a_bad_record(self, gap):
        harness = collecting(EventTimeSessionWindows.with_dynamic_gap(GapIsElement()))
        with pytest.raises(BadRecordError, match="positive"):
            harness.process("a", gap, 0)

    def test_one_element_sees_one_time(self):
        operator = window_operator(ProcessingTimeSessionWindows.with_gap(1), function=Collect())
        harness = WindowHarness(operator)
        ticks = iter(range(100))
        harness.time.now_ms = lambda: next(ticks)
        for value in range(5):
            harness.process("a", value)
        # The clock ticks between assigning and merging; on_merge() looks at it as well.
        found = harness.entries()["window-contents"]
        assert list(map(sorted, sorted(found.values()))) == [[0, 1], [2, 3], [4]]

    @pytest.mark.parametrize("is_event_time", [True, False])
    def test_windows_that_shrink_by_merging_are_refused(self, is_event_time):
        class Shrinking(EventTimeSessionWindows):
            def merge_windows(self, windows, callback):
                if len(windows) > 1:
                    callback.merge(list(windows), TimeWindow(0, 1))

            def is_event_time(self):
                return is_event_time

        harness = collecting(Shrinking(10))
        harness.advance(5)
        harness.now_ms = 5
        harness.process("a", 1, 6)
        with pytest.raises(ConfigurationError, match=r"ends before the current .*, 5"):
            harness.process("a", 1, 7)


class GapIsElement(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return element


FIVE_IN_ONE_SESSION = [
    ("process", "a", value, timestamp, ...) for value, timestamp in ((1, 0), (3, 15), (2, 5), (4, 17), (5, 6))
]

#: How to make a harness, and the steps that :func:`play` takes with it.
STORIES = {
    "Sessions: sessions of each key": (
        partial(collecting, GAP),
        ("process", "a", 0, 0, ...),
        ("process", "b", 5, 5, ...),
        ("process", "a", 9, 9, ...),
        ("process", "a", 20, 20, ...),
        ("process", "b", 14, 14, ...),
        ("advance", 17, []),
        ("advance", 18, [fired("a", 0, 19, 0, 9)]),
        ("advance", [fired("b", 5, 24, 5, 14), fired("a", 20, 30, 20)]),
        ("assert_empty", None),
    ),
    "Sessions: a gap of exactly the size still merges": (
        partial(collecting, GAP),
        ("process", "a", 0, 0, ...),
        ("process", "a", 10, 10, ...),
        ("process", "a", 21, 21, ...),
        ("advance", [fired("a", 0, 20, 0, 10), fired("a", 21, 31, 21)]),
    ),
    "Sessions: an element between joins two sessions": (
        partial(collecting, GAP),
        ("process", "a", 30, 30, ...),
        ("process", "a", 12, 12, ...),
        ("process", "a", 0, 0, ...),
        ("process", "a", 21, 21, ...),
        ("process", "a", 10, 10, ...),
        ("timers", {"event": [(39, "a", window(0, 40))]}),
        (
            "entries",
            {
                "window-contents": {("a", window(0, 10)): [0, 12, 30, 21, 10]},
                "merging-window-set": {"a": [(window(0, 40), window(0, 10))]},
            },
        ),
        ("advance", [fired("a", 0, 40, 0, 12, 30, 21, 10)]),
        ("assert_empty", None),
    ),
    "Sessions: three sessions by a window over all of them": (
        partial(collecting, DynamicEventTimeSessionWindows.with_dynamic_gap(GapIsElement())),
        ("process", "a", 1, 20, ...),
        ("process", "a", 2, 10, ...),
        ("process", "a", 3, 30, ...),
        ("process", "a", 50, 9, ...),
        ("timers", {"event": [(58, "a", window(9, 59))]}),
        ("advance", [fired("a", 9, 59, 2, 1, 3, 50)]),
        ("assert_empty", None),
    ),
    "Sessions: late elements": (
        partial(collecting, GAP, late_tag=LATE),
        ("process", "a", 1, 0, ...),
        ("advance", 9, [fired("a", 0, 10, 1)]),
        ("process", "a", 2, 0, ...),
        ("side", {"late": [(2, 0)]}),
        ("assert_empty", None),
    ),
    "Sessions: an element before the watermark may belong to a session that lives": (
        partial(collecting, GAP, late_tag=LATE),
        ("process", "a", 1, 10, ...),
        ("advance", 15, ...),
        ("process", "a", 2, 1, ...),
        ("side", {}),
        ("advance", [fired("a", 1, 20, 1, 2)]),
    ),
    "Sessions: late merging fires at once and again when it grows": (
        partial(collecting, GAP, allowed_lateness_ms=20, late_tag=LATE),
        ("process", "a", 0, 0, ...),
        ("process", "a", 15, 15, ...),
        ("advance", 25, [fired("a", 0, 10, 0), fired("a", 15, 25, 15)]),
        ("process", "a", 7, 7, [fired("a", 0, 25, 0, 15, 7)]),
        ("timers", {"event": [(44, "a", window(0, 25))]}),
        ("process", "a", 24, 24, []),
        ("timers", {"event": [(33, "a", window(0, 34)), (53, "a", window(0, 34))]}),
        ("advance", 52, [fired("a", 0, 34, 0, 15, 7, 24)]),
        ("process", "a", 33, 33, [fired("a", 0, 43, 0, 15, 7, 24, 33)]),
        ("advance", 62, []),
        ("assert_empty", None),
        ("process", "a", 31, 31, ...),
        ("side", {"late": [(31, 31)]}),
    ),
    "Sessions: a purged session lives on without its elements": (
        partial(collecting, GAP, trigger=PurgingTrigger.of(CountTrigger.of(2))),
        ("process", "a", 1, 0, []),
        ("process", "a", 2, 5, [fired("a", 0, 15, 1, 2)]),
        ("process", "a", 3, 9, ...),
        ("process", "a", 4, 12, [fired("a", 0, 22, 3, 4)]),
        ("advance", []),
        ("assert_empty", None),
    ),
    "Sessions: counts of merged windows add up": (
        partial(collecting, GAP, trigger=CountTrigger.of(4)),
        ("process", "a", 0, 0, []),
        ("process", "a", 20, 20, []),
        ("process", "a", 22, 22, []),
        ("process", "a", 10, 10, [fired("a", 0, 32, 0, 20, 22, 10)]),
        ("advance", ...),
        ("assert_empty", None),
    ),
    "Sessions: processing time": (
        partial(collecting, ProcessingTimeSessionWindows.with_gap(10)),
        ("set_processing_time", 0, ...),
        ("process", "a", 0, ...),
        ("set_processing_time", 7, ...),
        ("process", "a", 7, ...),
        ("timers", {"processing": [(16, "a", window(0, 17))]}),
        ("set_processing_time", 16, [fired("a", 0, 17, 0, 7)]),
        ("assert_empty", None),
    ),
    "Sessions: reduced values merge": (
        partial(WindowHarness, window_operator(GAP, contents=lambda old, new: f"{old}{new}")),
        *FIVE_IN_ONE_SESSION,
        ("advance", [("13245", 26)]),
        ("assert_empty", None),
    ),
    "Sessions: accumulators merge": (
        partial(WindowHarness, window_operator(GAP, contents=Mean())),
        *FIVE_IN_ONE_SESSION,
        ("advance", [(3.0, 26)]),
        ("assert_empty", None),
    ),
    "Sessions: each group of merged windows counts, not just the new windows": (
        partial(collecting, Twos()),
        *(("process", "a", timestamp, timestamp, ...) for timestamp in (1, 11, 22, 12, 23)),
        (
            "advance",
            [fired("a", 1, 1000, 1), fired("a", 11, 1000, 11, 12), fired("a", 22, 1000, 22, 23)],
        ),
        ("assert_empty", None),
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_story(name):
    make, *steps = STORIES[name]
    play(make(), *steps)
