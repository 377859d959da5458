"""The names of ``pyflink.datastream``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflinkstate.api import (
    AggregateFunction,
    AllWindowFunction,
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CheckpointStorage,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    CountWindow,
    EmbeddedRocksDBStateBackend,
    FilterFunction,
    FlatMapFunction,
    Function,
    GlobalWindow,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeyedStateStore,
    KeySelector,
    MapFunction,
    MemorySize,
    MergingWindowAssigner,
    OutputTag,
    Partitioner,
    PredefinedOptions,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    SlotSharingGroup,
    StateBackend,
    TimeDomain,
    TimerService,
    TimeWindow,
    Trigger,
    TriggerResult,
    Window,
    WindowAssigner,
    WindowFunction,
)
from pyflinkstate.backends.hash_map_state_backend import (
    HashMapStateBackend,
)
from pyflinkstate.datastream.async_data_stream import AsyncDataStream
from pyflinkstate.runtime.program import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    CachedDataStream,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    RuntimeExecutionMode,
    WindowedStream,
)
from pyflinkstate.runtime.settings import CheckpointConfig, CheckpointingMode, ExternalizedCheckpointRetention
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage

if TYPE_CHECKING:
    from pyflinkstate.runtime.program import StreamExecutionEnvironment

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AllWindowedStream",
    "AsyncDataStream",
    "AsyncFunction",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastConnectedStream",
    "BroadcastProcessFunction",
    "BroadcastStream",
    "CachedDataStream",
    "CheckpointConfig",
    "CheckpointStorage",
    "CheckpointingMode",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "ConnectedStreams",
    "CountWindow",
    "DataStream",
    "DataStreamSink",
    "EmbeddedRocksDBStateBackend",
    "ExternalizedCheckpointRetention",
    "FileSystemCheckpointStorage",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "GlobalWindow",
    "HashMapStateBackend",
    "JobManagerCheckpointStorage",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "KeyedStream",
    "MapFunction",
    "MemorySize",
    "MergingWindowAssigner",
    "OutputTag",
    "Partitioner",
    "PredefinedOptions",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "RuntimeExecutionMode",
    "SlotSharingGroup",
    "StateBackend",
    "StreamExecutionEnvironment",
    "TimeDomain",
    "TimeWindow",
    "TimerService",
    "Trigger",
    "TriggerResult",
    "Window",
    "WindowAssigner",
    "WindowFunction",
    "WindowedStream",
]


def __getattr__(name: str) -> object:
    """Load the environment on first use: a state slot does not need Spark."""
    if name == "StreamExecutionEnvironment":
        from pyflinkstate.runtime.program import StreamExecutionEnvironment

        return StreamExecutionEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
