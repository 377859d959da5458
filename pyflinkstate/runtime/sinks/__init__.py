"""Sinks: where records go, and how output is committed exactly once."""

from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import (
    DriverSink,
    ForeachEpochSink,
    KeptRddSink,
    PrintSink,
    RddSink,
    RecordText,
    ReplacingSink,
    RunAwareSink,
    Sink,
    SinkWriter,
    check_sinks,
    errors_of_sink,
    open_sink,
)
from pyflinkstate.runtime.sinks.text_file_sink import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    RowFormatFileSink,
)

__all__ = [
    "BucketAssigner",
    "DriverSink",
    "FileSink",
    "ForeachEpochSink",
    "KeptRddSink",
    "OutputFileConfig",
    "PrintSink",
    "RddSink",
    "RecordText",
    "ReplacingSink",
    "RollingPolicy",
    "RowFormatFileSink",
    "RunAwareSink",
    "Sink",
    "SinkWriter",
    "check_sinks",
    "errors_of_sink",
    "open_sink",
]
