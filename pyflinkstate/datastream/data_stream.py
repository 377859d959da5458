"""PyFlink's ``pyflink.datastream.data_stream``."""

from pyflinkstate.runtime.program import (
    AllWindowedStream as AllWindowedStream,
    BroadcastConnectedStream as BroadcastConnectedStream,
    BroadcastStream as BroadcastStream,
    CachedDataStream as CachedDataStream,
    CloseableIterator as CloseableIterator,
    ConnectedStreams as ConnectedStreams,
    DataStream as DataStream,
    DataStreamSink as DataStreamSink,
    KeyedStream as KeyedStream,
    WindowedStream as WindowedStream,
)
