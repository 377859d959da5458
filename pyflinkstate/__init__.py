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
    from pyflinkstate.api.checkpointed import CheckpointedFunction as CheckpointedFunction
    from pyflinkstate.api.checkpointed import CheckpointListener as CheckpointListener
    from pyflinkstate.api.checkpointed import FunctionInitializationContext as FunctionInitializationContext
    from pyflinkstate.api.checkpointed import FunctionSnapshotContext as FunctionSnapshotContext
    from pyflinkstate.api.checkpointed import OperatorStateStore as OperatorStateStore
    from pyflinkstate.api.context import RuntimeContext as RuntimeContext
    from pyflinkstate.api.descriptors import AggregatingStateDescriptor as AggregatingStateDescriptor
    from pyflinkstate.api.descriptors import ListStateDescriptor as ListStateDescriptor
    from pyflinkstate.api.descriptors import MapStateDescriptor as MapStateDescriptor
    from pyflinkstate.api.descriptors import ReducingStateDescriptor as ReducingStateDescriptor
    from pyflinkstate.api.descriptors import ValueStateDescriptor as ValueStateDescriptor
    from pyflinkstate.api.functions import AggregateFunction as AggregateFunction
    from pyflinkstate.api.functions import FilterFunction as FilterFunction
    from pyflinkstate.api.functions import FlatMapFunction as FlatMapFunction
    from pyflinkstate.api.functions import KeyedProcessFunction as KeyedProcessFunction
    from pyflinkstate.api.functions import KeySelector as KeySelector
    from pyflinkstate.api.functions import MapFunction as MapFunction
    from pyflinkstate.api.functions import ProcessFunction as ProcessFunction
    from pyflinkstate.api.functions import ReduceFunction as ReduceFunction
    from pyflinkstate.api.metrics import MetricGroup as MetricGroup
    from pyflinkstate.api.row import Row as Row
    from pyflinkstate.api.row import RowKind as RowKind
    from pyflinkstate.api.state import AggregatingState as AggregatingState
    from pyflinkstate.api.state import BroadcastState as BroadcastState
    from pyflinkstate.api.state import ListState as ListState
    from pyflinkstate.api.state import MapState as MapState
    from pyflinkstate.api.state import ReadOnlyBroadcastState as ReadOnlyBroadcastState
    from pyflinkstate.api.state import ReducingState as ReducingState
    from pyflinkstate.api.state import ValueState as ValueState
    from pyflinkstate.api.time import Duration as Duration
    from pyflinkstate.api.time import Instant as Instant
    from pyflinkstate.api.time import Time as Time
    from pyflinkstate.api.timers import TimeDomain as TimeDomain
    from pyflinkstate.api.timers import TimerService as TimerService
    from pyflinkstate.api.ttl import StateTtlConfig as StateTtlConfig
    from pyflinkstate.api.types import TypeInformation as TypeInformation
    from pyflinkstate.api.types import Types as Types
    from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend as HashMapStateBackend
    from pyflinkstate.errors import PyFlinkStateError as PyFlinkStateError
    from pyflinkstate.runtime.checkpoints import CheckpointStats as CheckpointStats
    from pyflinkstate.runtime.job import EpochStats as EpochStats
    from pyflinkstate.runtime.job import JobExecutionResult as JobExecutionResult
    from pyflinkstate.runtime.job import JobListener as JobListener
    from pyflinkstate.runtime.program import DataStream as DataStream
    from pyflinkstate.runtime.program import JobClient as JobClient
    from pyflinkstate.runtime.program import KeyedProcessQuery as KeyedProcessQuery
    from pyflinkstate.runtime.program import KeyedStream as KeyedStream
    from pyflinkstate.runtime.program import StreamExecutionEnvironment as StreamExecutionEnvironment
    from pyflinkstate.runtime.program import keyed_process as keyed_process
    from pyflinkstate.runtime.program import keyed_process_queries as keyed_process_queries
    from pyflinkstate.runtime.settings import CheckpointConfig as CheckpointConfig
    from pyflinkstate.runtime.settings import CheckpointingMode as CheckpointingMode
    from pyflinkstate.runtime.settings import (
        ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
    )
    from pyflinkstate.runtime.settings import JobStatus as JobStatus
    from pyflinkstate.runtime.settings import RestartStrategies as RestartStrategies
    from pyflinkstate.runtime.sinks import FileSink as FileSink
    from pyflinkstate.runtime.sources import Available as Available
    from pyflinkstate.runtime.sources import RddEpoch as RddEpoch
    from pyflinkstate.runtime.sources import Source as Source
    from pyflinkstate.runtime.sources import SplitEpoch as SplitEpoch
    from pyflinkstate.runtime.storage import FileSystemCheckpointStorage as FileSystemCheckpointStorage

_ROOMS: dict[str, tuple[str, ...]] = {
    "api.checkpointed": (
        "CheckpointListener",
        "CheckpointedFunction",
        "FunctionInitializationContext",
        "FunctionSnapshotContext",
        "OperatorStateStore",
    ),
    "api.context": ("RuntimeContext",),
    "api.descriptors": (
        "AggregatingStateDescriptor",
        "ListStateDescriptor",
        "MapStateDescriptor",
        "ReducingStateDescriptor",
        "ValueStateDescriptor",
    ),
    "api.functions": (
        "AggregateFunction",
        "FilterFunction",
        "FlatMapFunction",
        "KeySelector",
        "KeyedProcessFunction",
        "MapFunction",
        "ProcessFunction",
        "ReduceFunction",
    ),
    "api.metrics": ("MetricGroup",),
    "api.row": (
        "Row",
        "RowKind",
    ),
    "api.state": (
        "AggregatingState",
        "BroadcastState",
        "ListState",
        "MapState",
        "ReadOnlyBroadcastState",
        "ReducingState",
        "ValueState",
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
    "api.ttl": ("StateTtlConfig",),
    "api.types": (
        "TypeInformation",
        "Types",
    ),
    "backends.hash_map_state_backend": ("HashMapStateBackend",),
    "errors": ("PyFlinkStateError",),
    "runtime.job": (
        "EpochStats",
        "JobExecutionResult",
        "JobListener",
    ),
    "runtime.checkpoints": ("CheckpointStats",),
    "runtime.program": (
        "DataStream",
        "JobClient",
        "KeyedProcessQuery",
        "KeyedStream",
        "StreamExecutionEnvironment",
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
    "runtime.sinks": ("FileSink",),
    "runtime.sources": (
        "Available",
        "RddEpoch",
        "Source",
        "SplitEpoch",
    ),
    "runtime.storage": ("FileSystemCheckpointStorage",),
}
_ROOM_OF = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_ROOM_OF)  # noqa: PLE0605 - derived, so that a name has one place


def __getattr__(name: str) -> Any:
    if name == "compiled":
        return importlib.import_module(f"{__name__}.backends.compiled").is_compiled()
    if name not in _ROOM_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ROOM_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
