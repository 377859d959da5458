"""Unordered results come as calls end."""

import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment


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
