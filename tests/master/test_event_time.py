"""The job master's part of event time: watermarks epoch by epoch, idle assigners."""

from __future__ import annotations

from pyflinkstate.api.time import MAX_WATERMARK, NO_WATERMARK, WatermarkAlignment
from pyflinkstate.runtime.master.event_time import EventTimeTracker
from pyflinkstate.runtime.plan.nodes import AlignedSource
from pyflinkstate.runtime.wire.messages import TaskReport


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def tracker(idle_timeouts_ms: dict[str, int] | None = None, **watermarks: int) -> EventTimeTracker:
    made = EventTimeTracker(idle_timeouts_ms or {}, Clock())
    made.begin(watermarks)
    return made


def run(made: EventTimeTracker, epoch: int, *reports: dict[str, int]) -> dict[str, int]:
    """Let the tasks of an epoch report; return the watermarks at its end."""
    for watermarks in reports:
        made.report(TaskReport(0, epoch, "task", watermarks=watermarks))
    return made.ended(epoch)


def test_the_least_of_all_tasks_counts() -> None:
    made = tracker()
    assert run(made, 1, {"a": 10}, {"a": 7, "sum": 3}, {"sum": 4}) == {"a": 7, "sum": 3}
    assert made.progress().watermarks == {"a": 7, "sum": 3}


def test_who_reports_nothing_stays_where_it_was() -> None:
    made = tracker()
    run(made, 1, {"a": 10, "b": 5})
    assert run(made, 2, {"b": 6}) == {"a": 10, "b": 6}


def test_watermarks_never_go_back() -> None:
    made = tracker(a=10)
    assert run(made, 1, {"a": 7}) == {"a": 10}


def test_an_epoch_does_not_change_what_those_before_it_have() -> None:
    made = tracker()
    first, seen = run(made, 1, {"a": 1}), made.progress().watermarks
    second = run(made, 2, {"a": 2})
    assert (first, seen, second) == ({"a": 1}, {"a": 1}, {"a": 2})
    assert run(made, 3) == {"a": 2}


def test_an_attempt_goes_back_to_where_its_checkpoint_stood() -> None:
    made = tracker()
    run(made, 1, {"a": 5})
    made.report(TaskReport(0, 2, "task", watermarks={"a": 99}))
    made.begin({"a": 3})
    assert made.progress().watermarks == {"a": 3}
    assert made.ended(2) == {"a": 3}, "what the attempt before reported is forgotten"


def test_a_report_counts_for_its_own_epoch() -> None:
    made = tracker()
    made.report(TaskReport(0, 2, "of an epoch in flight", watermarks={"a": 11}))
    assert run(made, 1, {"a": 9}) == {"a": 9}
    assert run(made, 2) == {"a": 11}


def test_checkpoints_hold_neither_the_end_of_time_nor_nothing() -> None:
    made = tracker()
    assert run(made, 1, {"ended": MAX_WATERMARK, "none": NO_WATERMARK, "a": 1}) == {"a": 1}
    assert made.progress().watermarks["ended"] == MAX_WATERMARK


class TestIdleness:
    def test_silence_for_the_timeout_is_idleness(self) -> None:
        made = tracker({"a": 100, "b": 300})
        assert made.progress().idle == frozenset()
        made._now_ms.now_ms = 99  # type: ignore[attr-defined]
        assert made.progress().idle == frozenset()
        made._now_ms.now_ms = 100  # type: ignore[attr-defined]
        assert made.progress().idle == {"a"}
        made._now_ms.now_ms = 300  # type: ignore[attr-defined]
        assert made.progress().idle == {"a", "b"}

    def test_an_epoch_with_records_ends_it(self) -> None:
        made = tracker({"a": 100})
        made._now_ms.now_ms = 150  # type: ignore[attr-defined]
        run(made, 1, {"a": 1, "other": 2})
        assert made.progress().idle == frozenset()
        made._now_ms.now_ms = 250  # type: ignore[attr-defined]
        run(made, 2, {"other": 3})
        assert made.progress().idle == {"a"}

    def test_an_attempt_begins_without_idleness(self) -> None:
        made = tracker({"a": 100})
        made._now_ms.now_ms = 500  # type: ignore[attr-defined]
        made.begin({})
        assert made.progress().idle == frozenset()


class TestAlignment:
    """Sources ``A``, ``B`` (one group, a drift of 10) and ``C`` (another one)."""

    @staticmethod
    def aligned(idle_timeouts_ms: dict[str, int] | None = None, **watermarks: int) -> EventTimeTracker:
        members = {
            "a": AlignedSource("A", WatermarkAlignment("orders", 10)),
            "b": AlignedSource("B", WatermarkAlignment("orders", 10)),
            "c": AlignedSource("C", WatermarkAlignment("others", 10)),
        }
        made = EventTimeTracker(idle_timeouts_ms or {}, Clock(), members)
        made.begin(watermarks)
        return made

    def test_who_is_further_ahead_than_the_drift_waits(self) -> None:
        made = self.aligned(a=20, b=10, c=500)
        assert made.hold_back(frozenset()) == frozenset()
        run(made, 1, {"a": 21, "b": 10})
        assert made.hold_back(frozenset()) == {"A"}
        run(made, 2, {"b": 11})
        assert made.hold_back(frozenset()) == frozenset()

    def test_one_without_a_record_yet_is_waited_for(self) -> None:
        assert self.aligned().hold_back(frozenset()) == frozenset()
        assert self.aligned(a=0).hold_back(frozenset()) == {"A"}

    def test_nobody_waits_for_one_that_has_ended(self) -> None:
        made = self.aligned(a=100, b=10)
        assert made.hold_back(frozenset({"B"})) == frozenset()

    def test_nobody_waits_for_one_that_is_idle(self) -> None:
        made = self.aligned({"b": 50}, a=100, b=10)
        assert made.hold_back(frozenset()) == {"A"}
        made._now_ms.now_ms = 50  # type: ignore[attr-defined]
        assert made.hold_back(frozenset()) == frozenset()

    def test_waiting_is_not_idleness(self) -> None:
        made = self.aligned({"a": 50}, a=100, b=10)
        assert made.hold_back(frozenset()) == {"A"}
        made._now_ms.now_ms = 60  # type: ignore[attr-defined]
        assert made.hold_back(frozenset()) == {"A"}
        assert made.progress().idle == frozenset()
        run(made, 1, {"b": 100})
        assert made.hold_back(frozenset()) == frozenset()
        made._now_ms.now_ms = 109  # type: ignore[attr-defined]
        assert made.progress().idle == frozenset(), "the timeout begins when it waits no longer"
        made._now_ms.now_ms = 110  # type: ignore[attr-defined]
        assert made.progress().idle == {"a"}
