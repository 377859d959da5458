"""Functions on streams without keys, partitioners, side outputs, and what is said about operators."""

from pyflink.common import Duration, Row, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    FilterFunction,
    FlatMapFunction,
    MapFunction,
    OutputTag,
    Partitioner,
    ProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflink.datastream.connectors.number_seq import NumberSequenceSource

COVERS = """
common.execution_config ExecutionConfig: get_parallelism
common.time Duration: of_minutes of_seconds
common.typeinfo Types: DOUBLE INT ROW_NAMED STRING TUPLE
common.types Row: as_dict
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_bounded_out_of_orderness for_monotonous_timestamps
    no_watermarks with_idleness with_timestamp_assigner
datastream.connectors.base Source
datastream.connectors.number_seq NumberSequenceSource
datastream.data_stream DataStream: assign_timestamps_and_watermarks broadcast disable_chaining
    filter flat_map force_non_parallel forward get_execution_config
    get_execution_environment get_name get_side_output get_type map name partition_custom print process
    project rebalance rescale set_buffer_timeout set_description set_max_parallelism set_parallelism
    shuffle start_new_chain uid union
datastream.data_stream DataStreamSink: disable_chaining name set_description set_parallelism uid
datastream.functions FilterFunction: filter
datastream.functions FlatMapFunction: flat_map
datastream.functions Function: close open
datastream.functions MapFunction: map
datastream.functions Partitioner: partition
datastream.functions ProcessFunction: Context process_element
datastream.functions RuntimeContext: get_attempt_number get_index_of_this_subtask
    get_max_number_of_parallel_subtasks get_number_of_parallel_subtasks
datastream.output_tag OutputTag
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection from_source
    get_max_parallelism set_parallelism get_execution_environment
datastream.timerservice TimerService: current_processing_time current_watermark
datastream.functions ProcessFunction.Context: timer_service timestamp
"""

ODD = OutputTag("odd", Types.INT())
UNTYPED = OutputTag("untyped")


class AddsOpened(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.more = runtime_context.get_index_of_this_subtask() + 100

    def map(self, value):
        return value + self.more

    def close(self):
        self.more = None


class Halves(FlatMapFunction):
    def flat_map(self, value):
        for part in range(value % 3):
            yield value, part


class IsEven(FilterFunction):
    def filter(self, value):
        return value % 2 == 0


class ByParity(Partitioner):
    def partition(self, key, num_partitions):
        return key % num_partitions


class Splits(ProcessFunction):
    def process_element(self, value, ctx: ProcessFunction.Context):
        if value % 2:
            yield ODD, value
            yield UNTYPED, (value, "odd")
        else:
            yield value


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value * 10


class Times(ProcessFunction):
    def process_element(self, value, ctx: ProcessFunction.Context):
        service = ctx.timer_service()
        yield (
            value,
            ctx.timestamp(),
            service.current_watermark() < 2**62,
            service.current_processing_time() > 10**12,
        )


class About(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        self.about = (
            runtime_context.get_number_of_parallel_subtasks(),
            runtime_context.get_max_number_of_parallel_subtasks(),
            runtime_context.get_index_of_this_subtask(),
            runtime_context.get_attempt_number(),
        )

    def map(self, value):
        return self.about


shown = []


def show(name, stream):
    """Print a stream's type at once, and its records, with the name before each, when the job runs."""
    print(name, repr(stream.get_type()))
    shown.append(stream.map(lambda value: f"{name}> {value!r}", output_type=Types.STRING()))


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1).set_max_parallelism(64)
numbers = env.from_collection([1, 2, 3, 4, 5], Types.INT())
show("map", numbers.map(AddsOpened()))
show("map_typed", numbers.map(lambda n: n / 2, output_type=Types.DOUBLE()))
show("flat_map", numbers.flat_map(Halves()))
show("flat_map_typed", numbers.flat_map(lambda n: range(n % 3), Types.INT()))
show("flat_map_list", numbers.flat_map(lambda n: [n, [n]] if n == 2 else []))
show("filter", numbers.filter(IsEven()))
show("chain", numbers.filter(lambda n: n > 3).map(lambda n: -n).filter(lambda n: n != -4))
untyped = env.from_collection([(1, "a", 2.5), (2, "b", None)])
show("untyped", untyped)
show("untyped_map", untyped.map(lambda value: value[::-1]))
rows = env.from_collection([(1, "a", 2.5)], Types.TUPLE([Types.INT(), Types.STRING(), Types.DOUBLE()]))
show("project", rows.project(2, 0))
named = env.from_collection([Row(1, "a")], Types.ROW_NAMED(["n", "s"], [Types.INT(), Types.STRING()]))
show("row_fields", named.map(lambda row: (row.s, row["n"], row[0], row.as_dict())))

letters = env.from_collection(["a", "b"], Types.STRING())
show("union", letters.union(env.from_collection(["c"], Types.STRING())).map(str.upper, Types.STRING()))
for name, spread in {
    "rebalance": numbers.rebalance(),
    "rescale": numbers.rescale(),
    "shuffle": numbers.shuffle(),
    "forward": numbers.forward(),
    "broadcast": numbers.broadcast(),
    "custom": numbers.partition_custom(ByParity(), lambda n: n),
    "custom_plain": numbers.partition_custom(lambda key, of: key % of, lambda n: n),
}.items():
    show(name, spread.map(lambda n: n * 10, Types.INT()))
to_both = numbers.map(lambda n: n, Types.INT()).broadcast().map(lambda n: n, Types.INT()).set_parallelism(2)
to_both.map(lambda n: n, Types.INT()).set_parallelism(2).print("both").set_parallelism(2)

split = numbers.process(Splits(), output_type=Types.INT())
show("main", split)
show("odd", split.get_side_output(ODD).map(lambda n: n + 0.5, Types.DOUBLE()))
show("side_untyped", split.get_side_output(UNTYPED))

timed = numbers.assign_timestamps_and_watermarks(
    WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
)
show("times", timed.process(Times()))
show("times_after_map", timed.map(lambda n: n + 1, Types.INT()).filter(lambda n: n > 2).process(Times()))
again = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1)).with_idleness(
    Duration.of_minutes(1)
)
show("times_kept", timed.assign_timestamps_and_watermarks(again).process(Times()))

show("sequence", env.from_source(NumberSequenceSource(1, 3), WatermarkStrategy.no_watermarks(), "numbers"))
show("about", numbers.map(About()))

said = numbers.map(lambda n: n, Types.INT()).name("mine").uid("mine").set_description("says what it does")
said = said.set_max_parallelism(32).disable_chaining().start_new_chain().set_buffer_timeout(10)
print(said.get_name(), said.get_type() == Types.INT(), said.get_execution_environment().get_parallelism())
print(said.get_execution_config().get_parallelism(), env.get_max_parallelism())
said.force_non_parallel().print("said").name("sink").uid("sink").set_description("prints").disable_chaining()
shown[0].union(*shown[1:]).print()
numbers.map(AddsOpened()).print("plain")
env.execute("keyless")
