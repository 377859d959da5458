"""PyFlink's ``pyflink.datastream.window``."""

from pyflinkstate.api.triggers import (
    ContinuousEventTimeTrigger as ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    CountTrigger as CountTrigger,
    EventTimeTrigger as EventTimeTrigger,
    NeverTrigger as NeverTrigger,
    ProcessingTimeTrigger as ProcessingTimeTrigger,
    PurgingTrigger as PurgingTrigger,
    Trigger as Trigger,
    TriggerResult as TriggerResult,
)
from pyflinkstate.api.window_assigners import (
    CountSlidingWindowAssigner as CountSlidingWindowAssigner,
    CountTumblingWindowAssigner as CountTumblingWindowAssigner,
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows as EventTimeSessionWindows,
    GlobalWindows as GlobalWindows,
    MergingWindowAssigner as MergingWindowAssigner,
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows as SlidingEventTimeWindows,
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
    TumblingEventTimeWindows as TumblingEventTimeWindows,
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    WindowAssigner as WindowAssigner,
)
from pyflinkstate.api.windows import (
    CountWindow as CountWindow,
    CountWindowSerializer as CountWindowSerializer,
    GlobalWindow as GlobalWindow,
    TimeWindow as TimeWindow,
    TimeWindowSerializer as TimeWindowSerializer,
    Window as Window,
)
