"""Where the time of an epoch goes, when the next one is read meanwhile."""

from __future__ import annotations

from support_runtime import ManualClock

from pyflinkstate.runtime.master.reports.timeline import EpochTimeline
from pyflinkstate.runtime.wire import TaskReport


def test_what_the_next_epoch_reads_is_no_time_of_this_one() -> None:
    clock = ManualClock()
    timeline = EpochTimeline(clock.monotonic_ms, ["files"])
    timeline.begin()
    timeline.started(0, 1)
    for epoch, task in ((1, "files[0]"), (2, "files[0]")):
        clock.time_ms += 10
        timeline.reported(TaskReport(0, epoch, task))
    timeline.reported(TaskReport(0, 1, "count[0]", is_slot=True))
    timeline.ran()
    phases = timeline.prepared()
    assert (phases["reading"], phases["slots"]) == (10, 10)
