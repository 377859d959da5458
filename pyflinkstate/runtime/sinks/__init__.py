"""Sinks: where records go, and how output is committed exactly once."""

from pyflinkstate.runtime.sinks.file_sink import FileSink, ParquetEncoder, fields_of
from pyflinkstate.runtime.sinks.parquet_sink import ParquetSink
from pyflinkstate.runtime.sinks.row_changes import RowConverter
from pyflinkstate.runtime.sinks.sink_files import ENCODING_ERRORS, opened, sink_errors
from pyflinkstate.runtime.sinks.sinks import (
    DeliveryGuarantee,
    DriverSink,
    ForeachEpoch,
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
from pyflinkstate.runtime.sinks.staged_files import (
    FILE_BYTES,
    IS_DELETE,
    OpenFolder,
    StagedFile,
    StagedFilesSink,
    TableFileWriter,
    name_of_target,
)
from pyflinkstate.runtime.sinks.staged_sinks import Batches, Convert, StagedSink, TransactionalSink
from pyflinkstate.runtime.sinks.text_file_sink import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    RowFormatFileSink,
)

__all__ = [
    "ENCODING_ERRORS",
    "FILE_BYTES",
    "IS_DELETE",
    "Batches",
    "BucketAssigner",
    "Convert",
    "DeliveryGuarantee",
    "DriverSink",
    "FileSink",
    "ForeachEpoch",
    "ForeachEpochSink",
    "KeptRddSink",
    "OpenFolder",
    "OutputFileConfig",
    "ParquetEncoder",
    "ParquetSink",
    "PrintSink",
    "RddSink",
    "RecordText",
    "ReplacingSink",
    "RollingPolicy",
    "RowConverter",
    "RowFormatFileSink",
    "RunAwareSink",
    "Sink",
    "SinkWriter",
    "StagedFile",
    "StagedFilesSink",
    "StagedSink",
    "TableFileWriter",
    "TransactionalSink",
    "check_sinks",
    "errors_of_sink",
    "fields_of",
    "name_of_target",
    "open_sink",
    "opened",
    "sink_errors",
]
