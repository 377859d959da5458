"""Where checkpoints go, how state is kept, and what else a program says about checkpoints."""

from pyflink.common import Duration, Types
from pyflink.datastream import (
    CheckpointingMode,
    CheckpointStorage,
    EmbeddedRocksDBStateBackend,
    FileSystemCheckpointStorage,
    HashMapStateBackend,
    JobManagerCheckpointStorage,
    PredefinedOptions,
    StateBackend,
    StreamExecutionEnvironment,
)
from pyflink.datastream.externalized_checkpoint_retention import ExternalizedCheckpointRetention

COVERS = """
common.time Duration: of_millis of_minutes of_seconds
common.typeinfo Types: INT
datastream.checkpoint_config CheckpointConfig: disable_unaligned_checkpoints enable_unaligned_checkpoints
    get_aligned_checkpoint_timeout get_alignment_timeout get_checkpointing_mode
    is_force_unaligned_checkpoints is_unaligned_checkpoints_enabled set_alignment_timeout
    set_checkpointing_mode set_externalized_checkpoint_retention set_force_unaligned_checkpoints
datastream.checkpoint_storage CheckpointStorage
datastream.checkpoint_storage FileSystemCheckpointStorage: MAX_FILE_STATE_THRESHOLD get_checkpoint_path
    get_min_file_size_threshold get_savepoint_path get_write_buffer_size
datastream.checkpoint_storage JobManagerCheckpointStorage: get_checkpoint_path get_max_state_size
    get_savepoint_path
datastream.checkpointing_mode CheckpointingMode: AT_LEAST_ONCE EXACTLY_ONCE
datastream.externalized_checkpoint_retention ExternalizedCheckpointRetention: DELETE_ON_CANCELLATION
datastream.state_backend EmbeddedRocksDBStateBackend: get_db_storage_paths get_number_of_transfer_threads
    get_options get_predefined_options is_incremental_checkpoints_enabled set_db_storage_paths
    set_number_of_transfer_threads set_predefined_options
datastream.state_backend HashMapStateBackend
datastream.state_backend PredefinedOptions: FLASH_SSD_OPTIMIZED
datastream.state_backend StateBackend
datastream.stream_execution_environment StreamExecutionEnvironment: enable_checkpointing execute
    from_collection get_checkpoint_config get_checkpointing_consistency_mode get_checkpointing_mode
    get_execution_environment is_force_unaligned_checkpoints is_unaligned_checkpoints_enabled
    set_parallelism
"""

files = FileSystemCheckpointStorage("file:///tmp/checkpoints", None, -1)
print(files.get_checkpoint_path().split(":")[-1].lstrip("/"), files.get_savepoint_path())
print(files.get_min_file_size_threshold(), files.get_write_buffer_size(), files.MAX_FILE_STATE_THRESHOLD)
files = FileSystemCheckpointStorage("file:///tmp/checkpoints", 100, 8192)
print(files.get_min_file_size_threshold(), files.get_write_buffer_size())
memory = JobManagerCheckpointStorage()
print(memory.get_checkpoint_path(), memory.get_max_state_size(), memory.get_savepoint_path())
print(JobManagerCheckpointStorage(max_state_size=100).get_max_state_size())
print(isinstance(files, CheckpointStorage), isinstance(memory, CheckpointStorage))

rocks = EmbeddedRocksDBStateBackend(True)
print(
    rocks.is_incremental_checkpoints_enabled(),
    EmbeddedRocksDBStateBackend().is_incremental_checkpoints_enabled(),
)
print(isinstance(rocks, StateBackend), isinstance(HashMapStateBackend(), StateBackend))
print(rocks.get_predefined_options(), rocks.get_options(), rocks.get_number_of_transfer_threads())
rocks.set_predefined_options(PredefinedOptions.FLASH_SSD_OPTIMIZED)
rocks.set_db_storage_paths("/tmp/one", "/tmp/two")
rocks.set_number_of_transfer_threads(3)
print(rocks.get_predefined_options(), [path.split(":")[-1] for path in rocks.get_db_storage_paths()])
print(rocks.get_number_of_transfer_threads())

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE)
config = env.get_checkpoint_config()
print(config.get_checkpointing_mode(), env.get_checkpointing_mode(), env.get_checkpointing_consistency_mode())
print(config.get_alignment_timeout() == Duration.of_millis(0), config.is_unaligned_checkpoints_enabled())
config.set_alignment_timeout(Duration.of_minutes(1))
print(config.get_aligned_checkpoint_timeout() == Duration.of_seconds(60))
config.set_checkpointing_mode(CheckpointingMode.EXACTLY_ONCE)
config.enable_unaligned_checkpoints()
config.set_force_unaligned_checkpoints()
print(config.is_unaligned_checkpoints_enabled(), config.is_force_unaligned_checkpoints())
print(env.is_unaligned_checkpoints_enabled(), env.is_force_unaligned_checkpoints())
config.disable_unaligned_checkpoints()
config.set_force_unaligned_checkpoints(False)
print(config.is_unaligned_checkpoints_enabled(), config.is_force_unaligned_checkpoints())
config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE)
config.set_externalized_checkpoint_retention(ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION)
env.from_collection([1, 2, 3], Types.INT()).key_by(lambda n: n % 2).sum(0).print()
env.execute()
