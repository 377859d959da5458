"""Calls that are made again: after errors, after empty results, not after others; the last outcome counts."""

import functools

from pyflink.common import Time, Types
from pyflink.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
    async_retry_predicates,
)
from pyflink.datastream.async_retry_strategies import RetryPredicate

COVERS = """
common.time Time: seconds
common.typeinfo Types: INT LONG STRING
datastream.async_data_stream AsyncDataStream: ordered_wait_with_retry unordered_wait_with_retry
datastream.async_retry_predicates empty_result_predicate
datastream.async_retry_predicates exception_type_predicate
datastream.async_retry_predicates has_exception_predicate
datastream.async_retry_strategies RetryPredicate
datastream.functions AsyncFunction: async_invoke timeout
datastream.functions AsyncRetryStrategy: can_retry exponential_backoff fixed_delay
    get_backoff_time_millis get_retry_predicate no_restart
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism
"""


class Unsteady(AsyncFunction):
    """Gives nothing, or raises, as often as the record says."""

    def __init__(self, error):
        self.error = error

    def open(self, runtime_context):
        self.attempts = {}

    async def async_invoke(self, value):
        attempt = self.attempts[value] = self.attempts.get(value, 0) + 1
        if attempt <= value:
            if self.error:
                raise TimeoutError(f"attempt {attempt}")
            return []
        return [f"{value} after {attempt}"]

    def timeout(self, value):
        return [f"{value} timed out"]


class Own(AsyncRetryStrategy):
    """A strategy of the program's own: twice, at once."""

    def can_retry(self, current_attempts):
        return current_attempts <= 2

    def get_backoff_time_millis(self, current_attempts):
        return 1

    def get_retry_predicate(self):
        return RetryPredicate(lambda results: not results, None)


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([0, 1, 2, 3], Types.INT())
is_timeout = functools.partial(
    async_retry_predicates.exception_type_predicate, expected_error_type=TimeoutError
)
strategies = [
    (True, AsyncRetryStrategy.fixed_delay(3, 10, None, is_timeout)),
    (False, AsyncRetryStrategy.fixed_delay(2, 10, async_retry_predicates.empty_result_predicate, None)),
    (
        True,
        AsyncRetryStrategy.exponential_backoff(
            5, 5, 20, 2.0, None, async_retry_predicates.has_exception_predicate
        ),
    ),
    (False, Own()),
    (False, AsyncRetryStrategy.no_restart()),
]
for error, strategy in strategies:
    AsyncDataStream.ordered_wait_with_retry(
        numbers, Unsteady(error), Time.seconds(100), strategy, 10, Types.STRING()
    ).print()
    env.execute()
forever = AsyncRetryStrategy.fixed_delay(10**6, 50, lambda results: len(results) == 0, None)
AsyncDataStream.unordered_wait_with_retry(
    numbers.map(lambda number: number * 10**9, Types.LONG()),
    Unsteady(False),
    Time.seconds(1),
    forever,
    output_type=Types.STRING(),
).filter(lambda text: text != "").print()
env.execute()
