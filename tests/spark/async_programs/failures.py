"""What fails a job: an error, a timeout that is not overridden, results that are none."""

import asyncio

from pyflink.common import Configuration, Time, Types
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
)

COVERS = """
common.configuration Configuration: set_string
common.time Time: milliseconds seconds
common.typeinfo Types: INT
datastream.async_data_stream AsyncDataStream: ordered_wait ordered_wait_with_retry
datastream.functions AsyncFunction: async_invoke
datastream.functions AsyncRetryStrategy: fixed_delay
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""


class Raises(AsyncFunction):
    async def async_invoke(self, value):
        raise LookupError(f"nobody knows {value}")


class Slow(AsyncFunction):
    async def async_invoke(self, value):
        await asyncio.sleep(3600)


class Nothing(AsyncFunction):
    async def async_invoke(self, value):
        return None


class Number(AsyncFunction):
    async def async_invoke(self, value):
        return value


class Plain(AsyncFunction):
    def async_invoke(self, value):
        return [value]


configuration = Configuration()
configuration.set_string("restart-strategy.type", "none")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
for function, said in [
    (Raises(), "nobody knows 7"),
    (Slow(), "timed out for input: 7"),
    (Nothing(), ""),
    (Number(), ""),
]:
    numbers = env.from_collection([7], Types.INT())
    AsyncDataStream.ordered_wait(numbers, function, Time.milliseconds(500), output_type=Types.INT()).print()
    try:
        env.execute()
    except Exception as error:  # noqa: BLE001 - the two packages raise their own
        print(type(function).__name__, "failed", said in str(error) or said in str(error.__cause__))
    else:
        print(type(function).__name__, "did not fail")
retries = AsyncRetryStrategy.fixed_delay(1, 1, None, None)
for name, call in [
    ("plain", lambda: AsyncDataStream.ordered_wait(numbers, Plain(), Time.seconds(1))),
    (
        "no timeout",
        lambda: AsyncDataStream.ordered_wait_with_retry(numbers, Raises(), Time.seconds(0), retries),
    ),
    (
        "no strategy",
        lambda: AsyncDataStream.ordered_wait_with_retry(numbers, Raises(), Time.seconds(1), None),
    ),
]:
    try:
        call()
    except Exception:  # noqa: BLE001 - as above
        print(name, "is refused")
    else:
        print(name, "is taken")
