"""What a user calls: environments, streams, DataFrames' ``keyed_process``, and the client of a job."""

from pyflinkstate.runtime.program.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from pyflinkstate.runtime.program.data_stream import DataStream, DataStreamSink, KeyedStream
from pyflinkstate.runtime.program.dataframes import KeyedProcessQuery, keyed_process, keyed_process_queries
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.program.execution_config import ExecutionConfig, RuntimeExecutionMode
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.program.job_results import CloseableIterator
from pyflinkstate.runtime.program.windowed_stream import AllWindowedStream, WindowedStream

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "EnvironmentSettings",
    "ExecutionConfig",
    "JobClient",
    "KeyedProcessQuery",
    "KeyedStream",
    "RuntimeExecutionMode",
    "StreamExecutionEnvironment",
    "WindowedStream",
    "keyed_process",
    "keyed_process_queries",
]
