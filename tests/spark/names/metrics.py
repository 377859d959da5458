"""Metrics of every kind, kept by functions with keys and without."""

from pyflink.common import Types
from pyflink.datastream import KeyedProcessFunction, MapFunction, RuntimeContext, StreamExecutionEnvironment
from pyflink.metrics import Counter, Distribution, Meter, MetricGroup

COVERS = """
common.typeinfo Types: INT
datastream.functions KeyedProcessFunction: process_element
datastream.functions MapFunction: map
datastream.functions RuntimeContext: get_metrics_group
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
metrics.metricbase Counter: dec get_count inc
metrics.metricbase Distribution: update
metrics.metricbase Meter: get_count mark_event
metrics.metricbase MetricGroup: add_group counter distribution gauge meter
"""


class Counted(MapFunction):
    def open(self, runtime_context: RuntimeContext):
        group: MetricGroup = runtime_context.get_metrics_group().add_group("mine").add_group("kind", "even")
        self.seen: Counter = group.counter("seen")
        self.rate: Meter = group.meter("rate", time_span_in_seconds=5)
        self.sizes: Distribution = group.distribution("sizes")
        group.gauge("last", lambda: self.last)
        self.last = 0

    def map(self, value):
        self.seen.inc()
        self.seen.inc(value)
        self.seen.dec(2)
        self.rate.mark_event(value)
        self.sizes.update(value)
        self.last = value
        return value, self.seen.get_count(), self.rate.get_count()


class CountedByKey(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext):
        self.seen = runtime_context.get_metrics_group().counter("seen")

    def process_element(self, value, ctx):
        self.seen.inc(10)
        yield value[0], self.seen.get_count()


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4], Types.INT()).map(Counted())
numbers.print()
numbers.key_by(lambda value: value[0] % 2).process(CountedByKey()).print()
env.execute()
