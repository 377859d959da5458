"""Records behind the watermark: late for one window and dropped, let in by another, and sent aside.

The records up to ``PAUSE`` are many, and what follows them comes a second later, so that the watermark has
passed by then: on PyFlink it follows the clock, elsewhere it may follow the number of records.
"""

import time

from pyflink.common import Configuration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import TumblingEventTimeWindows

PAIR = Types.TUPLE([Types.STRING(), Types.INT()])
PAUSE = 4200
#: The watermark is at 20999 when the last four come.
RECORDS = [("a", 1000), ("b", 2000), *[("filler", 2000 + n) for n in range(PAUSE - 3)], ("a", 21000)]
RECORDS += [("a", 3000), ("b", 12000), ("a", 4000), ("b", 22000)]
LATE = OutputTag("late", PAIR)


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
            time.sleep(3)
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
dropped = windows.side_output_late_data(LATE).process(Contents())
again = keyed.window(TumblingEventTimeWindows.of(Time.seconds(10))).allowed_lateness(12_000)
again = again.side_output_late_data(LATE).process(Contents())
everything = timed.window_all(TumblingEventTimeWindows.of(Time.seconds(10))).allowed_lateness(5000)
everything = everything.side_output_late_data(LATE).reduce(lambda one, two: (one[0], one[1] + two[1]))
shown = []
for name, stream in (("dropped", dropped), ("again", again), ("all", everything)):
    for which, results in (("main", stream), ("late", stream.get_side_output(LATE))):
        label = f"{name} {which}"
        shown.append(results.map(lambda value, label=label: f"{label}> {value}", Types.STRING()))
shown[0].union(*shown[1:]).print()
env.execute("late")
