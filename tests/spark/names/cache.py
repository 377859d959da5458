"""A stream that is computed once and read by several jobs."""

import os
import tempfile

from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.data_stream import CachedDataStream

log = f"{tempfile.mkdtemp()}/computed"


def computed(number):
    with open(log, "a") as file:
        file.write(f"{number}\n")
    return number * 10


def lines():
    if not os.path.exists(log):
        return []
    with open(log) as file:
        return sorted(file.read().split())


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
cached = env.from_collection([1, 2, 3], Types.INT()).map(computed, Types.INT()).cache()
print(isinstance(cached, CachedDataStream), lines())
cached.print()
env.execute()
print(lines())
cached.map(lambda number: number + 1, Types.INT()).print()
env.execute()
print(lines())
cached.invalidate()
with cached.execute_and_collect() as results:
    print(sorted(results))
print(lines())
