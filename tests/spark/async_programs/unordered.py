"""Unordered results come as calls end."""

import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment

COVERS = """
common.time Time: seconds
common.typeinfo Types: INT
datastream.async_data_stream AsyncDataStream: unordered_wait
datastream.functions AsyncFunction: async_invoke
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""


class Waits(AsyncFunction):
    """The first call ends after the third, the fourth after the fifth."""

    def open(self, runtime_context):
        self.ended = {value: asyncio.Event() for value in range(1, 6)}

    async def async_invoke(self, value):
        after = {1: 3, 4: 5}.get(value)
        if after is not None:
            await self.ended[after].wait()
        self.ended[value].set()
        return [value]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4, 5], Types.INT())
AsyncDataStream.unordered_wait(
    numbers, Waits(), Time.seconds(100), capacity=3, output_type=Types.INT()
).print()
env.execute()
