"""What users call: environments, streams, ``keyed_process`` for DataFrames, and the client of a job.

Modules that need PySpark are loaded on first use, as the harnesses use streams without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyflinkstate.doors import on_first_use
from pyflinkstate.runtime.program.connected_streams import (
    BroadcastConnectedStream as BroadcastConnectedStream,
    BroadcastStream as BroadcastStream,
    ConnectedStreams as ConnectedStreams,
)
from pyflinkstate.runtime.program.data_stream import (
    CachedDataStream as CachedDataStream,
    DataStream as DataStream,
    DataStreamSink as DataStreamSink,
    node_of as node_of,
)
from pyflinkstate.runtime.program.environment_settings import (
    EnvironmentSettings as EnvironmentSettings,
    ExecutionConfig as ExecutionConfig,
    RuntimeExecutionMode as RuntimeExecutionMode,
)
from pyflinkstate.runtime.program.job_client import (
    CloseableIterator as CloseableIterator,
    JobClient as JobClient,
)
from pyflinkstate.runtime.program.keyed_stream import (
    AllWindowedStream as AllWindowedStream,
    KeyedStream as KeyedStream,
    WindowedStream as WindowedStream,
)
from pyflinkstate.runtime.program.user_functions import type_of as type_of

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.dataframes import (
        KeyedProcessQuery as KeyedProcessQuery,
        KeyedStep as KeyedStep,
        KeyState as KeyState,
        keyed_map as keyed_map,
        keyed_process as keyed_process,
        keyed_process_queries as keyed_process_queries,
    )
    from pyflinkstate.runtime.program.environment import (
        StreamExecutionEnvironment as StreamExecutionEnvironment,
    )


__getattr__ = on_first_use(
    __name__,
    {
        "KeyState": "dataframes",
        "KeyedProcessQuery": "dataframes",
        "KeyedStep": "dataframes",
        "StreamExecutionEnvironment": "environment",
        "keyed_map": "dataframes",
        "keyed_process": "dataframes",
        "keyed_process_queries": "dataframes",
    },
)
