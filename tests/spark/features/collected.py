"""Results that come back to the program: all of them, the first of them, one after the other."""

from pyflink.common import Types
from pyflink.datastream import StreamExecutionEnvironment

COVERS = """
common.typeinfo Types: INT STRING
datastream.data_stream CloseableIterator: close next
datastream.data_stream DataStream: execute_and_collect
datastream.stream_execution_environment StreamExecutionEnvironment: from_collection
    get_execution_environment set_parallelism
"""

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
numbers = env.from_collection([1, 2, 3, 4, 5], Types.INT())
print(list(numbers.execute_and_collect("collected")))
print(numbers.execute_and_collect(limit=2))
with env.from_collection(["a", "b"], Types.STRING()).execute_and_collect() as results:
    print(next(results), results.next())
again = numbers.execute_and_collect()
print(next(again))
again.close()
