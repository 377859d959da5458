"""Sinks: where records go, and how output is committed exactly once."""

from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import (
    DeliveryGuarantee,
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
from pyflinkstate.runtime.sinks.staged_files import OpenFolder, StagedFile, StagedFilesSink
from pyflinkstate.runtime.sinks.staged_sinks import StagedSink, TransactionalSink
from pyflinkstate.runtime.sinks.text_file_sink import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    RowFormatFileSink,
)

__all__ = [
    "BucketAssigner",
    "DeliveryGuarantee",
    "DriverSink",
    "FileSink",
    "ForeachEpochSink",
    "KeptRddSink",
    "OpenFolder",
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
    "StagedFile",
    "StagedFilesSink",
    "StagedSink",
    "TransactionalSink",
    "check_sinks",
    "errors_of_sink",
    "open_sink",
]
