"""Ordered results: the first record ends last, and comes first; results may be none or several."""

import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment

COVERS = """
common.time Time: seconds
common.typeinfo Types: INT TUPLE
datastream.async_data_stream AsyncDataStream: ordered_wait
datastream.functions AsyncFunction: async_invoke
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""


class Repeats(AsyncFunction):
    def open(self, runtime_context):
        self.fifth = asyncio.Event()

    async def async_invoke(self, value):
        if value == 1:
            await self.fifth.wait()
        if value == 5:
            self.fifth.set()
        return [(value, number) for number in range(value % 3)]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection(list(range(1, 9)), Types.INT())
pairs = AsyncDataStream.ordered_wait(
    numbers, Repeats(), Time.seconds(100), 5, Types.TUPLE([Types.INT(), Types.INT()])
)
pairs.print()
AsyncDataStream.ordered_wait(numbers, Repeats(), Time.seconds(100)).map(lambda pair: [pair]).print()
env.execute()
