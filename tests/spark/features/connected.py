"""Two streams in one function: with keys and without, and with a broadcast stream that has state."""

from pyflink.common import Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    OutputTag,
    RuntimeContext,
    StreamExecutionEnvironment,
    TimeDomain,
)
from pyflink.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor

COVERS = """
common.typeinfo Types: BOOLEAN INT STRING TUPLE
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_monotonous_timestamps with_timestamp_assigner
datastream.data_stream BroadcastConnectedStream: process
datastream.data_stream BroadcastStream
datastream.data_stream ConnectedStreams: flat_map key_by map process
datastream.data_stream DataStream: broadcast connect
datastream.data_stream KeyedStream: connect
datastream.functions BaseBroadcastProcessFunction: Context ReadOnlyContext
datastream.functions BroadcastProcessFunction: Context ReadOnlyContext process_broadcast_element
    process_element
datastream.functions CoFlatMapFunction: flat_map1 flat_map2
datastream.functions CoMapFunction: map1 map2
datastream.functions CoProcessFunction: Context process_element1 process_element2
datastream.functions KeyedBroadcastProcessFunction: Context OnTimerContext ReadOnlyContext on_timer
    process_broadcast_element process_element
datastream.functions KeyedCoProcessFunction: Context OnTimerContext on_timer process_element1
    process_element2
datastream.functions RuntimeContext
datastream.output_tag OutputTag
datastream.state BroadcastState: put remove
datastream.state ListStateDescriptor
datastream.state MapStateDescriptor
datastream.state ReadOnlyBroadcastState: contains get is_empty items keys values
datastream.state ValueStateDescriptor
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.time_domain TimeDomain: EVENT_TIME
datastream.functions BaseBroadcastProcessFunction.BaseContext: timestamp current_processing_time
    current_watermark
datastream.functions BaseBroadcastProcessFunction.Context: get_broadcast_state
datastream.functions BaseBroadcastProcessFunction.ReadOnlyContext: get_broadcast_state
datastream.functions CoProcessFunction.Context: timer_service timestamp
datastream.functions KeyedBroadcastProcessFunction.OnTimerContext: time_domain get_current_key
datastream.functions KeyedBroadcastProcessFunction.ReadOnlyContext: timer_service get_current_key
datastream.functions KeyedCoProcessFunction.Context: get_current_key timer_service timestamp
datastream.functions KeyedCoProcessFunction.OnTimerContext: time_domain
"""

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
MORE = MapStateDescriptor("more", Types.INT(), Types.STRING())
SIDE = OutputTag("side", Types.STRING())


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1] * 1000


class Maps(CoMapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.factor = 2

    def map1(self, value):
        return value * self.factor

    def map2(self, value):
        return -value[1]


class FlatMaps(CoFlatMapFunction):
    def flat_map1(self, value):
        for number in range(value):
            yield "one", number

    def flat_map2(self, value):
        return [("two", value[1])] if value[0] == "a" else []


class Processes(CoProcessFunction):
    def process_element1(self, value, ctx: CoProcessFunction.Context):
        yield "one", value, ctx.timestamp() is None or ctx.timestamp() < 0
        yield SIDE, f"one {value}"

    def process_element2(self, value, ctx: CoProcessFunction.Context):
        yield "two", value[1], ctx.timestamp() == value[1] * 1000
        yield (
            "now",
            ctx.timer_service().current_processing_time() > 10**12,
            type(ctx.timer_service().current_watermark()).__name__,
        )


class StateMaps(CoMapFunction):
    """Adds up what comes of one key; a second stream only subtracts nothing."""

    def open(self, runtime_context):
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.INT()))

    def map1(self, value):
        self.sum.update((self.sum.value() or 0) + value[1])
        return value[0], self.sum.value()

    def map2(self, value):
        return value[0], "two"


class StateFlatMaps(CoFlatMapFunction):
    def open(self, runtime_context):
        self.seen = runtime_context.get_state(ValueStateDescriptor("seen", Types.BOOLEAN()))

    def flat_map1(self, value):
        if not self.seen.value():
            self.seen.update(True)
            yield "first", value

    def flat_map2(self, value):
        yield "two", value


class Joins(KeyedCoProcessFunction):
    """Collects both sides of a key, and joins them when event time has passed both."""

    def open(self, runtime_context):
        self.ones = runtime_context.get_list_state(ListStateDescriptor("ones", Types.INT()))
        self.twos = runtime_context.get_list_state(ListStateDescriptor("twos", Types.INT()))

    def process_element1(self, value, ctx: KeyedCoProcessFunction.Context):
        self.ones.add(value[1])
        ctx.timer_service().register_event_time_timer(100_000)
        yield SIDE, f"one {ctx.get_current_key()} {ctx.timestamp()}"

    def process_element2(self, value, ctx: KeyedCoProcessFunction.Context):
        self.twos.add(value[1])
        ctx.timer_service().register_event_time_timer(100_000)
        yield SIDE, f"two {ctx.get_current_key()} {ctx.timestamp()}"

    def on_timer(self, timestamp, ctx: KeyedCoProcessFunction.OnTimerContext):
        is_event_time = ctx.time_domain() == TimeDomain.EVENT_TIME
        yield (
            ctx.get_current_key(),
            timestamp,
            ctx.timestamp(),
            is_event_time,
            sorted(self.ones.get()),
            sorted(self.twos.get()),
        )


class Rules(BroadcastProcessFunction):
    """What comes first of the two streams is not promised, so only the rules themselves are looked at."""

    def process_element(self, value, ctx: BroadcastProcessFunction.ReadOnlyContext):
        rules = ctx.get_broadcast_state(RULES)
        keys, items, values = (len(list(of())) for of in (rules.keys, rules.items, rules.values))
        same = keys == items == values and isinstance(rules.is_empty(), bool)
        unknown = rules.contains("nothing"), rules.get("nothing"), "nothing" in rules
        now = ctx.current_processing_time() > 10**12, type(ctx.current_watermark()).__name__
        yield "element", value, same, unknown, now

    def process_broadcast_element(self, value, ctx: BroadcastProcessFunction.Context):
        rules, more = ctx.get_broadcast_state(RULES), ctx.get_broadcast_state(MORE)
        before = rules.get(value[0])
        rules.put(*value)
        rules.put("x", 9)
        rules.put("y", 8)
        rules.remove("y")
        more.put(value[1], value[0])
        found = before, sorted(rules.items()), sorted(more.items()), rules.contains("x"), rules.is_empty()
        if value[0] == "b":
            more.clear()
        yield "rule", *found, ctx.timestamp() is None or ctx.timestamp() < 0
        yield SIDE, f"rule {value[0]}"


class KeyedRules(KeyedBroadcastProcessFunction):
    """Elements wait for a timer, so all rules are known when they are used."""

    def open(self, runtime_context):
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting", Types.INT()))

    def process_element(self, value, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext):
        self.waiting.add(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100_000)
        ctx.get_broadcast_state(RULES)
        yield SIDE, f"{ctx.get_current_key()} waits"

    def process_broadcast_element(self, value, ctx: KeyedBroadcastProcessFunction.Context):
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        yield SIDE, f"rule {value}"

    def on_timer(self, timestamp, ctx: KeyedBroadcastProcessFunction.OnTimerContext):
        rules = dict(ctx.get_broadcast_state(RULES).items())
        is_event_time = ctx.time_domain() == TimeDomain.EVENT_TIME
        yield (
            ctx.get_current_key(),
            timestamp,
            is_event_time,
            rules.get(ctx.get_current_key()),
            list(self.waiting.get()),
        )


shown = []


def show(name, stream):
    """Print a stream's type at once, and its records, with the name before each, when the job runs."""
    print(name, repr(stream.get_type()))
    shown.append(stream.map(lambda value: f"{name}> {value!r}", output_type=Types.STRING()))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
numbers = env.from_collection([1, 2, 3], Types.INT())
pairs = env.from_collection([("a", 1), ("b", 2), ("a", 3)], PAIR).assign_timestamps_and_watermarks(strategy)
others = env.from_collection([("b", 5), ("c", 6)], PAIR).assign_timestamps_and_watermarks(strategy)
by_key, others_by_key = (stream.key_by(lambda pair: pair[0], Types.STRING()) for stream in (pairs, others))

both = numbers.connect(pairs)
show("co_map", both.map(Maps()).map(str))
show("co_map_typed", both.map(Maps(), Types.INT()))
show("co_flat_map", both.flat_map(FlatMaps()))
show("co_flat_map_typed", both.flat_map(FlatMaps(), output_type=Types.TUPLE([Types.STRING(), Types.INT()])))
processed = both.process(Processes())
show("co_process", processed)
show("co_process_side", processed.get_side_output(SIDE))

show("keyed_co_map", by_key.connect(others_by_key).map(StateMaps()))
show("keyed_co_flat_map", by_key.connect(others_by_key).flat_map(StateFlatMaps()))
show(
    "key_by_both",
    pairs.connect(others).key_by(lambda one: one[0], lambda two: two[0], Types.STRING()).map(StateMaps()),
)
joined = by_key.connect(others_by_key).process(Joins())
show("joined", joined)
show("joined_side", joined.get_side_output(SIDE))

rules = env.from_collection([("a", 1), ("b", 7), ("a", 2)], PAIR)
ruled = numbers.connect(rules.broadcast(RULES, MORE)).process(Rules())
show("rules", ruled)
show("rules_side", ruled.get_side_output(SIDE))
timed_rules = rules.assign_timestamps_and_watermarks(strategy)
ruled = by_key.connect(timed_rules.broadcast(RULES)).process(KeyedRules())
show("keyed_rules", ruled)
show("keyed_rules_side", ruled.get_side_output(SIDE))
shown[0].union(*shown[1:]).print()
env.execute("connected")
