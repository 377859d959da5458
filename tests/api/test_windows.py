"""Windows as values, and what assigners assign; after Flink's tests of the assigners."""

import copy
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

    def test_repr(self):
        shown = list(map(repr, (TimeWindow(0, 5), CountWindow(3), GlobalWindow.get())))
        assert shown == ["TimeWindow(start=0, end=5)", "CountWindow(id=3)", "GlobalWindow"]

    def test_max_timestamp(self):
        assert TimeWindow(0, 5).max_timestamp() == 4
        assert CountWindow(1).max_timestamp() == GlobalWindow().max_timestamp() == MAX_LONG_VALUE

    @pytest.mark.parametrize(
        ("other", "does"),
        [((5, 6), True), ((6, 9), False), ((-3, 0), True), ((-3, -1), False), ((1, 2), True)],
    )
    def test_intersects(self, other, does):
        assert TimeWindow(0, 5).intersects(TimeWindow(*other)) is does
        assert TimeWindow(*other).intersects(TimeWindow(0, 5)) is does

    def test_cover(self):
        assert TimeWindow(0, 5).cover(TimeWindow(-1, 3)) == TimeWindow(-1, 5)

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


BOTH_TUMBLING = pytest.mark.parametrize("cls", [TumblingEventTimeWindows, TumblingProcessingTimeWindows])
BOTH_SLIDING = pytest.mark.parametrize("cls", [SlidingEventTimeWindows, SlidingProcessingTimeWindows])
BOTH_SESSIONS = pytest.mark.parametrize("cls", [EventTimeSessionWindows, ProcessingTimeSessionWindows])


def assigned(assigner, time):
    """Windows at ``time``, by whichever time the assigner goes; the other one misleads."""
    if assigner.is_event_time():
        return assigner.assign_windows("x", time, At(10**9))
    return assigner.assign_windows("x", None, At(time))


class TestTumbling:
    @BOTH_TUMBLING
    def test_windows(self, cls):
        assigner = cls.of(Time.seconds(5))
        for time, start in ((0, 0), (4999, 0), (5000, 5000), (-1, -5000)):
            assert assigned(assigner, time) == [TimeWindow(start, start + 5000)]

    @BOTH_TUMBLING
    @pytest.mark.parametrize(("offset_ms", "start"), [(100, 100), (-100, 4900), (0, 0)])
    def test_offsets(self, cls, offset_ms, start):
        assert assigned(cls.of(Time.seconds(5), Duration.of_millis(offset_ms)), start) == [
            TimeWindow(start, start + 5000)
        ]

    @BOTH_TUMBLING
    @pytest.mark.parametrize(("size", "offset"), [(10, 10), (10, -10), (0, 0), (-1, 0), (10, 20)])
    def test_sizes_that_do_not_fit(self, cls, size, offset):
        with pytest.raises(ConfigurationError, match=rf"{cls.__name__}.*abs\(offset\) < size"):
            cls.of(Time.milliseconds(size), Time.milliseconds(offset))

    @BOTH_TUMBLING
    @pytest.mark.parametrize("size", ["5", None, 1.5, True])
    def test_a_size_is_a_length_of_time(self, cls, size):
        with pytest.raises(ConfigurationError):
            cls.of(size)

    @BOTH_TUMBLING
    def test_a_size_may_be_a_number_of_numpys(self, cls):
        assert assigned(cls.of(np.int16(20_000), np.int8(5)), 15_000) == assigned(cls.of(20_000, 5), 15_000)
        assert repr(cls.of(np.int64(20))) == repr(cls.of(20))

    def test_by_which_time(self):
        event, processing = TumblingEventTimeWindows.of(5), TumblingProcessingTimeWindows.of(5, 1)
        assert isinstance(event.get_default_trigger(None), EventTimeTrigger)
        assert isinstance(processing.get_default_trigger(None), ProcessingTimeTrigger)
        assert (repr(event), repr(processing)) == (
            "TumblingEventTimeWindows(5, 0)",
            "TumblingProcessingTimeWindows(5, 1)",
        )

    @pytest.mark.parametrize("timestamp", [None, -(2**63)])
    @pytest.mark.parametrize(
        "assigner",
        [TumblingEventTimeWindows.of(5), SlidingEventTimeWindows.of(5, 1), EventTimeSessionWindows(5)],
    )
    def test_without_a_timestamp(self, assigner, timestamp):
        with pytest.raises(BadRecordError, match="needs timestamps"):
            assigner.assign_windows("x", timestamp, At(0))


class TestSliding:
    @BOTH_SLIDING
    def test_windows(self, cls):
        assigner = cls.of(Time.seconds(5), Time.seconds(1))
        starts = [4000, 3000, 2000, 1000, 0]
        assert assigned(assigner, 4999) == [TimeWindow(start, start + 5000) for start in starts]
        assert [window.start for window in assigned(assigner, 5000)] == [start + 1000 for start in starts]

    @BOTH_SLIDING
    def test_windows_that_are_no_multiple_of_the_slide(self, cls):
        assert [window.start for window in assigned(cls.of(25, 10, 3), 31)] == [23, 13]
        assert [window.start for window in assigned(cls.of(25, 10, -3), 31)] == [27, 17, 7]

    @BOTH_SLIDING
    @pytest.mark.parametrize(
        ("size", "slide", "offset"), [(0, 5, 0), (-2, -1, 0), (20, 10, 10), (20, 10, -11), (20, 0, 0)]
    )
    def test_sizes_that_do_not_fit(self, cls, size, slide, offset):
        with pytest.raises(ConfigurationError, match=rf"{cls.__name__}.*abs\(offset\) < slide and size > 0"):
            cls.of(size, slide, offset)

    def test_repr(self):
        assert repr(SlidingEventTimeWindows.of(5, 2, 1)) == "SlidingEventTimeWindows(5, 2, 1)"


class Twice(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 2 * element


class TestSessions:
    @BOTH_SESSIONS
    def test_a_window_is_the_gap_after_its_element(self, cls):
        assert assigned(cls.with_gap(Time.seconds(5)), 7) == [TimeWindow(7, 5007)]
        dynamic = cls.with_dynamic_gap(Twice())
        assert dynamic.assign_windows(4, 7, At(7)) == [TimeWindow(7, 15)]
        assert type(dynamic) in (DynamicEventTimeSessionWindows, DynamicProcessingTimeSessionWindows)
        assert type(type(dynamic).with_dynamic_gap(Twice())) is type(dynamic)
        assert dynamic.is_event_time() == cls(1).is_event_time()

    @BOTH_SESSIONS
    @pytest.mark.parametrize("gap", [0, -1])
    def test_the_gap_must_be_positive(self, cls, gap):
        with pytest.raises(ConfigurationError, match="0 < size"):
            cls.with_gap(Time.milliseconds(gap))

    @BOTH_SESSIONS
    def test_a_dynamic_gap_needs_an_extractor(self, cls):
        with pytest.raises(ConfigurationError, match="SessionWindowTimeGapExtractor"):
            cls.with_dynamic_gap(lambda element: 5)

    def test_repr(self):
        assert repr(EventTimeSessionWindows.with_gap(5)) == "EventTimeSessionWindows(5)"
        assert (
            repr(EventTimeSessionWindows.with_dynamic_gap(Twice())) == "DynamicEventTimeSessionWindows(Twice)"
        )


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

    @pytest.mark.parametrize("size", [0, -1, "3", 1.0])
    def test_sizes_are_positive_numbers(self, size):
        for make in (
            CountTumblingWindowAssigner.of,
            lambda size: CountSlidingWindowAssigner.of(size, 1),
            lambda size: CountSlidingWindowAssigner.of(1, size),
        ):
            with pytest.raises(ConfigurationError, match="whole number, at least 1"):
                make(size)


def test_functions_are_generic_as_in_pyflink():
    class Applied(WindowFunction[int, str, str, TimeWindow]):
        def apply(self, key, window, inputs):
            return [key]

    class Processed(ProcessWindowFunction[int, str, str, TimeWindow]):
        def process(self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements):
            return [key]

    assert Applied().apply("k", TimeWindow(0, 1), []) == Processed().process("k", None, [])
    assert Processed().clear(None) is None
