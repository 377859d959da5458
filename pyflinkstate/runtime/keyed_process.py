"""One call for those who think in DataFrames."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import attrs

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.errors import ConfigurationError, JobCancelledError
from pyflinkstate.runtime.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.file_sink import FileSink
from pyflinkstate.runtime.storage import absolute, open_file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyflinkstate.runtime.job_client import JobClient


_log = logging.getLogger("pyflinkstate")


@attrs.frozen
class KeyedProcessQuery:
    """A job that :func:`keyed_process` runs behind a streaming DataFrame."""

    client: JobClient
    output: str


#: The jobs behind streaming DataFrames, the newest last; each ends with its query.
running: list[KeyedProcessQuery] = []


def keyed_process(
    df: DataFrame,
    *,
    key: str | list[str] | Callable[[Any], Any],
    function: KeyedProcessFunction,
    schema: Any,
    key_type: TypeInformation | None = None,
    parallelism: int | None = None,
    checkpoint_directory: str | None = None,
    job_name: str = "keyed_process",
) -> DataFrame:
    """Run a keyed function over a DataFrame and return its results as a DataFrame.

    A batch DataFrame is processed at once, and the result is kept on the cluster. Behind a streaming one a
    job runs from now on, batch by batch; what it commits is a streaming DataFrame to go on with. Run
    again with the same checkpoint directory and job name, it goes on where it was.

    Args:
        df: batch or streaming; the function gets Spark ``Row`` records.
        key: a column, several, or a function of the row.
        function: what to run; its results are rows of ``schema``.
        schema: what ``createDataFrame`` takes, such as ``"user string, n long"``. With tuples the order
            of its fields counts.
        key_type: see :meth:`DataStream.key_by`.
        parallelism: how many subtasks hold the state. Default: Spark's default parallelism.
        checkpoint_directory: a path or URI that driver and executors reach; needed for a streaming DataFrame,
            whose results lie there too, as Parquet.
        job_name: what checkpoints know the job by.

    Raises:
        ConfigurationError: a streaming DataFrame without ``checkpoint_directory``.
    """
    env = StreamExecutionEnvironment(df.sparkSession)
    if parallelism is not None:
        env.set_parallelism(parallelism)
    select = key if callable(key) else _selector(df, [key] if isinstance(key, str) else list(key))
    if not df.isStreaming:
        stream = env.from_dataframe(df).key_by(select, key_type).process(function).uid(job_name)
        result: DataFrame = stream.to_dataframe(schema, job_name)
        return result
    if checkpoint_directory is None:
        raise ConfigurationError("keyed_process() on a streaming DataFrame needs checkpoint_directory")
    return _streaming(env, df, select, function, schema, key_type, checkpoint_directory, job_name)


def _selector(df: DataFrame, columns: list[str]) -> Callable[[Any], Any]:
    missing = [column for column in columns if column not in df.columns]
    if missing:
        raise ConfigurationError(f"no column {missing[0]!r}; there are {', '.join(df.columns)}")
    if len(columns) == 1:
        return lambda row: row[columns[0]]
    return lambda row: tuple(row[column] for column in columns)


def _streaming(
    env: StreamExecutionEnvironment,
    df: DataFrame,
    select: Callable[[Any], Any],
    function: KeyedProcessFunction,
    schema: Any,
    key_type: TypeInformation | None,
    checkpoint_directory: str,
    job_name: str,
) -> DataFrame:
    base = absolute(checkpoint_directory).rstrip("/")
    output = f"{base}/{job_name}-output"
    empty = df.sparkSession.createDataFrame([], schema)
    env.enable_checkpointing(0, f"{base}/{job_name}-checkpoints", incremental=True)
    stream = env.from_streaming(df).key_by(select, key_type).process(function).uid(job_name)
    stream.sink_to(FileSink(output, "parquet", _arrow_schema(empty)))
    file_system, path = open_file_system(output)
    file_system.create_dir(path, recursive=True)
    client = env.execute_async(job_name)
    client.get_job_execution_result().add_done_callback(_log_failure)
    running.append(KeyedProcessQuery(client, output))
    reader = df.sparkSession.readStream.schema(empty.schema)
    return reader.option("recursiveFileLookup", "true").parquet(output)


def _log_failure(result: Future[Any]) -> None:
    error = result.exception()
    if error is not None and not isinstance(error, JobCancelledError):
        _log.error("the job behind a streaming DataFrame has failed: %s", error)


def _arrow_schema(frame: DataFrame) -> Any:
    return frame.toArrow().schema
