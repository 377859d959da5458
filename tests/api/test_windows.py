"""Windows as values, and what assigners assign; after Flink's tests of the assigners."""

import copy
import itertools
import pickle

import numpy as np
import pytest

from pyflinkstate import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    Duration,
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    MergingWindowAssigner,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    Time,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
    WindowFunction,
)
from pyflinkstate.api import MAX_LONG_VALUE, CountWindow, GlobalWindow, TimeWindow
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import BadRecordError, ConfigurationError


class At(WindowAssigner.WindowAssignerContext):
    """The machine's time, standing still."""

    def __init__(self, now_ms):
        self.now_ms = now_ms

    def get_current_processing_time(self):
        return self.now_ms

    def get_runtime_context(self):
        raise AssertionError("not asked for")


class TestWindows:
    def test_they_are_values(self):
        assert TimeWindow(1, 2) == TimeWindow(1, 2) != TimeWindow(1, 3)
        assert len({TimeWindow(1, 2), TimeWindow(1, 2), CountWindow(1), CountWindow(1), GlobalWindow()}) == 3
        assert GlobalWindow.get() is GlobalWindow.get()
        assert GlobalWindow.get() == GlobalWindow()
        for window in (TimeWindow(1, 2), CountWindow(1), GlobalWindow.get()):
            assert pickle.loads(pickle.dumps(window)) == window

    def test_what_earlier_versions_pickled_is_read(self):
        # TimeWindow(60000, 120000), by versions in which the class had a state of its own, with protocol 4.
        pickled = (
            b"\x80\x04\x95I\x00\x00\x00\x00\x00\x00\x00\x8c\x18pyflinkstate.api.windows\x94\x8c\nTimeWindow\x94"
            b"\x93\x94)\x81\x94}\x94(\x8c\x05start\x94M`\xea\x8c\x03end\x94J\xc0\xd4\x01\x00ub."
        )
        window = pickle.loads(pickled)
        assert window == TimeWindow(60000, 120000)
        assert hash(window) == hash(TimeWindow(60000, 120000))

    def test_a_time_window_is_not_changed(self):
        window = TimeWindow(1, 2)
        for name in ("start", "end", "other"):
            with pytest.raises(AttributeError):
                setattr(window, name, 3)
        assert copy.deepcopy(window) == window
        assert isolated(window) is window

    def test_a_subclass_is_another_window(self):
        class Named(TimeWindow):
            name = "named"

        assert Named(1, 2) == Named(1, 2) != TimeWindow(1, 2)
        assert Named(1, 2).start == 1
        assert Named(1, 2).intersects(TimeWindow(2, 3))
        assert repr(Named(1, 2)) == "Named(start=1, end=2)"

    def test_order(self):
        windows = [TimeWindow(0, 5), TimeWindow(0, 6), TimeWindow(1, 2)]
        assert sorted(set(windows)) == windows
        assert windows[0] <= windows[0]
        assert CountWindow(1) < CountWindow(2)
        with pytest.raises(TypeError):
            assert TimeWindow(0, 1) < CountWindow(2)

    @pytest.mark.parametrize(
        ("window", "shown", "max_timestamp"),
        [
            (TimeWindow(0, 5), "TimeWindow(start=0, end=5)", 4),
            (CountWindow(3), "CountWindow(id=3)", MAX_LONG_VALUE),
            (GlobalWindow(), "GlobalWindow", MAX_LONG_VALUE),
        ],
    )
    def test_what_it_shows_and_when_it_ends(self, window, shown, max_timestamp):
        assert (repr(window), window.max_timestamp()) == (shown, max_timestamp)

    @pytest.mark.parametrize(
        ("other", "does", "cover"),
        [
            ((5, 6), True, (0, 6)),
            ((6, 9), False, (0, 9)),
            ((-3, 0), True, (-3, 5)),
            ((-3, -1), False, (-3, 5)),
            ((1, 2), True, (0, 5)),
        ],
    )
    def test_two_that_intersect_or_not_and_their_cover(self, other, does, cover):
        for one, two in itertools.permutations((TimeWindow(0, 5), TimeWindow(*other))):
            assert (one.intersects(two), one.cover(two)) == (does, TimeWindow(*cover))

    @pytest.mark.parametrize(
        ("timestamp", "offset", "start"),
        [
            (1, 0, 0),
            (6, 0, 0),
            (7, 0, 7),
            (-1, 0, -7),
            (-7, 0, -7),
            (-8, 0, -14),
            (1, 3, -4),
            (3, 3, 3),
            (1, -2, -2),
        ],
    )
    def test_start_with_offset(self, timestamp, offset, start):
        assert TimeWindow.get_window_start_with_offset(timestamp, offset, 7) == start

    def test_merge_windows_in_the_order_of_time(self):
        class Merged(MergingWindowAssigner.MergeCallback):
            def __init__(self):
                self.calls = []

            def merge(self, to_be_merged, merge_result):
                self.calls.append((list(to_be_merged), merge_result))

        merged = Merged()
        windows = [(20, 25), (3, 5), (0, 3), (30, 31), (22, 23), (30, 31), (6, 7)]
        TimeWindow.merge_windows((TimeWindow(*window) for window in windows), merged)
        assert merged.calls == [
            ([TimeWindow(0, 3), TimeWindow(3, 5)], TimeWindow(0, 5)),
            ([TimeWindow(20, 25), TimeWindow(22, 23)], TimeWindow(20, 25)),
        ]


TUMBLING = [TumblingEventTimeWindows, TumblingProcessingTimeWindows]
SLIDING = [SlidingEventTimeWindows, SlidingProcessingTimeWindows]
SESSIONS = [EventTimeSessionWindows, ProcessingTimeSessionWindows]


def assigned(assigner, time):
    """Windows at ``time``, by whichever time the assigner goes; the other one misleads."""
    if assigner.is_event_time():
        return assigner.assign_windows("x", time, At(10**9))
    return assigner.assign_windows("x", None, At(time))


class TestTumbling:
    @pytest.mark.parametrize("cls", TUMBLING)
    def test_windows(self, cls):
        assigner = cls.of(Time.seconds(5))
        for time, start in ((0, 0), (4999, 0), (5000, 5000), (-1, -5000)):
            assert assigned(assigner, time) == [TimeWindow(start, start + 5000)]

    @pytest.mark.parametrize("cls", TUMBLING)
    @pytest.mark.parametrize(("offset_ms", "start"), [(100, 100), (-100, 4900), (0, 0)])
    def test_offsets(self, cls, offset_ms, start):
        assert assigned(cls.of(Time.seconds(5), Duration.of_millis(offset_ms)), start) == [
            TimeWindow(start, start + 5000)
        ]

    @pytest.mark.parametrize("cls", TUMBLING)
    def test_a_size_may_be_a_number_of_numpys(self, cls):
        assert assigned(cls.of(np.int16(20_000), np.int8(5)), 15_000) == assigned(cls.of(20_000, 5), 15_000)
        assert repr(cls.of(np.int64(20))) == repr(cls.of(20))

    def test_by_which_time(self):
        triggers = [cls.of(5).get_default_trigger(None) for cls in TUMBLING]
        assert list(map(type, triggers)) == [EventTimeTrigger, ProcessingTimeTrigger]

    @pytest.mark.parametrize("timestamp", [None, -(2**63)])
    @pytest.mark.parametrize(
        "assigner",
        [TumblingEventTimeWindows.of(5), SlidingEventTimeWindows.of(5, 1), EventTimeSessionWindows(5)],
    )
    def test_without_a_timestamp(self, assigner, timestamp):
        with pytest.raises(BadRecordError, match="needs timestamps"):
            assigner.assign_windows("x", timestamp, At(0))


class TestSliding:
    @pytest.mark.parametrize("cls", SLIDING)
    def test_windows(self, cls):
        assigner = cls.of(Time.seconds(5), Time.seconds(1))
        starts = [4000, 3000, 2000, 1000, 0]
        assert assigned(assigner, 4999) == [TimeWindow(start, start + 5000) for start in starts]
        assert [window.start for window in assigned(assigner, 5000)] == [start + 1000 for start in starts]

    @pytest.mark.parametrize("cls", SLIDING)
    def test_windows_that_are_no_multiple_of_the_slide(self, cls):
        assert [window.start for window in assigned(cls.of(25, 10, 3), 31)] == [23, 13]
        assert [window.start for window in assigned(cls.of(25, 10, -3), 31)] == [27, 17, 7]


class Twice(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 2 * element


class TestSessions:
    @pytest.mark.parametrize("cls", SESSIONS)
    def test_a_window_is_the_gap_after_its_element(self, cls):
        assert assigned(cls.with_gap(Time.seconds(5)), 7) == [TimeWindow(7, 5007)]
        dynamic = cls.with_dynamic_gap(Twice())
        assert dynamic.assign_windows(4, 7, At(7)) == [TimeWindow(7, 15)]
        assert type(dynamic) in (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows)
        assert type(type(dynamic).with_dynamic_gap(Twice())) is type(dynamic)
        assert dynamic.is_event_time() == cls(1).is_event_time()


@pytest.mark.parametrize(
    ("assigner", "shown"),
    [
        (TumblingEventTimeWindows.of(5), "TumblingEventTimeWindows(5, 0)"),
        (TumblingProcessingTimeWindows.of(5, 1), "TumblingProcessingTimeWindows(5, 1)"),
        (SlidingEventTimeWindows.of(5, 2, 1), "SlidingEventTimeWindows(5, 2, 1)"),
        (EventTimeSessionWindows.with_gap(5), "EventTimeSessionWindows(5)"),
        (EventTimeSessionWindows.with_dynamic_gap(Twice()), "DynamicEventTimeSessionWindows(Twice)"),
    ],
)
def test_an_assigner_shows_its_sizes(assigner, shown):
    assert repr(assigner) == shown


class TestGlobalAndCount:
    def test_global(self):
        assigner = GlobalWindows.create()
        assert assigner.assign_windows("x", None, At(0)) == [GlobalWindow()]
        assert isinstance(assigner.get_default_trigger(None), NeverTrigger)
        assert (assigner.is_event_time(), repr(assigner)) == (False, "GlobalWindows()")

    @pytest.mark.parametrize(
        ("assigner", "expected"),
        [
            (CountTumblingWindowAssigner.of(3), [[0], [0], [0], [1], [1], [1], [2]]),
            (CountSlidingWindowAssigner.of(3, 1), [[0], [1, 0], [2, 1, 0], [3, 2, 1], [4, 3, 2]]),
            (CountSlidingWindowAssigner.of(3, 2), [[0], [0], [1, 0], [1], [2, 1], [2], [3, 2]]),
            (CountSlidingWindowAssigner.of(2, 3), [[0], [0], [], [1], [1], [], [2]]),
        ],
        ids=repr,
    )
    def test_count(self, assigner, expected):
        class Counted(At):
            def get_runtime_context(self):
                return self

            def get_state(self, descriptor):
                return self

            count = None

            def value(self):
                return self.count

            def update(self, count):
                self.count = count

        context = Counted(0)
        found = [assigner.assign_windows("x", None, context) for _ in expected]
        assert [[window.id for window in windows] for windows in found] == expected
        assert isinstance(assigner.get_default_trigger(None).nested_trigger, CountTrigger)


#: What cannot be made: of which classes, by which method, of what, and what the error says.
REFUSED = [
    *(
        (TUMBLING, "of", sizes, r"abs\(offset\) < size")
        for sizes in [(10, 10), (10, -10), (0, 0), (-1, 0), (10, 20)]
    ),
    *((TUMBLING, "of", (size,), "Time, Duration or timedelta") for size in ("5", None, 1.5, True)),
    *(
        (SLIDING, "of", sizes, r"abs\(offset\) < slide and size > 0")
        for sizes in [(0, 5, 0), (-2, -1, 0), (20, 10, 10), (20, 10, -11), (20, 0, 0)]
    ),
    (SESSIONS, "with_gap", (0,), "0 < size"),
    (SESSIONS, "with_gap", (Time.milliseconds(-1),), "0 < size"),
    (SESSIONS, "with_dynamic_gap", (len,), "SessionWindowTimeGapExtractor"),
    *(
        ([CountTumblingWindowAssigner], "of", (size,), "whole number, at least 1")
        for size in (0, -1, "3", 1.0)
    ),
    *(
        ([CountSlidingWindowAssigner], "of", sizes, "whole number, at least 1")
        for sizes in [(0, 1), (1, "3"), (1, 1.0)]
    ),
]


@pytest.mark.parametrize(("classes", "method", "arguments", "message"), REFUSED)
def test_sizes_that_do_not_fit_are_refused(classes, method, arguments, message):
    for cls in classes:
        with pytest.raises(ConfigurationError, match=message):
            getattr(cls, method)(*arguments)


def test_functions_are_generic_as_in_pyflink():
    class Applied(WindowFunction[int, str, str, TimeWindow]):
        def apply(self, key, window, inputs):
            return [key]

    class Processed(ProcessWindowFunction[int, str, str, TimeWindow]):
        def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements):
            return [key]

    assert Applied().apply("k", TimeWindow(0, 1), []) == Processed().process("k", None, [])
    assert Processed().clear(None) is None
