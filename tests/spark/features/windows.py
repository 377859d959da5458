"""Windows with keys: each assigner, and each way to combine what is in a window."""

from pyflink.common import Time, Types, TypeSerializer, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AggregateFunction,
    MergingWindowAssigner,
    ProcessWindowFunction,
    ReduceFunction,
    StreamExecutionEnvironment,
    TimeWindow,
    WindowAssigner,
    WindowFunction,
)
from pyflink.datastream.state import ValueStateDescriptor
from pyflink.datastream.window import (
    DynamicEventTimeSessionWindows,
    EventTimeSessionWindows,
    EventTimeTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    TimeWindowSerializer,
    TumblingEventTimeWindows,
)

COVERS = """
common.serializer TypeSerializer
common.time Time: milliseconds seconds
common.typeinfo Types: DOUBLE INT LONG STRING TUPLE
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_monotonous_timestamps with_timestamp_assigner
datastream.data_stream KeyedStream: window
datastream.data_stream WindowedStream: aggregate apply get_execution_environment get_input_type process
    reduce
datastream.functions AggregateFunction: add create_accumulator get_result merge
datastream.functions Function: close open
datastream.functions ProcessWindowFunction: Context clear process
datastream.functions ReduceFunction: reduce
datastream.functions WindowFunction: apply
datastream.state ValueStateDescriptor
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.window DynamicEventTimeSessionWindows: assign_windows get_default_trigger
    get_window_serializer is_event_time merge_windows with_dynamic_gap
datastream.window EventTimeSessionWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time merge_windows with_dynamic_gap with_gap
datastream.window EventTimeTrigger: can_merge clear create on_element on_event_time on_merge
    on_processing_time
datastream.window MergingWindowAssigner: MergeCallback merge_windows
datastream.window SessionWindowTimeGapExtractor: extract
datastream.window SlidingEventTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window TimeWindow: cover get_window_start_with_offset intersects max_timestamp merge_windows
datastream.window TimeWindowSerializer
datastream.window TumblingEventTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
datastream.window Window: max_timestamp
datastream.window WindowAssigner: WindowAssignerContext assign_windows get_default_trigger
    get_window_serializer is_event_time
datastream.functions ProcessWindowFunction.Context: window current_processing_time current_watermark
    window_state global_state
datastream.window WindowAssigner.WindowAssignerContext: get_current_processing_time
"""

TRIPLE = Types.TUPLE([Types.STRING(), Types.INT(), Types.LONG()])
PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
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


class Spans(WindowFunction[tuple, tuple, str, TimeWindow]):
    def apply(self, key, window, inputs):
        yield key, window.start, window.end, window.max_timestamp(), [value[1] for value in inputs]


class Means(WindowFunction):
    def apply(self, key, window, inputs):
        return [(key, window.start, mean) for mean in inputs]


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


class GapOf(SessionWindowTimeGapExtractor):
    def extract(self, element):
        return 500 * element[1]


class ByTens(WindowAssigner[tuple, TimeWindow]):
    """Two windows for each element, of ten seconds and of a minute."""

    def assign_windows(self, element, timestamp, context: WindowAssigner.WindowAssignerContext):
        assert context.get_current_processing_time() > 0
        return [
            TimeWindow(timestamp // size * size, timestamp // size * size + size) for size in (10_000, 60_000)
        ]

    def get_default_trigger(self, env):
        return EventTimeTrigger.create()

    def get_window_serializer(self):
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


class Touching(MergingWindowAssigner[tuple, TimeWindow]):
    """Windows of four seconds that merge when they overlap."""

    def assign_windows(self, element, timestamp, context):
        return [TimeWindow(timestamp, timestamp + 4000)]

    def merge_windows(self, windows, callback: MergingWindowAssigner.MergeCallback):
        TimeWindow.merge_windows(windows, callback)

    def get_default_trigger(self, env):
        return EventTimeTrigger()

    def get_window_serializer(self) -> TypeSerializer[TimeWindow]:
        return TimeWindowSerializer()

    def is_event_time(self):
        return True


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
tumbling = keyed.window(TumblingEventTimeWindows.of(Time.seconds(5)))
shifted = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10), Time.seconds(1)))
sliding = keyed.window(SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(3)))
sessions = keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(2)))
print(tumbling.get_input_type() == TRIPLE, tumbling.get_execution_environment().get_parallelism())

show("tumbling", tumbling.apply(Spans()))
show("reduce", shifted.reduce(Adds()))
show("reduce_lambda", sliding.reduce(lambda one, two: (one[0], one[1] * two[1], 0)))
show("reduce_apply", sessions.reduce(Adds(), Spans()))
show("reduce_process", tumbling.reduce(Adds(), window_function=Plain(), output_type=PAIR))
show("aggregate", sessions.aggregate(Mean()))
accumulator = Types.TUPLE([Types.INT(), Types.INT()])
show("aggregate_typed", sliding.aggregate(Mean(), accumulator_type=accumulator, output_type=Types.DOUBLE()))
show("aggregate_apply", shifted.aggregate(Mean(), Means()))
show("process", tumbling.process(Firings()))
show("process_typed", sliding.process(Plain(), PAIR))
half_a_second = Time.milliseconds(500)
offset = SlidingEventTimeWindows.of(Time.seconds(6), Time.seconds(3), half_a_second)
show("sliding_offset", keyed.window(offset).apply(Spans()))
show("dynamic", keyed.window(EventTimeSessionWindows.with_dynamic_gap(GapOf())).apply(Spans()))
show("dynamic_class", keyed.window(DynamicEventTimeSessionWindows.with_dynamic_gap(GapOf())).apply(Spans()))
show("own", keyed.window(ByTens()).apply(Spans()))
show("own_merging", keyed.window(Touching()).apply(Spans()))
shown[0].union(*shown[1:]).print()
tumbling.reduce(Adds()).print("reduced")
env.execute("windows")

window = TimeWindow(0, 10)
print(window.cover(TimeWindow(5, 20)).end, window.intersects(TimeWindow(11, 12)), window.max_timestamp())
print(TimeWindow.get_window_start_with_offset(12, 3, 10), window == TimeWindow(0, 10))
