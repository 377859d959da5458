"""Everything that runs inside Spark tasks: sources, stateless chains, routing, feeding slots, sinks."""

from pyflinkstate.runtime.tasks.chain import Chain, TaskInfo
from pyflinkstate.runtime.tasks.router import EventTimeSettings, Router, opened_selector
from pyflinkstate.runtime.tasks.slot_client import DriverLink
from pyflinkstate.runtime.tasks.stage_tasks import (
    RegionInput,
    RegionStage,
    RegionTask,
    SelectTask,
    StageTask,
)
from pyflinkstate.runtime.tasks.tasks import (
    MOST_RECORDS,
    ChainTask,
    MergeTask,
    RouteTask,
    SinkTask,
    SlotTask,
    SourceTask,
    StartSlotsTask,
    TaskLink,
)

__all__ = [
    "MOST_RECORDS",
    "Chain",
    "ChainTask",
    "DriverLink",
    "EventTimeSettings",
    "MergeTask",
    "RegionInput",
    "RegionStage",
    "RegionTask",
    "RouteTask",
    "Router",
    "SelectTask",
    "SinkTask",
    "SlotTask",
    "SourceTask",
    "StageTask",
    "StartSlotsTask",
    "TaskInfo",
    "TaskLink",
    "opened_selector",
]
