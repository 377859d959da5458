"""What is known of a job, and all that it may be about."""

from pyflink.common import JobExecutionResult, JobStatus, Types
from pyflink.common.completable_future import CompletableFuture
from pyflink.common.job_id import JobID
from pyflink.datastream import StreamExecutionEnvironment

COVERS = """
common.completable_future CompletableFuture: cancelled done exception result
common.job_client JobClient: get_job_execution_result get_job_id
common.job_execution_result JobExecutionResult: get_all_accumulator_results get_job_id get_net_runtime
common.job_id JobID
common.job_status JobStatus: is_globally_terminal_state is_terminal_state
common.typeinfo Types: INT
datastream.stream_execution_environment StreamExecutionEnvironment: execute execute_async from_collection
    get_execution_environment set_parallelism
"""

for status in JobStatus:
    print(status.name, status.value, status.is_terminal_state(), status.is_globally_terminal_state())

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2], Types.INT()).print()
result = env.execute("named")
print(
    isinstance(result, JobExecutionResult),
    isinstance(result.get_job_id(), JobID),
    len(str(result.get_job_id())),
)
print(isinstance(result.get_net_runtime(), int), result.get_net_runtime() >= 0)
print(isinstance(result.get_all_accumulator_results(), dict))

env.from_collection([3], Types.INT()).print()
client = env.execute_async("beside")
future = client.get_job_execution_result()
print(isinstance(future, CompletableFuture), len(str(client.get_job_id())))
print(future.result().get_net_runtime() >= 0, future.done(), future.cancelled(), future.exception())
