"""Triggers, windows that count, windows of processing time, and windows of all records."""

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    CountWindow,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    Trigger,
    TriggerResult,
    WindowFunction,
)
from pyflink.datastream.functions import AllWindowFunction, ProcessAllWindowFunction
from pyflink.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
from pyflink.datastream.window import (
    ContinuousEventTimeTrigger,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    ProcessingTimeSessionWindows,
    ProcessingTimeTrigger,
    PurgingTrigger,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)

COVERS = """
common.time Time: days seconds
common.typeinfo Types: INT LONG PICKLED_BYTE_ARRAY STRING TUPLE
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_monotonous_timestamps with_timestamp_assigner
datastream.data_stream AllWindowedStream: aggregate apply get_execution_environment get_input_type
    process reduce trigger
datastream.data_stream DataStream: window_all
datastream.data_stream KeyedStream: window count_window
datastream.data_stream WindowedStream: aggregate process reduce trigger apply
datastream.functions AggregateFunction: add create_accumulator get_result merge
datastream.functions AllWindowFunction: apply
datastream.functions Function: close open
datastream.functions ProcessAllWindowFunction: Context clear process
datastream.functions ProcessWindowFunction: Context clear process
datastream.functions ReduceFunction: reduce
datastream.functions WindowFunction: apply
datastream.state ReducingStateDescriptor
datastream.state ValueStateDescriptor
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.window ContinuousEventTimeTrigger: can_merge clear of on_element on_event_time on_merge
    on_processing_time register_next_fire_timestamp
datastream.window CountSlidingWindowAssigner: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window CountTrigger: can_merge clear of on_element on_event_time on_merge on_processing_time
datastream.window CountTumblingWindowAssigner: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window CountWindow: max_timestamp
datastream.window EventTimeSessionWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time merge_windows with_gap
datastream.window EventTimeTrigger: can_merge clear create on_element on_event_time on_merge
    on_processing_time
datastream.window GlobalWindows: assign_windows create get_default_trigger get_window_serializer
    is_event_time
datastream.window NeverTrigger: clear on_element on_event_time on_merge on_processing_time
datastream.window ProcessingTimeSessionWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time merge_windows with_gap
datastream.window ProcessingTimeTrigger: can_merge clear create on_element on_event_time on_merge
    on_processing_time
datastream.window PurgingTrigger: can_merge clear of on_element on_event_time on_merge on_processing_time
datastream.window SlidingProcessingTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window TimeWindow: max_timestamp merge_windows
datastream.window Trigger: OnMergeContext TriggerContext can_merge clear on_element on_event_time
    on_merge on_processing_time
datastream.window TriggerResult: CONTINUE FIRE FIRE_AND_PURGE PURGE is_fire is_purge
datastream.window TumblingEventTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window TumblingProcessingTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window Window: max_timestamp
datastream.functions ProcessAllWindowFunction.Context: window window_state global_state
datastream.functions ProcessWindowFunction.Context: window current_processing_time current_watermark
    window_state global_state
datastream.window Trigger.OnMergeContext: merge_partitioned_state
datastream.window Trigger.TriggerContext: get_current_processing_time get_current_watermark
    register_processing_time_timer register_event_time_timer delete_processing_time_timer
    delete_event_time_timer get_partitioned_state
"""

TRIPLE = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
#: Keys, numbers, and times in order: a watermark between any two of them changes nothing.
RECORDS = [
    ("a", 1, 1000),
    ("b", 10, 2500),
    ("a", 2, 4000),
    ("a", 3, 5000),
    ("b", 20, 5500),
    ("a", 4, 11000),
    ("a", 5, 12500),
    ("b", 30, 21000),
]


class ByTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Adds(ReduceFunction):
    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1], value2[2]


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value[1], accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Firings(ProcessWindowFunction[tuple, tuple, str, TimeWindow]):
    """Counts firings: of a window, and of all windows of a key."""

    def open(self, runtime_context):
        self.number = ValueStateDescriptor("number", Types.INT())
        self.total = ValueStateDescriptor("total", Types.INT())

    def process(self, key, context: ProcessWindowFunction.Context, elements):
        ours = context.window_state().get_state(self.number)
        all_of_key = context.global_state().get_state(self.total)
        for state in (ours, all_of_key):
            state.update((state.value() or 0) + 1)
        now = context.current_processing_time() > 10**12, type(context.current_watermark()).__name__
        numbers = [value[1] for value in elements]
        yield key, context.window().end, ours.value(), all_of_key.value(), now, numbers

    def clear(self, context):
        context.window_state().get_state(self.number).clear()


class Plain(ProcessWindowFunction):
    def process(self, key, context, elements):
        return [(key, sum(value[1] for value in elements))]


class EverySecond(Trigger[tuple, TimeWindow]):
    """Fires for every second element, and at the end of the window; its count merges with the windows."""

    def __init__(self):
        self.count = ReducingStateDescriptor("count", lambda one, two: one + two, Types.INT())

    def on_element(self, element, timestamp, window, ctx: Trigger.TriggerContext):
        ctx.register_event_time_timer(window.max_timestamp())
        ctx.register_processing_time_timer(ctx.get_current_processing_time() + 3_600_000)
        ctx.delete_processing_time_timer(1)
        ctx.register_event_time_timer(window.max_timestamp() + 1)
        ctx.delete_event_time_timer(window.max_timestamp() + 1)
        count = ctx.get_partitioned_state(self.count)
        count.add(1)
        fires = count.get() % 2 == 0 and ctx.get_current_watermark() < 2**63 - 1
        return TriggerResult.FIRE if fires else TriggerResult.CONTINUE

    def on_event_time(self, time, window, ctx):
        is_end = time == window.max_timestamp()
        return TriggerResult.FIRE_AND_PURGE if is_end else TriggerResult.CONTINUE

    def on_processing_time(self, time, window, ctx):
        return TriggerResult.CONTINUE

    def can_merge(self):
        return True

    def on_merge(self, window, ctx: Trigger.OnMergeContext):
        ctx.merge_partitioned_state(self.count)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window, ctx):
        ctx.get_partitioned_state(self.count).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class Ids(WindowFunction[tuple, tuple, str, CountWindow]):
    def apply(self, key, window, inputs):
        yield key, type(window).__name__, [value[1] for value in inputs]


class AllSpans(AllWindowFunction[tuple, tuple, TimeWindow]):
    def apply(self, window, inputs):
        yield window.start, window.end, [value if isinstance(value, float) else value[1] for value in inputs]


class AllFirings(ProcessAllWindowFunction[tuple, tuple, TimeWindow]):
    """Counts firings: of a window, and of all windows."""

    def open(self, runtime_context):
        self.number = ValueStateDescriptor("number", Types.INT())
        self.total = ValueStateDescriptor("total", Types.INT())

    def process(self, context: ProcessAllWindowFunction.Context, elements):
        ours = context.window_state().get_state(self.number)
        of_all = context.global_state().get_state(self.total)
        for state in (ours, of_all):
            state.update((state.value() or 0) + 1)
        yield context.window().end, ours.value(), of_all.value(), [value[1] for value in elements]

    def clear(self, context):
        context.window_state().get_state(self.number).clear()


shown = []


def show(name, stream):
    """Print a stream's type at once, and its records, with the name before each, when the job runs."""
    print(name, repr(stream.get_type()))
    shown.append(stream.map(lambda value: f"{name}> {value!r}", output_type=Types.STRING()))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByTime())
timed = env.from_collection(RECORDS, TRIPLE).assign_timestamps_and_watermarks(strategy)
keyed = timed.key_by(lambda value: value[0], Types.STRING())
tumbling = TumblingEventTimeWindows.of(Time.seconds(10))
sessions = EventTimeSessionWindows.with_gap(Time.seconds(3))

for name, assigner, trigger in (
    ("count", tumbling, CountTrigger.of(2)),
    ("purging", tumbling, PurgingTrigger.of(CountTrigger.of(2))),
    ("event_time", tumbling, EventTimeTrigger.create()),
    ("never", tumbling, NeverTrigger()),
):
    show(name, keyed.window(assigner).trigger(trigger).process(Firings()))
show("every_second", keyed.window(sessions).trigger(EverySecond()).process(Plain()))
show("session_count", keyed.window(sessions).trigger(CountTrigger.of(2)).process(Plain()))
show("global", keyed.window(GlobalWindows.create()).process(Plain()))
counted = PurgingTrigger.of(CountTrigger.of(2))
show("global_count", keyed.window(GlobalWindows.create()).trigger(counted).reduce(Adds()))
again = ContinuousEventTimeTrigger.of(Time.seconds(20))
show("continuous", keyed.window(TumblingEventTimeWindows.of(Time.seconds(20))).trigger(again).reduce(Adds()))
print(TriggerResult.FIRE_AND_PURGE.is_fire(), TriggerResult.PURGE.is_fire(), TriggerResult.FIRE.is_purge())

# What is due after the input has ended never fires, so elements have to make these windows fire.
tumbling_days = TumblingProcessingTimeWindows.of(Time.days(20000))
sliding_days = SlidingProcessingTimeWindows.of(Time.days(40000), Time.days(20000))
for name, assigner, trigger in (
    ("processing_tumbling", tumbling_days, CountTrigger.of(2)),
    ("processing_sliding", sliding_days, CountTrigger.of(2)),
    ("processing_session", ProcessingTimeSessionWindows.with_gap(Time.days(1)), CountTrigger.of(2)),
    ("processing_dropped", tumbling_days, ProcessingTimeTrigger.create()),
):
    show(name, keyed.window(assigner).trigger(trigger).process(Plain()))

show("count_window", keyed.count_window(2).apply(Ids()))
show("count_window_slide", keyed.count_window(3, 1).apply(Ids()))
show("count_tumbling", keyed.window(CountTumblingWindowAssigner.of(3)).process(Plain()))
show("count_sliding", keyed.window(CountSlidingWindowAssigner.of(2, 1)).aggregate(Mean()))

of_all = timed.window_all(tumbling)
print(of_all.get_input_type() == TRIPLE, of_all.get_execution_environment().get_parallelism())
show("all_apply", of_all.apply(AllSpans()))
show("all_process", of_all.trigger(CountTrigger.of(2)).process(AllFirings()))
show("all_reduce", timed.window_all(sessions).reduce(Adds()))
show("all_reduce_apply", timed.window_all(tumbling).reduce(Adds(), AllSpans()))
show("all_aggregate", timed.window_all(tumbling).aggregate(Mean()))
show(
    "all_aggregate_apply",
    timed.window_all(tumbling).aggregate(Mean(), AllSpans(), output_type=Types.PICKLED_BYTE_ARRAY()),
)
shown[0].union(*shown[1:]).print()
env.execute("triggers")
