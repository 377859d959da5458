"""Timestamps stay with their records, and no record is late for having been asked about."""

import asyncio

from pyflink.common import Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    KeyedProcessFunction,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from pyflink.datastream.window import TumblingEventTimeWindows

COVERS = """
common.time Duration: of_seconds
common.time Time: seconds
common.typeinfo Types: LONG STRING TUPLE
common.watermark_strategy TimestampAssigner: extract_timestamp
common.watermark_strategy WatermarkStrategy: for_bounded_out_of_orderness with_timestamp_assigner
datastream.async_data_stream AsyncDataStream: ordered_wait unordered_wait
datastream.functions AsyncFunction: async_invoke
datastream.functions KeyedProcessFunction: on_timer process_element
datastream.functions ProcessFunction: process_element
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
datastream.window TumblingEventTimeWindows: assign_windows get_default_trigger get_window_serializer
    is_event_time of
"""


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[1]


class Waits(AsyncFunction):
    """Every third call ends after the two that follow."""

    def open(self, runtime_context):
        self.ended = {}

    def event(self, number):
        return self.ended.setdefault(number, asyncio.Event())

    async def async_invoke(self, value):
        number = value[1] // 1000
        if number % 3 == 0 and number < 27:
            await self.event(number + 2).wait()
        self.event(number).set()
        return [value]


class Stamped(ProcessFunction):
    def process_element(self, value, ctx):
        yield value[0], ctx.timestamp()


class Timers(KeyedProcessFunction):
    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 5000)

    def on_timer(self, timestamp, ctx):
        yield ctx.get_current_key(), timestamp


PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
records = [("ab"[number % 2], number * 1000) for number in range(30)]
strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(1))
timed = env.from_collection(records, PAIR).assign_timestamps_and_watermarks(
    strategy.with_timestamp_assigner(ByValue())
)
for wait in (AsyncDataStream.ordered_wait, AsyncDataStream.unordered_wait):
    asked = wait(timed, Waits(), Time.seconds(100), 10, PAIR)
    windows = asked.key_by(lambda pair: 0).window(TumblingEventTimeWindows.of(Time.seconds(10)))
    windows.reduce(lambda left, right: ("all", left[1] + right[1]), output_type=PAIR).print()
    env.execute()
ordered = AsyncDataStream.ordered_wait(timed, Waits(), Time.seconds(100), 10, PAIR)
ordered.process(Stamped(), PAIR).print()
env.execute()
unordered = AsyncDataStream.unordered_wait(timed, Waits(), Time.seconds(100), 10, PAIR)
unordered.key_by(lambda pair: pair[0]).process(Timers(), PAIR).print()
env.execute()
