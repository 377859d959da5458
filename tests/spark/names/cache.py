"""A stream that is cached and read by several jobs. Locally PyFlink computes it for each job anew."""

from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.data_stream import CachedDataStream

COVERS = """
common.typeinfo Types: INT
datastream.data_stream CachedDataStream: invalidate set_parallelism
datastream.data_stream DataStream: cache map print
datastream.data_stream KeyedStream: sum
datastream.execution_mode RuntimeExecutionMode: BATCH
datastream.stream_execution_environment StreamExecutionEnvironment: execute from_collection
    get_execution_environment set_parallelism set_runtime_mode
"""

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
cached = env.from_collection([1, 2, 3], Types.INT()).map(lambda number: number * 10, Types.INT()).cache()
print(isinstance(cached, CachedDataStream), cached.get_type() == Types.INT())
cached.print()
env.execute()
cached.map(lambda number: number + 1, Types.INT()).print()
env.execute()
cached.invalidate()
with cached.key_by(lambda number: number % 20).sum(0).execute_and_collect() as results:
    print(sorted(results))
