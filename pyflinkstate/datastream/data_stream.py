"""PyFlink's ``pyflink.datastream.data_stream``."""

from __future__ import annotations

from pyflinkstate.runtime.program import (
    AllWindowedStream,
    BroadcastConnectedStream,
    BroadcastStream,
    CachedDataStream,
    CloseableIterator,
    ConnectedStreams,
    DataStream,
    DataStreamSink,
    KeyedStream,
    WindowedStream,
)

__all__ = [
    "AllWindowedStream",
    "BroadcastConnectedStream",
    "BroadcastStream",
    "CachedDataStream",
    "CloseableIterator",
    "ConnectedStreams",
    "DataStream",
    "DataStreamSink",
    "KeyedStream",
    "WindowedStream",
]
