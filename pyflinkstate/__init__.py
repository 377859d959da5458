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
        "AsyncRetryPredicate",
        "AsyncRetryStrategy",
    ),
    "api.configuration": (
        "ConfigOption",
        "ConfigOptions",
        "Configuration",
    ),
    "api.context": (
        "CheckpointListener",
        "CheckpointedFunction",
        "FunctionInitializationContext",
        "FunctionSnapshotContext",
        "KeyedStateStore",
        "OperatorStateStore",
        "RuntimeContext",
        "TimeDomain",
        "TimerService",
    ),
    "api.functions": (
        "AggregateFunction",
        "AllWindowFunction",
        "BaseBroadcastProcessFunction",
        "BroadcastProcessFunction",
        "CoFlatMapFunction",
        "CoMapFunction",
        "CoProcessFunction",
        "FilterFunction",
        "FlatMapFunction",
        "Function",
        "KeySelector",
        "KeyedBroadcastProcessFunction",
        "KeyedCoProcessFunction",
        "KeyedProcessFunction",
        "MapFunction",
        "Partitioner",
        "ProcessAllWindowFunction",
        "ProcessFunction",
        "ProcessWindowFunction",
        "ReduceFunction",
        "WindowFunction",
    ),
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
        "Encoder",
        "RowFieldExtractorSchema",
        "SerializationSchema",
        "SimpleStringSchema",
        "TypeSerializer",
    ),
    "api.slot_sharing_group": (
        "MemorySize",
        "SlotSharingGroup",
    ),
    "api.state": (
        "AggregatingState",
        "AggregatingStateDescriptor",
        "AppendingState",
        "BroadcastState",
        "ListState",
        "ListStateDescriptor",
        "MapState",
        "MapStateDescriptor",
        "MergingState",
        "ReadOnlyBroadcastState",
        "ReducingState",
        "ReducingStateDescriptor",
        "State",
        "StateDescriptor",
        "ValueState",
        "ValueStateDescriptor",
    ),
    "api.state_backend": (
        "CheckpointStorage",
        "EmbeddedRocksDBStateBackend",
        "PredefinedOptions",
        "StateBackend",
    ),
    "api.time": (
        "Duration",
        "Instant",
        "MAX_WATERMARK",
        "Time",
        "TimestampAssigner",
        "WatermarkStrategy",
    ),
    "api.triggers": (
        "ContinuousEventTimeTrigger",
        "ContinuousProcessingTimeTrigger",
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
    "api.values": (
        "JobID",
        "Offset",
    ),
    "api.window_assigners": (
        "CountSlidingWindowAssigner",
        "CountTumblingWindowAssigner",
        "DynamicEventTimeSessionWindows",
        "DynamicProcessingTimeSessionWindows",
        "EventTimeSessionWindows",
        "GlobalWindows",
        "MergingWindowAssigner",
        "ProcessingTimeSessionWindows",
        "SessionWindowTimeGapExtractor",
        "SlidingEventTimeWindows",
        "SlidingProcessingTimeWindows",
        "TumblingEventTimeWindows",
        "TumblingProcessingTimeWindows",
        "WindowAssigner",
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
