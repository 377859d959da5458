"""A call that takes too long: its results are those of timeout(), in the order of the records."""

import asyncio

from pyflink.common import Time, Types
from pyflink.datastream import AsyncDataStream, AsyncFunction, StreamExecutionEnvironment

COVERS = """
common.time Time: milliseconds
common.typeinfo Types: INT STRING
datastream.async_data_stream AsyncDataStream: ordered_wait
datastream.functions AsyncFunction: async_invoke timeout
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""


class Slow(AsyncFunction):
    async def async_invoke(self, value):
        if value % 2:
            await asyncio.sleep(3600)
        return [f"{value} in time"]

    def timeout(self, value):
        return [f"{value} late", f"{value} gave up"]


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4], Types.INT())
AsyncDataStream.ordered_wait(numbers, Slow(), Time.milliseconds(500), output_type=Types.STRING()).print()
env.execute()
