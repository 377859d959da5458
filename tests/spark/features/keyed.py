"""Keyed streams: keys, rolling aggregations, and functions that know their key, state and timers."""

from pyflink.common import Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    OutputTag,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from pyflink.datastream.state import ValueStateDescriptor

COVERS = """
datastream.data_stream DataStream: get_name key_by name set_max_parallelism set_parallelism uid
common.typeinfo Types: BOOLEAN INT LONG ROW_NAMED STRING TUPLE
common.types Row
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_monotonous_timestamps with_timestamp_assigner
datastream.data_stream KeyedStream: filter flat_map key_by map max max_by min min_by print process reduce
    sum union
datastream.functions FilterFunction: filter
datastream.functions FlatMapFunction: flat_map
datastream.functions Function: close open
datastream.functions KeySelector: get_key
datastream.functions KeyedProcessFunction: Context OnTimerContext on_timer process_element
datastream.functions KeyedStateStore: get_state
datastream.functions MapFunction: map
datastream.functions ReduceFunction: reduce
datastream.output_tag OutputTag
datastream.state ValueState: update value
datastream.state ValueStateDescriptor
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.time_domain TimeDomain: EVENT_TIME
datastream.timerservice TimerService: current_processing_time current_watermark delete_event_time_timer
    delete_processing_time_timer register_event_time_timer register_processing_time_timer
datastream.functions KeyedProcessFunction.Context: get_current_key timer_service timestamp
datastream.functions KeyedProcessFunction.OnTimerContext: time_domain
"""

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
NAMED = Types.ROW_NAMED(["k", "v"], [Types.STRING(), Types.INT()])
LATE = OutputTag("late", Types.STRING())
PAIRS = [("a", 3), ("b", 7), ("a", 1), ("a", 2), ("b", 5)]


class First(KeySelector):
    def get_key(self, value):
        return value[0]


class Adds(ReduceFunction):
    def open(self, runtime_context):
        self.more = 100

    def reduce(self, value1, value2):
        return value1[0], value1[1] + value2[1] + self.more


class CountsMapped(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.INT()))

    def map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        return value[0], self.count.value()


class CountsFlat(FlatMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def flat_map(self, value):
        self.count.update((self.count.value() or 0) + 1)
        for number in range(self.count.value()):
            yield value[0], number


class PassesOnce(FilterFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def filter(self, value):
        if self.seen.value():
            return False
        self.seen.update(True)
        return True


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Timers(KeyedProcessFunction):
    """Registers timers twice, deletes one, and one timer registers the next."""

    def process_element(self, value, ctx: KeyedProcessFunction.Context):
        service = ctx.timer_service()
        service.register_event_time_timer(ctx.timestamp() + 10)
        service.register_event_time_timer(ctx.timestamp() + 10)
        service.register_event_time_timer(ctx.timestamp() + 20)
        service.delete_event_time_timer(ctx.timestamp() + 20)
        service.delete_event_time_timer(1)
        service.register_processing_time_timer(service.current_processing_time() + 3_600_000)
        service.delete_processing_time_timer(1)
        yield "element", ctx.get_current_key(), ctx.timestamp(), service.current_watermark() < 0

    def on_timer(self, timestamp, ctx: KeyedProcessFunction.OnTimerContext):
        is_event_time = ctx.time_domain() == TimeDomain.EVENT_TIME
        yield "timer", ctx.get_current_key(), timestamp, ctx.timestamp(), is_event_time
        if timestamp < 20_000:
            ctx.timer_service().register_event_time_timer(20_000)
            yield LATE, f"{ctx.get_current_key()} again"


shown = []


def show(name, stream):
    """Print a stream's type at once, and its records, with the name before each, when the job runs."""
    print(name, repr(stream.get_type()))
    shown.append(stream.map(lambda value: f"{name}> {value!r}", output_type=Types.STRING()))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
pairs = env.from_collection(PAIRS, PAIR)
keyed = pairs.key_by(lambda pair: pair[0], key_type=Types.STRING())
by_selector = pairs.key_by(First())
untyped = env.from_collection(PAIRS).key_by(lambda pair: pair[0])
rows = env.from_collection([Row(*pair) for pair in PAIRS], NAMED).key_by(lambda row: row.k, Types.STRING())
numbers = env.from_collection([3, 1, 2], Types.INT()).key_by(lambda _: 0, Types.INT())

show("reduce", keyed.reduce(lambda one, two: (one[0], one[1] * two[1])))
show("reduce_class", by_selector.reduce(Adds()))
show("reduce_untyped", untyped.reduce(lambda one, two: (one[0], one[1] + two[1])))
show("reduce_rows", rows.reduce(lambda one, two: Row(k=one.k, v=one.v - two.v)))
show("sum", keyed.sum(1))
show("min", keyed.min(1))
show("max", keyed.max(1))
show("min_by", keyed.min_by(1))
show("max_by", keyed.max_by(1))
show("sum_untyped", untyped.sum(1))
show("max_untyped", untyped.max(1))
show("sum_rows", rows.sum(1))
show("min_rows", rows.min("v"))
show("max_by_rows", rows.max_by("v"))
show("sum_plain", numbers.sum())
show("min_plain", numbers.min())
show("max_by_plain", numbers.max_by())

show("map", keyed.map(CountsMapped()))
show("flat_map", keyed.flat_map(CountsFlat(), output_type=Types.TUPLE([Types.STRING(), Types.LONG()])))
show("filter", keyed.filter(PassesOnce()))
show("chain", keyed.filter(lambda pair: pair[1] > 2).key_by(lambda pair: pair[1] % 2).sum(1))
show("key_by_again", keyed.key_by(lambda pair: pair[1], Types.INT()).sum(1))
show("union", keyed.union(by_selector).map(lambda pair: 1, Types.INT()))

strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
timed = env.from_collection(sorted(PAIRS, key=lambda pair: pair[1]), PAIR)
timed = timed.assign_timestamps_and_watermarks(strategy).key_by(lambda pair: pair[0], Types.STRING())
timers = timed.process(Timers())
show("timers", timers)
show("late", timers.get_side_output(LATE))

named = keyed.sum(1).name("sums").uid("sums").set_parallelism(1).set_max_parallelism(16)
print(named.get_name(), named.get_type() == PAIR, untyped.sum(1).get_type() == PAIR)
shown[0].union(*shown[1:]).print()
keyed.print()
env.execute("keyed")
