"""Names of PyFlink's that are left out on purpose, each with its reason. A class stands for its members."""

_JVM = "a switch of the JVM's serializers or class loading"
_ROCKS = "state is kept in memory; there is no RocksDB"
_HANDLE = "a handle on a Java object; RestartStrategies makes plain values here"
_UNALIGNED = "there are no unaligned checkpoints: the end of an epoch aligns barriers"
_FILES = "Spark ships files: spark.submit.pyFiles, spark.archives"
_INTERNAL = "PyFlink makes it itself, and so does this package, of other things"

_EXECUTION_CONFIG = [
    "disable_auto_generated_uids",
    "disable_closure_cleaner",
    "disable_force_avro",
    "disable_force_kryo",
    "disable_generic_types",
    "enable_auto_generated_uids",
    "enable_closure_cleaner",
    "enable_force_avro",
    "enable_force_kryo",
    "enable_generic_types",
    "get_default_kryo_serializer_classes",
    "get_registered_kryo_types",
    "get_registered_pojo_types",
    "has_auto_generated_uids_enabled",
    "has_generic_types_disabled",
    "is_closure_cleaner_enabled",
    "is_force_avro_enabled",
    "is_force_kryo_enabled",
]
_CANCELLATION = [
    "get_task_cancellation_interval",
    "get_task_cancellation_timeout",
    "set_task_cancellation_interval",
    "set_task_cancellation_timeout",
]
_CONFIGURATIONS = ["FailureRate", "Fallback", "FixedDelay", "No"]

LEFT_OUT: dict[str, str] = {
    **{f"common.execution_config.ExecutionConfig.{name}": _JVM for name in _EXECUTION_CONFIG},
    **{f"common.execution_config.ExecutionConfig.{name}": "Spark ends its tasks" for name in _CANCELLATION},
    "common.execution_config.ExecutionConfig.is_use_snapshot_compression": (
        "HashMapStateBackend(snapshot_compression=...)"
    ),
    "common.execution_config.ExecutionConfig.set_use_snapshot_compression": (
        "HashMapStateBackend(snapshot_compression=...)"
    ),
    **{
        f"common.restart_strategy.RestartStrategies.{name}RestartStrategyConfiguration": _HANDLE
        for name in _CONFIGURATIONS
    },
    "common.restart_strategy.RestartStrategies.fall_back_restart": "there is no cluster with one of its own",
    "common.restart_strategy.RestartStrategyConfiguration": _HANDLE,
    "datastream.checkpoint_config.CheckpointConfig.get_aligned_checkpoint_timeout": _UNALIGNED,
    "datastream.checkpoint_config.CheckpointConfig.get_alignment_timeout": _UNALIGNED,
    "datastream.checkpoint_config.CheckpointConfig.set_aligned_checkpoint_timeout": _UNALIGNED,
    "datastream.checkpoint_config.CheckpointConfig.set_alignment_timeout": _UNALIGNED,
    "datastream.checkpoint_config.CheckpointConfig.set_force_unaligned_checkpoints": _UNALIGNED,
    "datastream.checkpoint_storage.CheckpointStorage": "there is one storage: FileSystemCheckpointStorage",
    "datastream.checkpoint_storage.FileSystemCheckpointStorage.get_savepoint_path": (
        "savepoints go where set_default_savepoint_directory() says"
    ),
    "datastream.data_stream.CloseableIterator.__init__": _INTERNAL,
    "datastream.data_stream.DataStream.add_sink": "sinks of the JVM; sink_to() takes those of this package",
    "datastream.data_stream.DataStream.cache": "Table API: to_rdd() or to_dataframe(), then cache()",
    "datastream.data_stream.KeyedStream.AccumulateType": _INTERNAL,
    "datastream.data_stream.KeyedStream.__init__": _INTERNAL,
    "datastream.data_stream.KeyedStream.add_sink": "sinks of the JVM; sink_to() takes those of this package",
    "datastream.data_stream.KeyedStream.cache": "Table API: to_rdd() or to_dataframe(), then cache()",
    "datastream.state.StateDescriptor.__init__": "the base of five, which have their own types",
    "datastream.state_backend.EmbeddedRocksDBStateBackend": _ROCKS,
    "datastream.state_backend.StateBackend": "there is one backend: HashMapStateBackend",
    "datastream.stream_execution_environment.StreamExecutionEnvironment.__init__": "takes a Spark session",
    "datastream.stream_execution_environment.StreamExecutionEnvironment.add_classpaths": _JVM,
    "datastream.stream_execution_environment.StreamExecutionEnvironment.add_python_archive": _FILES,
    "datastream.stream_execution_environment.StreamExecutionEnvironment.add_python_file": _FILES,
    "datastream.stream_execution_environment.StreamExecutionEnvironment.add_source": (
        "sources of the JVM; from_source() takes those of this package"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.create_input": (
        "input formats of the JVM"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.enable_changelog_state_backend": (
        "incremental checkpoints write changes: CheckpointConfig.enable_incremental_checkpoints()"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.get_execution_plan": (
        "Flink's JSON of a plan"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.is_changelog_state_backend_enabled": (
        "see enable_changelog_state_backend"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.register_cached_file": _FILES,
    "datastream.stream_execution_environment.StreamExecutionEnvironment.set_python_executable": (
        "Spark starts the workers: PYSPARK_PYTHON"
    ),
    "datastream.stream_execution_environment.StreamExecutionEnvironment.set_python_requirements": _FILES,
    "datastream.window.Min": "a helper of PyFlink's triggers",
}
