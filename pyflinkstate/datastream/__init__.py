"""The names of ``pyflink.datastream``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyflinkstate.api.async_functions import (
    AsyncFunction,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from pyflinkstate.api.context import (
    KeyedStateStore,
    RuntimeContext,
    TimeDomain,
    TimerService,
)
from pyflinkstate.api.functions import (
    AggregateFunction,
    AllWindowFunction,
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessAllWindowFunction,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from pyflinkstate.api.output_tag import (
    OutputTag,
)
from pyflinkstate.api.slot_sharing_group import MemorySize, SlotSharingGroup
from pyflinkstate.api.state_backend import (
    CheckpointStorage,
    EmbeddedRocksDBStateBackend,
    PredefinedOptions,
    StateBackend,
)
from pyflinkstate.api.triggers import (
    Trigger,
    TriggerResult,
)
from pyflinkstate.api.window_assigners import (
    MergingWindowAssigner,
    WindowAssigner,
)
from pyflinkstate.api.windows import (
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
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


def __getattr__(name: str) -> Any:
    """Load the environment on first use: a state slot does not need Spark."""
    if name == "StreamExecutionEnvironment":
        from pyflinkstate.runtime.program import StreamExecutionEnvironment

        return StreamExecutionEnvironment
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
