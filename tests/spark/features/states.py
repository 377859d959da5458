"""All kinds of keyed state with all that can be asked of them, and time to live that does not pass."""

from pyflink.common import Duration, Row, Time, Types
from pyflink.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ReduceFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)

COVERS = """
common.time Duration: of_days of_hours
common.time Time: days hours minutes
common.typeinfo Types: INT LIST LONG PICKLED_BYTE_ARRAY ROW_NAMED STRING TUPLE
common.types Row
datastream.functions AggregateFunction: add create_accumulator get_result merge
datastream.functions Function: close open
datastream.functions KeyedProcessFunction: process_element
datastream.functions KeyedStateStore: get_aggregating_state get_list_state get_map_state
    get_reducing_state get_state
datastream.functions ReduceFunction: reduce
datastream.functions RuntimeContext
datastream.state AggregatingStateDescriptor: get_agg_function
datastream.state AppendingState: add get
datastream.state ListState: add_all update
datastream.state ListStateDescriptor
datastream.state MapState: contains get is_empty items keys put remove values
datastream.state MapStateDescriptor
datastream.state MergingState
datastream.state ReducingState
datastream.state ReducingStateDescriptor: get_reduce_function
datastream.state State: clear
datastream.state StateDescriptor: enable_time_to_live get_name
datastream.state StateTtlConfig: StateVisibility TtlTimeCharacteristic UpdateType get_cleanup_strategies
    get_state_visibility get_ttl get_ttl_time_characteristic get_update_type is_enabled new_builder
datastream.state ValueState: update value
datastream.state ValueStateDescriptor
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.state StateTtlConfig.Builder: set_update_type update_ttl_on_create_and_write
    update_ttl_on_read_and_write set_state_visibility return_expired_if_not_cleaned_up
    never_return_expired set_ttl_time_characteristic use_processing_time cleanup_full_snapshot
    cleanup_incrementally cleanup_in_rocksdb_compact_filter disable_cleanup_in_background set_ttl build
datastream.state StateTtlConfig.CleanupStrategies: is_cleanup_in_background in_full_snapshot
    get_incremental_cleanup_strategy get_rocksdb_compact_filter_cleanup_strategy
datastream.state StateTtlConfig.StateVisibility: NeverReturnExpired
datastream.state StateTtlConfig.UpdateType: OnReadAndWrite
"""

INPUT = [("a", 1), ("b", 10), ("a", 2), ("a", 3), ("b", 20)]
TTL = (
    StateTtlConfig.new_builder(Time.days(1))
    .set_update_type(StateTtlConfig.UpdateType.OnReadAndWrite)
    .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
    .set_ttl_time_characteristic(StateTtlConfig.TtlTimeCharacteristic.ProcessingTime)
    .cleanup_full_snapshot()
    .cleanup_incrementally(10, True)
    .build()
)
OTHER_TTL = (
    StateTtlConfig.new_builder(Time.hours(1))
    .update_ttl_on_create_and_write()
    .update_ttl_on_read_and_write()
    .return_expired_if_not_cleaned_up()
    .never_return_expired()
    .use_processing_time()
    .disable_cleanup_in_background()
    .set_ttl(Time.minutes(3))
    .build()
)
#: PyFlink cannot ship this one to its workers.
OF_ROCKSDB = StateTtlConfig.new_builder(Time.days(1)).cleanup_in_rocksdb_compact_filter(1000).build()


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Multiplies(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 * value2


class Values(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        row = Types.ROW_NAMED(["n", "texts"], [Types.LONG(), Types.LIST(Types.STRING())])
        self.number = runtime_context.get_state(ValueStateDescriptor("number", Types.LONG()))
        self.row = runtime_context.get_state(ValueStateDescriptor("row", row))
        self.any = runtime_context.get_state(ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY()))
        self.lives = runtime_context.get_state(living("lives"))

    def process_element(self, value, ctx):
        before = self.number.value(), self.any.value(), self.lives.value()
        self.number.update((self.number.value() or 0) + value[1])
        self.any.update({"last": value})
        self.lives.update(value[1])
        kept = self.row.value()
        texts = [*kept.texts, str(value[1])] if kept else []
        self.row.update(Row(n=value[1], texts=texts))
        if value[1] == 3:
            self.number.clear()
        yield *before, self.number.value(), self.row.value().texts


def living(name):
    descriptor = ValueStateDescriptor(name, Types.LONG())
    descriptor.enable_time_to_live(TTL)
    return descriptor


class Lists(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = ListStateDescriptor("living", Types.INT())
        descriptor.enable_time_to_live(OTHER_TTL)
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.INT()))
        self.living = runtime_context.get_list_state(descriptor)

    def process_element(self, value, ctx):
        empty = list(self.list.get() or [])
        self.list.add(value[1])
        self.list.add_all([0, value[1] + 1])
        self.living.add(value[1])
        grown = list(self.list.get())
        if value[1] == 2:
            self.list.update([9])
        if value[1] == 20:
            self.list.clear()
        yield empty, grown, list(self.list.get() or []), list(self.living.get())


class Maps(KeyedProcessFunction):
    def open(self, runtime_context):
        descriptor = MapStateDescriptor("living", Types.STRING(), Types.INT())
        descriptor.enable_time_to_live(TTL)
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.STRING(), Types.INT()))
        self.living = runtime_context.get_map_state(descriptor)

    def process_element(self, value, ctx):
        was_empty = self.map.is_empty()
        self.map.put("last", value[1])
        self.map.put(f"k{value[1]}", value[1])
        self.map.put("one", 1)
        self.map.put("two", 2)
        self.living.put(str(value[1]), value[1])
        if value[1] == 2:
            self.map.remove("k1")
        items, keys, values = (sorted(of()) for of in (self.map.items, self.map.keys, self.map.values))
        asked = (
            self.map.get("last"),
            self.map.get("nothing"),
            self.map.contains("one"),
            self.map.contains("x"),
        )
        if value[1] == 3:
            self.map.clear()
        yield was_empty, items, keys, values, asked, "last" in self.map, sorted(self.living.items())


class Combined(KeyedProcessFunction):
    def open(self, runtime_context):
        living = ReducingStateDescriptor("living", lambda one, two: max(one, two), Types.INT())
        living.enable_time_to_live(TTL)
        self.product = runtime_context.get_reducing_state(
            ReducingStateDescriptor("product", Multiplies(), Types.LONG())
        )
        self.highest = runtime_context.get_reducing_state(living)
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([Types.LONG(), Types.LONG()]))
        )
        aging = AggregatingStateDescriptor("aging", Mean(), Types.PICKLED_BYTE_ARRAY())
        aging.enable_time_to_live(OTHER_TTL)
        self.aging = runtime_context.get_aggregating_state(aging)

    def process_element(self, value, ctx):
        before = self.product.get(), self.mean.get()
        for state in (self.product, self.highest, self.mean, self.aging):
            state.add(value[1])
        after = self.product.get(), self.highest.get(), self.mean.get(), self.aging.get()
        if value[1] == 2:
            self.product.clear()
            self.mean.clear()
        yield before, after


class Names(KeyedProcessFunction):
    """Two states of one type, of which one has the name that another function uses too."""

    def open(self, runtime_context):
        self.here = runtime_context.get_state(ValueStateDescriptor("number", Types.STRING()))
        self.there = runtime_context.get_state(ValueStateDescriptor("other", Types.STRING()))

    def process_element(self, value, ctx):
        self.here.update((self.here.value() or "") + str(value[1]))
        yield self.here.value(), self.there.value()

    def close(self):
        self.here = None


print(TTL.get_ttl() == Time.days(1), TTL.get_update_type().name, TTL.get_state_visibility().name)
print(
    TTL.get_ttl_time_characteristic().name, TTL.is_enabled(), TTL.get_cleanup_strategies().in_full_snapshot()
)
cleanup = TTL.get_cleanup_strategies()
print(cleanup.is_cleanup_in_background(), cleanup.get_incremental_cleanup_strategy().get_cleanup_size())
print(cleanup.get_incremental_cleanup_strategy().run_cleanup_for_every_record())
other = OTHER_TTL.get_cleanup_strategies()
print(OTHER_TTL.get_ttl() == Time.minutes(3), other.is_cleanup_in_background(), other.in_full_snapshot())
of_rocksdb = OF_ROCKSDB.get_cleanup_strategies()
print(of_rocksdb.get_rocksdb_compact_filter_cleanup_strategy().get_query_time_after_num_entries())
print(OTHER_TTL.get_update_type().name, OTHER_TTL.get_state_visibility().name)
print(ListStateDescriptor("named", Types.INT()).get_name(), Duration.of_days(1) == Duration.of_hours(24))
print(ReducingStateDescriptor("r", Multiplies(), Types.INT()).get_reduce_function().reduce(3, 4))
print(AggregatingStateDescriptor("a", Mean(), Types.INT()).get_agg_function().create_accumulator())


shown = []


def show(name, stream):
    """Print a stream's type at once, and its records, with the name before each, when the job runs."""
    print(name, repr(stream.get_type()))
    shown.append(stream.map(lambda value: f"{name}> {value!r}", output_type=Types.STRING()))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
stream = env.from_collection(INPUT, Types.TUPLE([Types.STRING(), Types.INT()]))
keyed = stream.key_by(lambda pair: pair[0], Types.STRING())
for function in (Values(), Lists(), Maps(), Combined(), Names()):
    show(type(function).__name__, keyed.process(function))
shown[0].union(*shown[1:]).print()
env.execute("states")
