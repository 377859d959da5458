"""Records behind the watermark: late for one window and dropped, let in by another, and sent aside.

The records up to ``PAUSE`` are many, and on PyFlink the program waits ``PAUSE_S`` seconds behind them, until
all of its workers have started: there the watermark follows the clock, elsewhere it may follow the records.
"""

import os
import time

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import TumblingEventTimeWindows

COVERS = """
common.configuration Configuration: set_integer
common.time Time: seconds
common.typeinfo Types: INT STRING TUPLE
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_monotonous_timestamps with_timestamp_assigner
datastream.data_stream AllWindowedStream: allowed_lateness side_output_late_data
datastream.data_stream WindowedStream: allowed_lateness side_output_late_data
datastream.functions ProcessWindowFunction: process
datastream.output_tag OutputTag
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.window TumblingEventTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
"""

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PAUSE = 4200
#: The watermark is at 20999 when the last four come.
RECORDS = [("a", 1000), ("b", 2000), ("a", 21000), *[("filler", 2000 + n) for n in range(PAUSE - 3)]]
RECORDS += [("a", 3000), ("b", 12000), ("a", 4000), ("b", 22000)]


def tag():
    """Return a new tag: PyFlink cannot ship one that a stream was asked for."""
    return OutputTag("late", Types.TUPLE([Types.STRING(), Types.INT()]))


class ByNumber(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Contents(ProcessWindowFunction):
    def process(self, key, context, elements):
        yield key, context.window().start, [value[1] for value in elements]


class Pauses:
    """Waits once, before the record after the pause."""

    def __init__(self):
        self.seen = 0

    def __call__(self, value):
        self.seen += 1
        if self.seen == PAUSE + 1:
            time.sleep(float(os.environ.get("PAUSE_S", "0")))
        return value


configuration = Configuration()
configuration.set_integer("python.fn-execution.bundle.size", PAUSE)
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByNumber())
paused = env.from_collection(RECORDS, PAIR).map(Pauses(), PAIR)
timed = paused.assign_timestamps_and_watermarks(strategy).disable_chaining()
timed = timed.filter(lambda value: value[0] != "filler")
keyed = timed.key_by(lambda value: value[0], Types.STRING())
windows = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10)))
dropped_tag, again_tag, all_tag = tag(), tag(), tag()
dropped = windows.side_output_late_data(dropped_tag).process(Contents())
again = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).allowed_lateness(12_000)
again = again.side_output_late_data(again_tag).process(Contents())
everything = timed.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).allowed_lateness(5000)
everything = everything.side_output_late_data(all_tag).reduce(lambda one, two: (one[0], one[1] + two[1]))
shown = []
for name, stream, late in (
    ("dropped", dropped, dropped_tag),
    ("again", again, again_tag),
    ("all", everything, all_tag),
):
    for which, results in (("main", stream), ("late", stream.get_side_output(late))):
        label = f"{name} {which}"
        shown.append(results.map(lambda value, label=label: f"{label}> {value}", Types.STRING()))
shown[0].union(*shown[1:]).print()
env.execute("late")
