"""Apache Flink's keyed state API in Python, with PySpark underneath.

A program imports everything it needs from here. Each name is loaded on first use, so that a state slot,
which does not need Spark, does not spend time on importing it. Type checkers read ``__init__.pyi``.
"""

from __future__ import annotations

import importlib
from typing import Any

#: The public names by the module that has them. ``scripts/write_stub.py`` makes ``__init__.pyi`` of it.
_ROOMS: dict[str, tuple[str, ...]] = {
    "api.async_functions": (
        "AsyncFunction",
        "AsyncFunctionDescriptor",
    ),
    "api.async_retries": (
        "AsyncRetryPredicate",
        "AsyncRetryStrategy",
    ),
    "api.broadcast": (
        "BaseBroadcastProcessFunction",
        "BroadcastProcessFunction",
        "KeyedBroadcastProcessFunction",
    ),
    "api.checkpoint_storage": ("CheckpointStorage",),
    "api.checkpointed": (
        "CheckpointListener",
        "CheckpointedFunction",
        "FunctionInitializationContext",
        "FunctionSnapshotContext",
        "OperatorStateStore",
    ),
    "api.config_options": (
        "ConfigOption",
        "ConfigOptions",
    ),
    "api.configuration": ("Configuration",),
    "api.connected": (
        "CoFlatMapFunction",
        "CoMapFunction",
        "CoProcessFunction",
        "KeyedCoProcessFunction",
    ),
    "api.context": (
        "KeyedStateStore",
        "RuntimeContext",
    ),
    "api.continuous_triggers": (
        "ContinuousEventTimeTrigger",
        "ContinuousProcessingTimeTrigger",
    ),
    "api.descriptors": (
        "AggregatingStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "StateDescriptor",
        "ValueStateDescriptor",
    ),
    "api.encoder": ("Encoder",),
    "api.functions": (
        "AggregateFunction",
        "FilterFunction",
        "FlatMapFunction",
        "Function",
        "KeySelector",
        "KeyedProcessFunction",
        "MapFunction",
        "Partitioner",
        "ProcessFunction",
        "ReduceFunction",
    ),
    "api.job_id": ("JobID",),
    "api.metrics": (
        "Counter",
        "Distribution",
        "Meter",
        "Metric",
        "MetricGroup",
    ),
    "api.output_tag": ("OutputTag",),
    "api.row": (
        "Row",
        "RowKind",
    ),
    "api.serialization": (
        "ByteArraySchema",
        "DeserializationSchema",
        "RowFieldExtractorSchema",
        "SerializationSchema",
        "SimpleStringSchema",
    ),
    "api.serializer": ("TypeSerializer",),
    "api.session_windows": (
        "DynamicEventTimeSessionWindows",
        "DynamicProcessingTimeSessionWindows",
        "EventTimeSessionWindows",
        "ProcessingTimeSessionWindows",
        "SessionWindowTimeGapExtractor",
    ),
    "api.slot_sharing_group": (
        "MemorySize",
        "SlotSharingGroup",
    ),
    "api.state": (
        "AggregatingState",
        "AppendingState",
        "BroadcastState",
        "ListState",
        "MapState",
        "MergingState",
        "ReadOnlyBroadcastState",
        "ReducingState",
        "State",
        "ValueState",
    ),
    "api.state_backend": (
        "EmbeddedRocksDBStateBackend",
        "PredefinedOptions",
        "StateBackend",
    ),
    "api.time": (
        "Duration",
        "Instant",
        "Time",
    ),
    "api.timers": (
        "TimeDomain",
        "TimerService",
    ),
    "api.triggers": (
        "CountTrigger",
        "EventTimeTrigger",
        "NeverTrigger",
        "ProcessingTimeTrigger",
        "PurgingTrigger",
        "Trigger",
        "TriggerResult",
    ),
    "api.ttl": ("StateTtlConfig",),
    "api.types": (
        "TypeInformation",
        "Types",
    ),
    "api.values": ("Offset",),
    "api.watermark_strategy": (
        "TimestampAssigner",
        "WatermarkStrategy",
    ),
    "api.watermarks": ("MAX_WATERMARK",),
    "api.window_assigners": (
        "CountSlidingWindowAssigner",
        "CountTumblingWindowAssigner",
        "GlobalWindows",
        "MergingWindowAssigner",
        "SlidingEventTimeWindows",
        "SlidingProcessingTimeWindows",
        "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
        "WindowAssigner",
    ),
    "api.window_functions": (
        "AllWindowFunction",
        "ProcessAllWindowFunction",
        "ProcessWindowFunction",
        "WindowFunction",
    ),
    "api.windows": (
        "CountWindow",
        "CountWindowSerializer",
        "GlobalWindow",
        "TimeWindow",
        "TimeWindowSerializer",
        "Window",
    ),
    "backends.hash_map_state_backend": ("HashMapStateBackend",),
    "common": (
        "CompletableFuture",
        "RestartStrategyConfiguration",
    ),
    "datastream.async_data_stream": ("AsyncDataStream",),
    "errors": ("PyFlinkStateError",),
    "runtime.master": (
        "CheckpointStats",
        "EpochReport",
        "EpochStats",
        "JobDescription",
        "JobExecutionResult",
        "JobListener",
        "JobObserver",
    ),
    "runtime.program": (
        "AllWindowedStream",
        "BroadcastConnectedStream",
        "BroadcastStream",
        "CachedDataStream",
        "CloseableIterator",
        "ConnectedStreams",
        "DataStream",
        "DataStreamSink",
        "ExecutionConfig",
        "JobClient",
        "KeyState",
        "KeyedProcessQuery",
        "KeyedStep",
        "KeyedStream",
        "RuntimeExecutionMode",
        "StreamExecutionEnvironment",
        "WindowedStream",
        "keyed_map",
        "keyed_process",
        "keyed_process_queries",
    ),
    "runtime.settings": (
        "CheckpointConfig",
        "CheckpointingMode",
        "ExternalizedCheckpointRetention",
        "JobStatus",
        "RestartStrategies",
    ),
    "runtime.sinks": (
        "BucketAssigner",
        "FileSink",
        "OutputFileConfig",
        "ReplacingSink",
        "RollingPolicy",
        "RunAwareSink",
        "Sink",
        "SinkWriter",
    ),
    "runtime.sources": (
        "Available",
        "Epoch",
        "FileSource",
        "FileSourceBuilder",
        "NumberSequenceSource",
        "RddEpoch",
        "Reject",
        "RejectedRecord",
        "Source",
        "SplitEpoch",
        "StreamFormat",
        "check_position",
    ),
    "runtime.spark.workers": ("ship",),
    "runtime.storage": (
        "FileSystemCheckpointStorage",
        "JobManagerCheckpointStorage",
        "RunHistory",
    ),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_ROOM_OF)  # noqa: PLE0605 - derived, so that a name has one place


def __getattr__(name: str) -> Any:
    if name == "compiled":
        return importlib.import_module(f"{__name__}.backends.compiled").is_compiled()
    if name == "__version__":
        return importlib.import_module(f"{__name__}.version").VERSION
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
