"""What users call: environments, streams, ``keyed_process`` for DataFrames, and the client of a job.

Modules that need PySpark are loaded on first use, as the harnesses use streams without it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from pyflinkstate.runtime.program.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from pyflinkstate.runtime.program.data_stream import CachedDataStream, DataStream, DataStreamSink
from pyflinkstate.runtime.program.environment_settings import (
    EnvironmentSettings,
    ExecutionConfig,
    RuntimeExecutionMode,
)
from pyflinkstate.runtime.program.job_client import CloseableIterator, JobClient
from pyflinkstate.runtime.program.keyed_stream import AllWindowedStream, KeyedStream, WindowedStream

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.dataframes import (
        KeyedProcessQuery,
        KeyedStep,
        KeyState,
        keyed_map,
        keyed_process,
        keyed_process_queries,
    )
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "EnvironmentSettings",
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
]

_ON_SPARK = {
    "KeyState": "dataframes",
    "KeyedProcessQuery": "dataframes",
    "KeyedStep": "dataframes",
    "StreamExecutionEnvironment": "environment",
    "keyed_map": "dataframes",
    "keyed_process": "dataframes",
    "keyed_process_queries": "dataframes",
}


def __getattr__(name: str) -> object:
    if name not in _ON_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_ON_SPARK[name]}"), name)
    globals()[name] = value
    return value
