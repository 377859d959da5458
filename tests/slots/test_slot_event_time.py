"""What a slot does with time: frames that open, carry and close channels; timers of both kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import attrs
import pytest
from support_runtime import PICKLED, ManualClock
from support_slots import SLOT, deployment

from pyflinkstate import KeyedProcessFunction, OutputTag, TimeDomain, ValueStateDescriptor
from pyflinkstate.errors import FunctionResultError, UserFunctionError
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.tasks.router import Router
from pyflinkstate.runtime.wire.frames import InputFrame, ValuesFrame
from pyflinkstate.runtime.wire.messages import BeginEpoch, EpochAccepted, EpochDone
from pyflinkstate.runtime.wire.watermarks import MAX_WATERMARK, NO_WATERMARK, ChannelEvent, FrameTime

OPEN, RECORDS, CLOSE, CLOSE_EMPTY = ChannelEvent
ODD = OutputTag("odd")


class Timers(KeyedProcessFunction):
    """A record is ``(key, "e" or "p", time)`` for a timer, else its time and watermark come out."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        _, what, *rest = value
        if what == "e":
            timers.register_event_time_timer(*rest)
        elif what == "p":
            timers.register_processing_time_timer(*rest)
        elif what == "odd":
            yield ODD, value
        else:
            yield value, ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        timers = ctx.timer_service()
        domain = "e" if ctx.time_domain() is TimeDomain.EVENT_TIME else "p"
        yield ctx.get_current_key(), domain, timestamp, timers.current_watermark()


@attrs.define
class Served:
    """A slot in this process: no sockets, and a clock by hand."""

    service: SlotService
    clock: ManualClock
    is_timed: bool = True
    epoch: int = 0

    def begin(self, is_final: bool = False) -> None:
        self.epoch += 1
        begin = BeginEpoch(0, self.epoch, None, self.is_timed, is_final)
        assert self.service.begin(begin) == EpochAccepted()

    def feed(
        self, *records: Any, time: FrameTime | None = None, timestamps: Any = None
    ) -> ValuesFrame | None:
        """Send one frame; return the frame that comes back."""
        if records:
            router = Router("timers", lambda record: record[0], PICKLED, 1, 128)
            ((_, frame),) = router.splitter(0)(list(records), timestamps)
        else:
            frame = InputFrame(b"", (), ())
        return _decoded(self.service.process(attrs.evolve(frame, time=time).encode()))

    def at(self, watermark: int, event: ChannelEvent = RECORDS, branch: int = 0) -> ValuesFrame | None:
        return self.feed(time=FrameTime(branch, 0, watermark, event))

    def finish(self) -> ValuesFrame | None:
        return _decoded(self.service.finish_input())

    def end(self) -> EpochDone:
        done = self.service.end()
        assert isinstance(done, EpochDone)
        return done


def _decoded(frames: Iterator[bytes]) -> ValuesFrame | None:
    found = [ValuesFrame.decode(data) for data in frames]
    assert len(found) <= 1
    return found[0] if found else None


def serve(function: Any = None, is_timed: bool = True, watermark: int = NO_WATERMARK) -> Served:
    clock = ManualClock(1000)
    service = SlotService(SLOT, 0, SlotHost(lambda _: None, lambda run: run(), clock.now_ms))
    deployed = attrs.evolve(deployment(Timers() if function is None else function), watermark=watermark)
    assert service.deploy(deployed) is None
    return Served(service, clock, is_timed)


def values(frame: ValuesFrame | None) -> list[Any]:
    assert frame is not None
    return list(frame.values)


class TestWatermarks:
    def test_the_first_frame_back_says_where_the_epoch_opened_and_only_news_are_told(self) -> None:
        served = serve(watermark=3)
        served.begin()
        assert served.at(3, OPEN) is None
        assert served.at(3) == ValuesFrame([], [], 3, opening=3)
        assert served.at(3) is None
        assert served.at(7) == ValuesFrame([], [], 7)
        assert served.at(7, CLOSE) is None
        assert served.finish() == ValuesFrame([], [], 7), "the end is always told"
        assert served.end().watermark == 7

    def test_openings_of_several_branches_advance_nothing_before_all_are_known(self) -> None:
        served = serve(watermark=5)
        served.begin()
        for branch, opening in enumerate((10, 5)):
            served.at(opening, OPEN, branch)
        found = served.feed(("a", "tell"), time=FrameTime(0, 0, 12), timestamps=[7])
        assert found == ValuesFrame([(("a", "tell"), 7, 5)], [7], 5, opening=5)
        assert served.end().watermark == 5

    def test_records_meet_the_watermark_before_their_frame(self) -> None:
        served = serve()
        served.begin()
        served.at(NO_WATERMARK, OPEN)
        first = served.feed(("a", "tell"), time=FrameTime(0, 0, 4), timestamps=[5])
        second = served.feed(("a", "tell"), time=FrameTime(0, 0, 9), timestamps=[None])
        assert values(first) == [(("a", "tell"), 5, NO_WATERMARK)]
        assert values(second) == [(("a", "tell"), None, 4)]
        assert second is not None
        assert second.timestamps == [None]

    def test_an_idle_slot_says_so(self) -> None:
        served = serve(watermark=3)
        served.begin()
        served.feed(time=FrameTime(0, 0, 3, OPEN, is_idle=True))
        assert served.feed(time=FrameTime(0, 0, 3, CLOSE_EMPTY, is_idle=True)) == ValuesFrame(
            [], [], 3, True, opening=3
        )

    def test_event_time_goes_on_over_epochs(self) -> None:
        served = serve()
        for opening, watermark in ((NO_WATERMARK, 4), (4, 9)):
            served.begin()
            served.at(opening, OPEN)
            served.at(watermark)
            assert served.end().watermark == watermark
        served.begin()
        assert served.feed(("a", "tell"), time=FrameTime(0, 0, 9)) == ValuesFrame(
            [(("a", "tell"), None, 9)], [None], 9, opening=9
        )

    def test_a_slot_that_does_not_know_its_watermark_begins_with_that_of_its_input(self) -> None:
        """It was restored from the end of the input, and there is more of it now."""
        served = serve()
        served.begin()
        for branch, opening in enumerate((9, 7)):
            served.at(opening, OPEN, branch)
        found = served.feed(("a", "tell"), time=FrameTime(0, 0, 9), timestamps=[2])
        assert found == ValuesFrame([(("a", "tell"), 2, 7)], [2], 7, opening=7)
        assert served.end().watermark == 7

    def test_what_fires_when_the_input_opens_is_not_late_for_those_who_read_it(self) -> None:
        served = serve()
        served.begin()
        served.feed(("a", "e", 5), time=FrameTime(0, 0, NO_WATERMARK))
        served.end()
        served.begin()
        served.at(7, OPEN)
        found = served.feed(("a", "tell"), time=FrameTime(0, 0, 7), timestamps=[8])
        assert found == ValuesFrame(
            [("a", "e", 5, 7), (("a", "tell"), 8, 7)], [5, 8], 7, opening=NO_WATERMARK
        )

    def test_without_event_time_frames_are_plain(self) -> None:
        served = serve(is_timed=False)
        served.begin()
        assert served.feed(("a", "tell")) == ValuesFrame([(("a", "tell"), None, NO_WATERMARK)])
        assert served.feed(("a", "e", 5)) is None
        assert served.finish() is None


class TestEventTimeTimers:
    def test_a_late_timer_fires_at_the_next_advance(self) -> None:
        """F2 of Flink's behaviour: not at once."""
        served = serve(watermark=19)
        served.begin()
        served.at(19, OPEN)
        assert values(served.feed(("a", "e", 3), time=FrameTime(0, 0, 19))) == []
        assert served.at(19) is None
        fired = served.at(20)
        assert fired == ValuesFrame([("a", "e", 3, 20)], [3], 20)

    def test_timers_registered_in_on_timer_fire_in_the_same_advance(self) -> None:
        """F1."""

        class Chained(Timers):
            def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
                if timestamp > -300:
                    ctx.timer_service().register_event_time_timer(timestamp - 100)
                yield timestamp, ctx.timer_service().current_watermark()

        served = serve(Chained())
        served.begin(is_final=True)
        served.at(NO_WATERMARK, OPEN)
        served.feed(("a", "e", 10), time=FrameTime(0, 0, 5))
        assert values(served.at(MAX_WATERMARK, CLOSE)) == [
            (at, MAX_WATERMARK) for at in (10, -90, -190, -290, -390)
        ]

    def test_a_timer_is_there_once_and_may_be_deleted(self) -> None:
        """F3."""

        class Deletes(Timers):
            def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
                timers = ctx.timer_service()
                for timestamp in (5, 5, 6, -5, MAX_WATERMARK):
                    timers.register_event_time_timer(timestamp)
                for timestamp in (6, 7):
                    timers.delete_event_time_timer(timestamp)

        served = serve(Deletes())
        served.begin(is_final=True)
        served.feed(("a",), time=FrameTime(0, 0, NO_WATERMARK))
        fired = values(served.at(MAX_WATERMARK, CLOSE))
        assert [result[2] for result in fired] == [-5, 5, MAX_WATERMARK]

    @pytest.mark.parametrize("is_timed", [True, False])
    def test_the_end_of_the_input_is_the_end_of_time(self, is_timed: bool) -> None:
        served = serve(is_timed=is_timed)
        served.begin(is_final=True)
        served.feed(("a", "e", MAX_WATERMARK))
        served.feed(("a", "e", 7))
        assert values(served.finish()) == [("a", "e", at, MAX_WATERMARK) for at in (7, MAX_WATERMARK)]

    def test_an_epoch_that_is_not_the_last_ends_no_time(self) -> None:
        served = serve(is_timed=False)
        served.begin()
        served.feed(("a", "e", 7))
        assert served.finish() is None

    def test_results_have_the_timers_time_as_their_timestamp(self) -> None:
        served = serve()
        served.begin()
        served.feed(("a", "e", 7), ("b", "e", 6), time=FrameTime(0, 0, NO_WATERMARK))
        fired = served.at(8)
        assert fired is not None
        assert (fired.values, fired.timestamps) == ([("b", "e", 6, 8), ("a", "e", 7, 8)], [6, 7])

    def test_a_timer_that_raises_names_key_and_time(self) -> None:
        class Broken(Timers):
            def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
                raise LookupError("gone")

        served = serve(Broken())
        served.begin()
        served.feed(("a", "e", 7), time=FrameTime(0, 0, NO_WATERMARK))
        with pytest.raises(UserFunctionError, match=r"gone[\s\S]*'count', key 'a',.*on_timer\(\) at 7"):
            served.at(8)


class TestProcessingTimeTimers:
    def test_one_in_the_past_fires_at_the_end_of_the_epoch_and_pending_ones_are_dropped(self) -> None:
        """F4, at the end of bounded input."""
        served = serve(is_timed=False)
        served.begin(is_final=True)
        served.feed(*(("a", "p", 1000 + delay) for delay in (-5, 50, 60_000)))
        assert values(served.finish()) == [("a", "p", 995, NO_WATERMARK)]
        assert served.end().next_timer_ms == 1050

    def test_both_kinds_in_one_operator_fire_by_their_own_time(self) -> None:
        served = serve()
        served.begin()
        served.feed(("a", "e", 7), ("a", "p", 1007), time=FrameTime(0, 0, NO_WATERMARK))
        assert values(served.at(2000)) == [("a", "e", 7, 2000)]
        served.clock.time_ms = 1007
        assert values(served.at(2000)) == [("a", "p", 1007, 2000)]

    def test_their_results_have_no_timestamp(self) -> None:
        served = serve()
        served.begin()
        served.feed(("a", "p", 3), time=FrameTime(0, 0, 5))
        fired = served.at(5)
        assert fired is not None
        assert (fired.values, fired.timestamps) == ([("a", "p", 3, 5)], [None])

    def test_they_fire_before_the_records_of_the_next_frame(self) -> None:
        served = serve(is_timed=False)
        served.begin()
        served.feed(("a", "p", 3))
        assert values(served.feed(("a", "tell"))) == [
            ("a", "p", 3, NO_WATERMARK),
            (("a", "tell"), None, NO_WATERMARK),
        ]


class TestResults:
    def test_side_outputs_are_apart_and_counted(self) -> None:
        served = serve(is_timed=False)
        served.begin()
        found = served.feed(("a", "odd"), ("a", "tell"), ("b", "odd"))
        assert found is not None
        assert len(found.values) == 1
        assert found.output("odd") == ([("a", "odd"), ("b", "odd")], [None, None])
        assert served.end().records_out == 3

    @pytest.mark.parametrize(
        ("result", "given"),
        [
            (lambda: [1, 2], [1, 2]),
            (lambda: ("t", "e"), ["t", "e"]),
            (lambda: (n for n in (1, 2)), [1, 2]),
            (lambda: range(2), [0, 1]),
            (lambda: None, []),
            (lambda: (), []),
        ],
        ids=["list", "tuple", "generator", "range", "None", "empty"],
    )
    @pytest.mark.parametrize("timestamp", [None, 5])
    def test_any_iterable_is_results(
        self, result: Callable[[], Any], given: list[Any], timestamp: int | None
    ) -> None:
        """F7: each element comes out."""
        served = serve(Gives(result), is_timed=False)
        served.begin()
        found = served.feed(("a",), timestamps=None if timestamp is None else [timestamp])
        assert ([] if found is None else list(found.values)) == given

    @pytest.mark.parametrize("timestamp", [None, 5])
    @pytest.mark.parametrize(
        ("result", "problem"),
        [
            (7, "an int, 7, and that is no iterable"),
            ("text", "a str, 'text', and each of its letters"),
            ({"a": 1}, "a dict, {'a': 1}, and each of its keys"),
        ],
    )
    def test_one_record_instead_of_a_list_of_them_fails(
        self, result: object, problem: str, timestamp: int | None
    ) -> None:
        served = serve(Gives(lambda: result), is_timed=False)
        served.begin()
        with pytest.raises(FunctionResultError, match=rf"returned {problem}[\s\S]*record \('a',\)"):
            served.feed(("a",), timestamps=None if timestamp is None else [timestamp])


class Gives(KeyedProcessFunction):
    """Gives the same for each record."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.last.update(value)
        return self.result()
