"""Apache Flink's keyed state API in Python, with PySpark underneath.

A program imports everything it needs from here. Each name is loaded on first use, so that a state slot,
which does not need Spark, does not spend time on importing it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    #: Whether the core of the heap backend runs compiled.
    compiled: bool
    #: The version of the package.
    __version__: str
    from pyflinkstate.api.async_functions import AsyncFunction as AsyncFunction
    from pyflinkstate.api.async_functions import AsyncFunctionDescriptor as AsyncFunctionDescriptor
    from pyflinkstate.api.async_retries import AsyncRetryPredicate as AsyncRetryPredicate
    from pyflinkstate.api.async_retries import AsyncRetryStrategy as AsyncRetryStrategy
    from pyflinkstate.api.broadcast import BaseBroadcastProcessFunction as BaseBroadcastProcessFunction
    from pyflinkstate.api.broadcast import BroadcastProcessFunction as BroadcastProcessFunction
    from pyflinkstate.api.broadcast import KeyedBroadcastProcessFunction as KeyedBroadcastProcessFunction
    from pyflinkstate.api.checkpoint_storage import CheckpointStorage as CheckpointStorage
    from pyflinkstate.api.checkpointed import CheckpointedFunction as CheckpointedFunction
    from pyflinkstate.api.checkpointed import CheckpointListener as CheckpointListener
    from pyflinkstate.api.checkpointed import FunctionInitializationContext as FunctionInitializationContext
    from pyflinkstate.api.checkpointed import FunctionSnapshotContext as FunctionSnapshotContext
    from pyflinkstate.api.checkpointed import OperatorStateStore as OperatorStateStore
    from pyflinkstate.api.config_options import ConfigOption as ConfigOption
    from pyflinkstate.api.config_options import ConfigOptions as ConfigOptions
    from pyflinkstate.api.configuration import Configuration as Configuration
    from pyflinkstate.api.connected import CoFlatMapFunction as CoFlatMapFunction
    from pyflinkstate.api.connected import CoMapFunction as CoMapFunction
    from pyflinkstate.api.connected import CoProcessFunction as CoProcessFunction
    from pyflinkstate.api.connected import KeyedCoProcessFunction as KeyedCoProcessFunction
    from pyflinkstate.api.context import KeyedStateStore as KeyedStateStore
    from pyflinkstate.api.context import RuntimeContext as RuntimeContext
    from pyflinkstate.api.continuous_triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
    from pyflinkstate.api.continuous_triggers import (
        ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
    )
    from pyflinkstate.api.descriptors import AggregatingStateDescriptor as AggregatingStateDescriptor
    from pyflinkstate.api.descriptors import ListStateDescriptor as ListStateDescriptor
    from pyflinkstate.api.descriptors import MapStateDescriptor as MapStateDescriptor
    from pyflinkstate.api.descriptors import ReducingStateDescriptor as ReducingStateDescriptor
    from pyflinkstate.api.descriptors import StateDescriptor as StateDescriptor
    from pyflinkstate.api.descriptors import ValueStateDescriptor as ValueStateDescriptor
    from pyflinkstate.api.encoder import Encoder as Encoder
    from pyflinkstate.api.functions import AggregateFunction as AggregateFunction
    from pyflinkstate.api.functions import FilterFunction as FilterFunction
    from pyflinkstate.api.functions import FlatMapFunction as FlatMapFunction
    from pyflinkstate.api.functions import Function as Function
    from pyflinkstate.api.functions import KeyedProcessFunction as KeyedProcessFunction
    from pyflinkstate.api.functions import KeySelector as KeySelector
    from pyflinkstate.api.functions import MapFunction as MapFunction
    from pyflinkstate.api.functions import Partitioner as Partitioner
    from pyflinkstate.api.functions import ProcessFunction as ProcessFunction
    from pyflinkstate.api.functions import ReduceFunction as ReduceFunction
    from pyflinkstate.api.job_id import JobID as JobID
    from pyflinkstate.api.metrics import Counter as Counter
    from pyflinkstate.api.metrics import Distribution as Distribution
    from pyflinkstate.api.metrics import Meter as Meter
    from pyflinkstate.api.metrics import Metric as Metric
    from pyflinkstate.api.metrics import MetricGroup as MetricGroup
    from pyflinkstate.api.output_tag import OutputTag as OutputTag
    from pyflinkstate.api.row import Row as Row
    from pyflinkstate.api.row import RowKind as RowKind
    from pyflinkstate.api.serialization import ByteArraySchema as ByteArraySchema
    from pyflinkstate.api.serialization import DeserializationSchema as DeserializationSchema
    from pyflinkstate.api.serialization import RowFieldExtractorSchema as RowFieldExtractorSchema
    from pyflinkstate.api.serialization import SerializationSchema as SerializationSchema
    from pyflinkstate.api.serialization import SimpleStringSchema as SimpleStringSchema
    from pyflinkstate.api.serializer import TypeSerializer as TypeSerializer
    from pyflinkstate.api.session_windows import (
        DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
    )
    from pyflinkstate.api.session_windows import (
        DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
    )
    from pyflinkstate.api.session_windows import EventTimeSessionWindows as EventTimeSessionWindows
    from pyflinkstate.api.session_windows import ProcessingTimeSessionWindows as ProcessingTimeSessionWindows
    from pyflinkstate.api.session_windows import (
        SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
    )
    from pyflinkstate.api.slot_sharing_group import MemorySize as MemorySize
    from pyflinkstate.api.slot_sharing_group import SlotSharingGroup as SlotSharingGroup
    from pyflinkstate.api.state import AggregatingState as AggregatingState
    from pyflinkstate.api.state import AppendingState as AppendingState
    from pyflinkstate.api.state import BroadcastState as BroadcastState
    from pyflinkstate.api.state import ListState as ListState
    from pyflinkstate.api.state import MapState as MapState
    from pyflinkstate.api.state import MergingState as MergingState
    from pyflinkstate.api.state import ReadOnlyBroadcastState as ReadOnlyBroadcastState
    from pyflinkstate.api.state import ReducingState as ReducingState
    from pyflinkstate.api.state import State as State
    from pyflinkstate.api.state import ValueState as ValueState
    from pyflinkstate.api.state_backend import EmbeddedRocksDBStateBackend as EmbeddedRocksDBStateBackend
    from pyflinkstate.api.state_backend import PredefinedOptions as PredefinedOptions
    from pyflinkstate.api.state_backend import StateBackend as StateBackend
    from pyflinkstate.api.time import Duration as Duration
    from pyflinkstate.api.time import Instant as Instant
    from pyflinkstate.api.time import Time as Time
    from pyflinkstate.api.timers import TimeDomain as TimeDomain
    from pyflinkstate.api.timers import TimerService as TimerService
    from pyflinkstate.api.triggers import CountTrigger as CountTrigger
    from pyflinkstate.api.triggers import EventTimeTrigger as EventTimeTrigger
    from pyflinkstate.api.triggers import NeverTrigger as NeverTrigger
    from pyflinkstate.api.triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
    from pyflinkstate.api.triggers import PurgingTrigger as PurgingTrigger
    from pyflinkstate.api.triggers import Trigger as Trigger
    from pyflinkstate.api.triggers import TriggerResult as TriggerResult
    from pyflinkstate.api.ttl import StateTtlConfig as StateTtlConfig
    from pyflinkstate.api.types import TypeInformation as TypeInformation
    from pyflinkstate.api.types import Types as Types
    from pyflinkstate.api.values import Offset as Offset
    from pyflinkstate.api.watermark_strategy import TimestampAssigner as TimestampAssigner
    from pyflinkstate.api.watermark_strategy import WatermarkStrategy as WatermarkStrategy
    from pyflinkstate.api.watermarks import MAX_WATERMARK as MAX_WATERMARK
    from pyflinkstate.api.window_assigners import CountSlidingWindowAssigner as CountSlidingWindowAssigner
    from pyflinkstate.api.window_assigners import CountTumblingWindowAssigner as CountTumblingWindowAssigner
    from pyflinkstate.api.window_assigners import GlobalWindows as GlobalWindows
    from pyflinkstate.api.window_assigners import MergingWindowAssigner as MergingWindowAssigner
    from pyflinkstate.api.window_assigners import SlidingEventTimeWindows as SlidingEventTimeWindows
    from pyflinkstate.api.window_assigners import SlidingProcessingTimeWindows as SlidingProcessingTimeWindows
    from pyflinkstate.api.window_assigners import TumblingEventTimeWindows as TumblingEventTimeWindows
    from pyflinkstate.api.window_assigners import (
        TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
    )
    from pyflinkstate.api.window_assigners import WindowAssigner as WindowAssigner
    from pyflinkstate.api.window_functions import AllWindowFunction as AllWindowFunction
    from pyflinkstate.api.window_functions import ProcessAllWindowFunction as ProcessAllWindowFunction
    from pyflinkstate.api.window_functions import ProcessWindowFunction as ProcessWindowFunction
    from pyflinkstate.api.window_functions import WindowFunction as WindowFunction
    from pyflinkstate.api.windows import CountWindow as CountWindow
    from pyflinkstate.api.windows import CountWindowSerializer as CountWindowSerializer
    from pyflinkstate.api.windows import GlobalWindow as GlobalWindow
    from pyflinkstate.api.windows import TimeWindow as TimeWindow
    from pyflinkstate.api.windows import TimeWindowSerializer as TimeWindowSerializer
    from pyflinkstate.api.windows import Window as Window
    from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend as HashMapStateBackend
    from pyflinkstate.common import CompletableFuture as CompletableFuture
    from pyflinkstate.common import RestartStrategyConfiguration as RestartStrategyConfiguration
    from pyflinkstate.datastream.async_data_stream import AsyncDataStream as AsyncDataStream
    from pyflinkstate.errors import PyFlinkStateError as PyFlinkStateError
    from pyflinkstate.runtime.checkpoints import CheckpointStats as CheckpointStats
    from pyflinkstate.runtime.job import EpochReport as EpochReport
    from pyflinkstate.runtime.job import EpochStats as EpochStats
    from pyflinkstate.runtime.job import JobDescription as JobDescription
    from pyflinkstate.runtime.job import JobExecutionResult as JobExecutionResult
    from pyflinkstate.runtime.job import JobListener as JobListener
    from pyflinkstate.runtime.job import JobObserver as JobObserver
    from pyflinkstate.runtime.program import AllWindowedStream as AllWindowedStream
    from pyflinkstate.runtime.program import BroadcastConnectedStream as BroadcastConnectedStream
    from pyflinkstate.runtime.program import BroadcastStream as BroadcastStream
    from pyflinkstate.runtime.program import CachedDataStream as CachedDataStream
    from pyflinkstate.runtime.program import CloseableIterator as CloseableIterator
    from pyflinkstate.runtime.program import ConnectedStreams as ConnectedStreams
    from pyflinkstate.runtime.program import DataStream as DataStream
    from pyflinkstate.runtime.program import DataStreamSink as DataStreamSink
    from pyflinkstate.runtime.program import ExecutionConfig as ExecutionConfig
    from pyflinkstate.runtime.program import JobClient as JobClient
    from pyflinkstate.runtime.program import KeyedProcessQuery as KeyedProcessQuery
    from pyflinkstate.runtime.program import KeyedStep as KeyedStep
    from pyflinkstate.runtime.program import KeyedStream as KeyedStream
    from pyflinkstate.runtime.program import KeyState as KeyState
    from pyflinkstate.runtime.program import RuntimeExecutionMode as RuntimeExecutionMode
    from pyflinkstate.runtime.program import StreamExecutionEnvironment as StreamExecutionEnvironment
    from pyflinkstate.runtime.program import WindowedStream as WindowedStream
    from pyflinkstate.runtime.program import keyed_map as keyed_map
    from pyflinkstate.runtime.program import keyed_process as keyed_process
    from pyflinkstate.runtime.program import keyed_process_queries as keyed_process_queries
    from pyflinkstate.runtime.settings import CheckpointConfig as CheckpointConfig
    from pyflinkstate.runtime.settings import CheckpointingMode as CheckpointingMode
    from pyflinkstate.runtime.settings import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from pyflinkstate.runtime.settings import JobStatus as JobStatus
    from pyflinkstate.runtime.settings import RestartStrategies as RestartStrategies
    from pyflinkstate.runtime.sinks import BucketAssigner as BucketAssigner
    from pyflinkstate.runtime.sinks import FileSink as FileSink
    from pyflinkstate.runtime.sinks import OutputFileConfig as OutputFileConfig
    from pyflinkstate.runtime.sinks import ReplacingSink as ReplacingSink
    from pyflinkstate.runtime.sinks import RollingPolicy as RollingPolicy
    from pyflinkstate.runtime.sinks import RunAwareSink as RunAwareSink
    from pyflinkstate.runtime.sinks import Sink as Sink
    from pyflinkstate.runtime.sinks import SinkWriter as SinkWriter
    from pyflinkstate.runtime.sources import Available as Available
    from pyflinkstate.runtime.sources import Epoch as Epoch
    from pyflinkstate.runtime.sources import FileSource as FileSource
    from pyflinkstate.runtime.sources import FileSourceBuilder as FileSourceBuilder
    from pyflinkstate.runtime.sources import NumberSequenceSource as NumberSequenceSource
    from pyflinkstate.runtime.sources import RddEpoch as RddEpoch
    from pyflinkstate.runtime.sources import Reject as Reject
    from pyflinkstate.runtime.sources import RejectedRecord as RejectedRecord
    from pyflinkstate.runtime.sources import Source as Source
    from pyflinkstate.runtime.sources import SplitEpoch as SplitEpoch
    from pyflinkstate.runtime.sources import StreamFormat as StreamFormat
    from pyflinkstate.runtime.sources import check_position as check_position
    from pyflinkstate.runtime.spark.own_package import ship as ship
    from pyflinkstate.runtime.storage import FileSystemCheckpointStorage as FileSystemCheckpointStorage
    from pyflinkstate.runtime.storage import JobManagerCheckpointStorage as JobManagerCheckpointStorage
    from pyflinkstate.runtime.storage import RunHistory as RunHistory

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
    "runtime.checkpoints": ("CheckpointStats",),
    "runtime.job": (
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
    "runtime.spark.own_package": ("ship",),
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
