"""PyFlink's ``pyflink.datastream.data_stream``."""

from __future__ import annotations

from pyflinkstate.runtime.connected_streams import (
    BroadcastConnectedStream,
    BroadcastStream,
    ConnectedStreams,
)
from pyflinkstate.runtime.data_stream import (
    DataStream,
    DataStreamSink,
    KeyedStream,
)
from pyflinkstate.runtime.job_results import CloseableIterator
from pyflinkstate.runtime.windowed_stream import (
    AllWindowedStream,
    WindowedStream,
)

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]
