"""Everything that runs inside Spark tasks: sources, stateless chains, routing, feeding slots, sinks."""

from pyflinkstate.runtime.tasks.chain import Chain as Chain, TaskInfo as TaskInfo
from pyflinkstate.runtime.tasks.router import (
    EventTimeSettings as EventTimeSettings,
    Router as Router,
    opened_selector as opened_selector,
)
from pyflinkstate.runtime.tasks.slot_client import DriverLink as DriverLink
from pyflinkstate.runtime.tasks.tasks import (
    MOST_RECORDS as MOST_RECORDS,
    ChainTask as ChainTask,
    LiveLimits as LiveLimits,
    LiveTask as LiveTask,
    MergeTask as MergeTask,
    RegionInput as RegionInput,
    RegionStage as RegionStage,
    RegionTask as RegionTask,
    RouteTask as RouteTask,
    SelectTask as SelectTask,
    SinkTask as SinkTask,
    SlotTask as SlotTask,
    SourceTask as SourceTask,
    StageTask as StageTask,
    StartSlotsTask as StartSlotsTask,
    TaskLink as TaskLink,
)
