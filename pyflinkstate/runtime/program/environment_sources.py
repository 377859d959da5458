"""Checks the arguments of the methods that make sources, and makes the sources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from pyflinkstate.api import (
    SparkObject,
    TypedValue,
    TypeInformation,
    check_dataframe,
    check_type,
    positive,
    safe_repr,
)
from pyflinkstate.backends.types import rebuilds
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.jobs import Jobs
from pyflinkstate.runtime.program.user_functions import converted_at_source
from pyflinkstate.runtime.settings import CheckpointConfig
from pyflinkstate.runtime.sources import (
    FORMATS,
    RECORDS_PER_EPOCH,
    CollectionSource,
    DirectorySource,
    QueryLog,
    StreamingSource,
)
from pyflinkstate.runtime.spark import row_batches, sessions, streaming_queries
from pyflinkstate.runtime.storage import AnyPath, check_spark_reaches, path_in_spark

if TYPE_CHECKING:
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


def collection_source(
    collection: Iterable[TypedValue], type_info: TypeInformation | None, records_per_epoch: int | None
) -> CollectionSource:
    """Return the source of a collection, whose records are converted to the type."""
    is_cut = records_per_epoch is not None
    most = (
        RECORDS_PER_EPOCH if records_per_epoch is None else positive("records_per_epoch", records_per_epoch)
    )
    _refuse_single(collection)
    try:
        iterator = iter(collection)
    except TypeError:
        raise ConfigurationError(f"from_collection() takes a list of records, not {collection!r}") from None
    records = list(iterator)
    check_type("type_info", type_info)
    if type_info is not None:
        records = converted_at_source(records, type_info, "collection")
    return CollectionSource(records, most, type_info is not None and rebuilds(type_info), is_cut)


def directory_source(
    directory: AnyPath,
    format: str,
    files_per_epoch: int | None,
    max_files: int | None,
    growing: bool,
    options: Mapping[str, object],
) -> DirectorySource:
    """Return the source of the files of a directory; ``options`` are those of the format."""
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
    return source


def query_source(
    sdf: DataFrame, location: Callable[[], str], trigger: Mapping[str, SparkObject]
) -> StreamingSource:
    """Return the source of a streaming DataFrame; ``location`` returns where its query keeps checkpoints."""
    check_dataframe("from_streaming()", sdf)
    if not sdf.isStreaming:
        raise ConfigurationError(
            "from_streaming() takes a streaming DataFrame, and this is a batch one: use from_dataframe()"
        )

    def start(process_batch: Callable[[DataFrame, int], None]) -> SparkObject:
        writer = sdf.writeStream.foreachBatch(streaming_queries.batch_handler(process_batch)).option(
            "checkpointLocation", location()
        )
        return (writer.trigger(**trigger) if trigger else writer).start()

    def open_log() -> QueryLog:
        return QueryLog(streaming_queries.SparkQueryFiles(sdf.sparkSession, location()))

    return StreamingSource(start, open_log, row_batches.epoch_of, partial(sessions.gone, sdf.sparkSession))


def query_location(chosen: str | None, checkpoints: CheckpointConfig, jobs: Jobs) -> str:
    """Return the location that was chosen, or a folder below the checkpoint directory for the newest job."""
    if chosen:
        return chosen
    storage = checkpoints.checkpoint_directory()
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
    return f"{path_in_spark(directory).rstrip('/')}/spark-{quote(jobs.name, safe='')}"
