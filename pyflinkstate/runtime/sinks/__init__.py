"""Sinks: where records go, and how output is committed exactly once."""

from pyflinkstate.runtime.sinks.file_sink import (
    FileSink as FileSink,
    ParquetEncoder as ParquetEncoder,
    fields_of as fields_of,
)
from pyflinkstate.runtime.sinks.joined_files import (
    FileCompactStrategy as FileCompactStrategy,
)
from pyflinkstate.runtime.sinks.parquet_sink import (
    ParquetSink as ParquetSink,
)
from pyflinkstate.runtime.sinks.sink_files import (
    ENCODING_ERRORS as ENCODING_ERRORS,
    opened as opened,
    sink_errors as sink_errors,
)
from pyflinkstate.runtime.sinks.sinks import (
    DeliveryGuarantee as DeliveryGuarantee,
    DriverSink as DriverSink,
    ForeachEpoch as ForeachEpoch,
    ForeachEpochSink as ForeachEpochSink,
    HoldingSink as HoldingSink,
    KeptRddSink as KeptRddSink,
    MeasuredSink as MeasuredSink,
    PrintSink as PrintSink,
    RddSink as RddSink,
    RecordText as RecordText,
    ReplacingSink as ReplacingSink,
    RunAwareSink as RunAwareSink,
    Sink as Sink,
    SinkCount as SinkCount,
    SinkTotals as SinkTotals,
    SinkWriter as SinkWriter,
    check_sinks as check_sinks,
    errors_of_sink as errors_of_sink,
    open_sink as open_sink,
)
from pyflinkstate.runtime.sinks.staged_files import (
    FILE_BYTES as FILE_BYTES,
    IS_DELETE as IS_DELETE,
    OpenFolder as OpenFolder,
    StagedFile as StagedFile,
    StagedFilesSink as StagedFilesSink,
    TableFileWriter as TableFileWriter,
    name_of_target as name_of_target,
)
from pyflinkstate.runtime.sinks.staged_sinks import (
    Batches as Batches,
    Convert as Convert,
    RowConverter as RowConverter,
    StagedSink as StagedSink,
    TransactionalSink as TransactionalSink,
)
from pyflinkstate.runtime.sinks.text_file_sink import (
    BucketAssigner as BucketAssigner,
    OutputFileConfig as OutputFileConfig,
    RollingPolicy as RollingPolicy,
    RowFormatFileSink as RowFormatFileSink,
)
