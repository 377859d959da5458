"""The sources of an environment: the methods of ``StreamExecutionEnvironment`` that make streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, overload
from urllib.parse import quote

from pyflinkstate.api.checks import check_dataframe, check_text, positive
from pyflinkstate.api.composite_types import check_type
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.type_variables import T
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Offset, SparkObject, TypedValue
from pyflinkstate.api.watermark_strategy import WatermarkStrategy
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.plan import SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.program.stream_environment import StreamEnvironment
from pyflinkstate.runtime.program.stream_types import converted_at_source
from pyflinkstate.runtime.sources import (
    FORMATS,
    RECORDS_PER_EPOCH,
    BatchReaderSource,
    CollectionSource,
    DirectorySource,
    FileSource,
    PartitionOffsets,
    QueryLog,
    RateSource,
    ReadBatches,
    Source,
    StreamFormat,
    StreamingSource,
    type_of_source,
)
from pyflinkstate.runtime.spark import arrow, epoch_rdds, query_batches
from pyflinkstate.runtime.storage import AnyPath, check_spark_reaches, path_in_spark
from pyflinkstate.runtime.wire import SystemClock, steady

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import DataFrame


#: What is iterated over by its parts, which nobody means to be records.
_SINGLE = (str, bytes, bytearray, memoryview, Mapping)
#: How to turn each library's tables into records, by package. No library is imported for this.
_OF_TABLES = {
    "pandas": 'give df.to_dict("records")',
    "polars": "give df.to_dicts()",
    "pyarrow": "give table.to_pylist()",
    "pyspark": "call from_dataframe(df)",
}
_TABLES = ("DataFrame", "Column", "Table", "RecordBatch")


def _refuse_single(collection: object) -> None:
    """Refuse what can be iterated over, and would give letters, or the names of columns, as records."""
    if isinstance(collection, _SINGLE):
        raise ConfigurationError(
            f"from_collection() takes a list of records, not {safe_repr(collection)}: give "
            f"[{safe_repr(collection, 50)}] if that is one record"
        )
    for base in type(collection).__mro__:
        remedy = _OF_TABLES.get(base.__module__.partition(".")[0])
        if remedy is not None and base.__name__ in _TABLES:
            raise ConfigurationError(
                f"from_collection() takes a list of records, not a {base.__name__} of "
                f"{base.__module__.partition('.')[0]}: {remedy}"
            )


class EnvironmentSources(StreamEnvironment):
    """The sources of an environment."""

    _settings: EnvironmentSettings
    _job_name: str

    @overload
    def from_collection(
        self, collection: Iterable[T], type_info: None = None, *, records_per_epoch: int | None = None
    ) -> DataStream[T]: ...

    @overload
    def from_collection(
        self,
        collection: Iterable[TypedValue],
        type_info: TypeInformation[T],
        *,
        records_per_epoch: int | None = None,
    ) -> DataStream[T]: ...

    def from_collection(
        self,
        collection: Iterable[TypedValue],
        type_info: TypeInformation[T] | None = None,
        *,
        records_per_epoch: int | None = None,
    ) -> DataStream[T]:
        """Read a collection in its order, ``records_per_epoch`` at a time.

        Args:
            collection: the records.
            type_info: the type to which records are converted: to a ``Row``, or to a ``FLOAT`` of 32 bits.
            records_per_epoch: how many records an epoch has. Default: 10,000, or all without checkpoints.

        Raises:
            BadRecordError: a record does not fit the type.
            ConfigurationError: it is a single text or mapping, or a table, which is no list of records.
        """
        is_cut = records_per_epoch is not None
        most = (
            RECORDS_PER_EPOCH
            if records_per_epoch is None
            else positive("records_per_epoch", records_per_epoch)
        )
        _refuse_single(collection)
        try:
            iterator = iter(collection)
        except TypeError:
            raise ConfigurationError(
                f"from_collection() takes a list of records, not {collection!r}"
            ) from None
        records = list(iterator)
        check_type("type_info", type_info)
        if type_info is not None:
            records = converted_at_source(records, type_info, "collection")
        is_fresh = type_info is not None and rebuilds(type_info)
        return self._stream(CollectionSource(records, most, is_fresh, is_cut), "collection", type_info)

    def from_rdd(self, rdd: RDD[T], *, partitions_per_epoch: int | None = None) -> DataStream[T]:
        """Read an RDD, some partitions at a time. Default: Spark's parallelism with checkpoints, all without.

        For an exact restart a partition must have the same records whenever it is computed.
        """
        return self._from_rdd(rdd, partitions_per_epoch, is_fresh=False)

    def _from_rdd(
        self,
        rdd: RDD[T],
        partitions_per_epoch: int | None,
        is_fresh: bool,
        read: ReadBatches | None = None,
    ) -> DataStream[T]:
        if partitions_per_epoch is not None:
            partitions_per_epoch = positive("partitions_per_epoch", partitions_per_epoch)
        return self._stream(epoch_rdds.rdd_source(rdd, partitions_per_epoch, is_fresh, read), "rdd")

    def from_dataframe(self, df: DataFrame, *, partitions_per_epoch: int | None = None) -> DataStream:
        """Read a DataFrame as Spark ``Row`` records; see :meth:`from_rdd`.

        The rows are read as Arrow batches of ``spark.sql.execution.arrow.maxRecordsPerBatch`` rows. Where a
        column has a type that does not travel so, they are read one by one.

        Raises:
            ConfigurationError: it is no DataFrame of Spark's, or a streaming one.
        """
        check_dataframe("from_dataframe()", df, "from a list of records: from_collection()")
        if df.isStreaming:
            raise ConfigurationError(
                "from_dataframe() takes a batch DataFrame, and this is a streaming one: use from_streaming()"
            )
        rdd, read = arrow.rows_of(df)
        return self._from_rdd(rdd, partitions_per_epoch, True, read).name("dataframe")

    def from_files(
        self,
        directory: AnyPath,
        format: str = "csv",
        *,
        files_per_epoch: int | None = None,
        max_files: int | None = None,
        growing: bool = False,
        **options: object,
    ) -> DataStream:
        """Read the files of a directory in the order of their names.

        Args:
            directory: a path or URI that driver and executors can reach.
            format: ``"csv"`` (dicts of strings), ``"json"`` (one value on each line), ``"parquet"``
                (dicts) or ``"text"`` (lines). The extension tells the compression, such as ``.gz``.
            files_per_epoch: the number of files in one epoch. Default: one with checkpoints, all without.
            max_files: read only that many files, the first ones.
            growing: whether to go on with files that appear later, without end. Each file must be complete
                when it appears: write it under another name and rename it.
            **options: ``on_malformed`` (``"fail"``, ``"drop"`` or ``"collect"``: the result counts
                dropped rows and has collected ones in ``rejected``); ``delimiter`` for CSV.
        """
        is_cut = files_per_epoch is not None
        most = 1 if files_per_epoch is None else positive("files_per_epoch", files_per_epoch)
        if max_files is not None:
            max_files = positive("max_files", max_files)
        if format not in FORMATS:
            raise ConfigurationError(f"there is no format {format!r}; choose one of {', '.join(FORMATS)}")
        try:
            record_format = FORMATS[format](**options)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(f"format {format!r}: {error}") from error
        source = DirectorySource(directory, record_format, most, max_files, growing, is_cut)
        source.check()
        return self._stream(source, "files")

    def from_rate(self, rows_per_second: int, *, partitions: int = 1) -> DataStream:
        """Generate records at a fixed rate, without end: dicts of ``timestamp_ms`` and ``value``."""
        rows_per_second = positive("rows_per_second", rows_per_second)
        partitions = positive("partitions", partitions)
        return self._stream(RateSource(rows_per_second, steady(SystemClock()), partitions), "rate")

    def from_batch_reader(
        self,
        load: Callable[[str, str], DataFrame],
        *,
        latest: Callable[[Offset], Offset] | None = None,
        max_records_per_epoch: int | None = None,
    ) -> DataStream:
        """Read with Spark's batch reader from offset to offset, epoch by epoch, without end.

        For Kafka::

            def load(start, end):
                reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
                reader = reader.option("subscribe", "orders")
                return reader.option("startingOffsets", start).option("endingOffsets", end).load()

        Args:
            load: returns a DataFrame of the records between two offsets, which are texts: ``"earliest"``,
                ``"latest"``, or JSON.
            latest: called with the offsets reached so far, returns the newest offsets as a JSON value.
                Without it they are found by reading: the greatest ``offset`` of each ``topic`` and
                ``partition``. Kafka needs an offset for every partition, so if one may be empty, ask Kafka
                (``end_offsets``).
            max_records_per_epoch: without ``latest``, about how many records an epoch may have.
        """
        if max_records_per_epoch is not None:
            max_records_per_epoch = positive("max_records_per_epoch", max_records_per_epoch)
        if latest is None:
            latest = PartitionOffsets(load, max_records_per_epoch)
        return self._stream(BatchReaderSource(load, latest, arrow.epoch_of), "batch reader")

    def from_streaming(
        self,
        sdf: DataFrame,
        *,
        checkpoint_location: str | None = None,
        trigger: dict[str, SparkObject] | None = None,
    ) -> DataStream:
        """Read a streaming DataFrame as Spark ``Row`` records: each micro-batch of Spark is an epoch.

        The query runs under ``foreachBatch``. Spark considers a batch done when the state after it is
        durable, so checkpointing must be enabled, and incremental checkpoints are advisable. When it is run
        again with the same checkpoint directory and job name, the job restores itself from the retained
        checkpoint that fits the position of the query exactly. After ``stop_with_savepoint`` pass the
        savepoint to :meth:`restore_from`, as it may cover more than the checkpoints do.

        Args:
            sdf: a streaming DataFrame with any source and any stateless operators.
            checkpoint_location: Spark's own for the query. Default: a folder below the checkpoint directory.
                It is required if that is on S3, which Spark reaches under other URIs.
            trigger: arguments for ``DataStreamWriter.trigger``, such as ``{"processingTime": "1 second"}``.
        """
        check_dataframe("from_streaming()", sdf)
        if not sdf.isStreaming:
            raise ConfigurationError(
                "from_streaming() takes a streaming DataFrame, and this is a batch one: use from_dataframe()"
            )

        def location() -> str:
            return checkpoint_location or self._default_location()

        def start(process_batch: Callable[[DataFrame, int], None]) -> SparkObject:
            handle = query_batches.batch_handler(process_batch)
            writer = sdf.writeStream.foreachBatch(handle).option("checkpointLocation", location())
            return (writer.trigger(**trigger) if trigger else writer).start()

        def open_log() -> QueryLog:
            return QueryLog(query_batches.SparkQueryFiles(sdf.sparkSession, location()))

        return self._stream(StreamingSource(start, open_log, arrow.epoch_of), "streaming")

    def _default_location(self) -> str:
        storage = self._settings.checkpoints.checkpoint_directory()
        if storage is None:
            raise ConfigurationError(
                "from_streaming() needs a place for Spark's checkpoints of the query: pass a directory to "
                "enable_checkpointing(), or a checkpoint_location to from_streaming()"
            )
        directory = storage.checkpoint_path
        check_spark_reaches(
            directory,
            "from_streaming() with checkpoints in",
            "pass a checkpoint_location that Spark can reach, such as s3a://...",
        )
        return f"{path_in_spark(directory).rstrip('/')}/spark-{quote(self._job_name, safe='')}"

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None = None,
        source_name: str = "source",
        type_info: TypeInformation[T] | None = None,
    ) -> DataStream[T]:
        """Read a source: one of PyFlink's connectors or your own :class:`Source`.

        Args:
            source: a ``FileSource``, a ``NumberSequenceSource``, or your own.
            watermark_strategy: assigns timestamps and watermarks.
            source_name: the name in messages and counts.
            type_info: the type of the records, which are checked against it and converted, such as a tuple
                to a ``Row``. Default: that of the source, if it has one, without a check.

        Raises:
            ConfigurationError: it is no source, or the type is not type information. A record that does not
                fit the type fails the job with ``BadRecordError``.
        """
        if not isinstance(source, Source):
            raise ConfigurationError(f"from_source takes a Source, not {source!r}")
        check_text("source_name", source_name, may_be_empty=True)
        check_type("type_info", type_info)
        # What a source says of its own records needs no check, for which each of them would pay.
        is_checked = type_info is not None and type_info != type_of_source(source, None)
        declared = type_of_source(source, type_info)
        stream: DataStream[T] = DataStream(self, SourceNode(source, source_name, declared, is_checked))
        if watermark_strategy is None:
            return stream
        timed = stream.assign_timestamps_and_watermarks(watermark_strategy)
        timed.node.is_of_source = True  # type: ignore[union-attr]
        return timed

    def read_text_file(self, file_path: AnyPath, charset_name: str = "UTF-8") -> DataStream[str]:
        """Read the lines of a file, or of all files below a folder."""
        lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(charset_name), file_path)
        return self.from_source(lines.build(), source_name="text file")

    def _stream(self, source: Source, name: str, type_info: TypeInformation | None = None) -> DataStream:
        return DataStream(self, SourceNode(source, name, type_info))
