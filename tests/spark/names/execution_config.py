"""Settings of a job that are kept and given back, and configurations as values."""

from pyflink.common import Configuration, ExecutionConfig
from pyflink.datastream import StreamExecutionEnvironment

COVERS = """
common.configuration Configuration: set_boolean set_float set_integer set_string to_dict
common.execution_config ExecutionConfig: disable_auto_generated_uids disable_closure_cleaner
    enable_auto_generated_uids enable_closure_cleaner get_auto_watermark_interval
    get_latency_tracking_interval get_max_parallelism get_parallelism get_task_cancellation_interval
    get_task_cancellation_timeout has_auto_generated_uids_enabled is_closure_cleaner_enabled
    is_object_reuse_enabled is_use_snapshot_compression set_parallelism set_task_cancellation_interval
    set_task_cancellation_timeout set_use_snapshot_compression
datastream.stream_execution_environment StreamExecutionEnvironment: get_config get_execution_environment
    set_parallelism
"""

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
config = env.get_config()
print(isinstance(config, ExecutionConfig), config.get_parallelism(), config.get_max_parallelism())
print(config.is_closure_cleaner_enabled(), config.disable_closure_cleaner().is_closure_cleaner_enabled())
print(config.enable_closure_cleaner().is_closure_cleaner_enabled())
print(config.has_auto_generated_uids_enabled())
config.disable_auto_generated_uids()
print(config.has_auto_generated_uids_enabled())
config.enable_auto_generated_uids()
print(config.has_auto_generated_uids_enabled())
print(config.get_task_cancellation_interval(), config.get_task_cancellation_timeout())
config.set_task_cancellation_interval(1000).set_task_cancellation_timeout(3000)
print(config.get_task_cancellation_interval(), config.get_task_cancellation_timeout())
print(config.is_use_snapshot_compression())
config.set_use_snapshot_compression(True)
print(config.is_use_snapshot_compression())
print(
    config.get_auto_watermark_interval(),
    config.get_latency_tracking_interval(),
    config.is_object_reuse_enabled(),
)

other = StreamExecutionEnvironment.get_execution_environment().get_config()
again = env.get_config()
print(config == again, hash(config) == hash(again), config == other, config == 1)

first, second = Configuration(), Configuration()
first.set_string("a", "x").set_integer("b", 1)
second.set_integer("b", 1).set_string("a", "x")
print(first == second, hash(first) == hash(second), first == Configuration(), first == 1)
print(str(Configuration().set_string("a", "x")), str(Configuration()))
second.set_boolean("c", True).set_float("d", 1.5)
print(second == first, sorted(second.to_dict().items()))
