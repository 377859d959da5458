"""``keyed_process``: keyed functions over DataFrames, in one call."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

import attrs

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject, SelectKey, SparkSchema
from pyflinkstate.errors import ConfigurationError, JobCancelledError
from pyflinkstate.runtime.job import JobExecutionResult
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.sinks import FileSink
from pyflinkstate.runtime.spark import job_failure, row_batches
from pyflinkstate.runtime.storage import absolute, check_spark_reaches, child_uri, open_file_system

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyflinkstate.runtime.program.job_client import JobClient


@attrs.frozen
class KeyedProcessQuery:
    """A job that :func:`keyed_process` runs for a streaming DataFrame.

    Its methods are those of Spark's ``StreamingQuery``.

    Attributes:
        client: monitors and controls the job: status, cancellation, savepoints.
        output: the directory of its committed results, which are Parquet files.
        job_name: the name that was given to :func:`keyed_process`.
    """

    client: JobClient
    output: str
    job_name: str

    @property
    def is_active(self) -> bool:
        """Whether the job has not ended yet."""
        return not self.client.get_job_execution_result().done()

    def exception(self) -> BaseException | None:
        """Return the error that the job failed with, or None if it runs or has not failed."""
        return None if self.is_active else _failure(self.client.get_job_execution_result())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, and return whether it has.

        Args:
            timeout: the longest time to wait, in seconds. Default: no limit.

        Raises:
            PyFlinkStateError: what made the job fail.
        """
        try:
            error = _failure(self.client.get_job_execution_result(), timeout)
        except FutureTimeoutError:
            return False
        if error is not None:
            raise error
        return True

    def stop(self) -> None:
        """Cancel the job, and wait until it has ended."""
        self.client.cancel().result()


def _failure(result: Future[JobExecutionResult], timeout: float | None = None) -> BaseException | None:
    error = result.exception(timeout)
    return None if isinstance(error, JobCancelledError) else error


#: The newest comes last. Jobs that have ended are removed when the next one starts.
_queries: list[KeyedProcessQuery] = []


def keyed_process_queries() -> list[KeyedProcessQuery]:
    """Return the jobs of this program's streaming DataFrames, the newest last.

    Each runs until it is cancelled, fails, or its query is stopped. A job that has ended stays in the list
    until the next one starts.
    """
    return list(_queries)


def keyed_process(
    df: DataFrame,
    *,
    key: str | list[str] | SelectKey,
    function: KeyedProcessFunction,
    schema: SparkSchema,
    key_type: TypeInformation | None = None,
    parallelism: int | None = None,
    checkpoint_directory: str | None = None,
    job_name: str = "keyed_process",
) -> DataFrame:
    """Run a keyed function over a DataFrame and return its results as a DataFrame.

    A batch DataFrame is processed at once, and the result is kept on the cluster. For a streaming DataFrame a
    job starts that runs batch by batch, and its committed results are returned as a streaming DataFrame. If
    it is run again with the same checkpoint directory and job name, the job continues where it was.
    :func:`keyed_process_queries` returns the job's client.

    If the job fails, the queries that read the DataFrame fail with the job's error, and their
    ``awaitTermination()`` raises it. Before that they read what the job has committed. A job that is
    cancelled, stopped with a savepoint, or ended by stopping the query of its input ends no query: each query
    reads what was committed, and then waits for another run of the job, or to be stopped.

    Args:
        df: a batch or streaming DataFrame; the function gets Spark ``Row`` records.
        key: the name of a column, several names, or a function of the row.
        function: the function to run; its results are rows of ``schema``.
        schema: what ``createDataFrame`` takes, such as ``"user string, n long"``. The fields of
            tuples must be in its order.
        key_type: see :meth:`DataStream.key_by`.
        parallelism: the number of subtasks that hold the state. Default: Spark's default parallelism.
        checkpoint_directory: required for a streaming DataFrame: a path or URI that driver and executors can
            reach. The results are there too, as Parquet. Spark must reach it under the same URI, so it cannot
            be on S3. It is not allowed for a batch DataFrame: see below.
        job_name: the name of the job in checkpoints.

    For a batch DataFrame no checkpoints are taken, because an exact restart would not be guaranteed: its
    partitions may have other records when they are computed again, and results that are kept on the cluster
    end with the program. After a failure, call the function again.

    Raises:
        ConfigurationError: a streaming DataFrame has no ``checkpoint_directory`` or one on S3, a batch
            DataFrame has one, or ``schema`` cannot be parsed.
        RowError: a result does not fit ``schema``; for a streaming DataFrame it fails the job.
    """
    _check_directory(df, checkpoint_directory)
    env = StreamExecutionEnvironment(df.sparkSession)
    if parallelism is not None:
        env.set_parallelism(parallelism)
    select = key if callable(key) else _selector(df, [key] if isinstance(key, str) else list(key))
    if not df.isStreaming:
        stream = env.from_dataframe(df).key_by(select, key_type).process(function).uid(job_name)
        result: DataFrame = stream.to_dataframe(schema, job_name)
        return result
    assert checkpoint_directory is not None
    return _streaming(env, df, select, function, schema, key_type, checkpoint_directory, job_name)


def _check_directory(df: DataFrame, checkpoint_directory: str | None) -> None:
    if df.isStreaming and checkpoint_directory is None:
        raise ConfigurationError("keyed_process() on a streaming DataFrame needs checkpoint_directory")
    if not df.isStreaming and checkpoint_directory is not None:
        raise ConfigurationError(
            "keyed_process() on a batch DataFrame takes no checkpoint_directory: its partitions may have "
            "other records when they are computed again, so no restart from a checkpoint would be exact. "
            "Leave it out; or read the input as a stream, with spark.readStream; or write it to files, and "
            "read them with from_files() of an environment that has checkpoints"
        )


def _selector(df: DataFrame, columns: list[str]) -> SelectKey:
    missing = [column for column in columns if column not in df.columns]
    if missing:
        raise ConfigurationError(
            f"there is no column {missing[0]!r}; the columns are {', '.join(df.columns)}"
        )
    return row_batches.ColumnKey(tuple(columns))


def _streaming(
    env: StreamExecutionEnvironment,
    df: DataFrame,
    select: SelectKey,
    function: KeyedProcessFunction,
    schema: SparkSchema,
    key_type: TypeInformation | None,
    checkpoint_directory: str,
    job_name: str,
) -> DataFrame:
    base = absolute(checkpoint_directory)
    check_spark_reaches(
        base,
        "keyed_process() with checkpoint_directory",
        "choose one that both can reach, such as hdfs://...",
    )
    output = child_uri(base, f"{job_name}-output")
    empty = df.sparkSession.createDataFrame([], schema)
    env.enable_checkpointing(0, child_uri(base, f"{job_name}-checkpoints"), incremental=True)
    stream = env.from_streaming(df).key_by(select, key_type).process(function).uid(job_name)
    rows = DataStream(env, env.checked_rows(stream.node, schema))
    rows.sink_to(FileSink(output, "parquet", _arrow_schema(empty)))
    file_system, path = open_file_system(output)
    file_system.create_dir(path, recursive=True)
    client = env.execute_async(job_name)
    queries = job_failure.ResultQueries(df.sparkSession, output)
    if output in _readers:
        _readers[output].forget()
    _readers[output] = queries
    client.get_job_execution_result().add_done_callback(
        lambda result: _tell(queries, output, job_name, result)
    )
    _queries[:] = [
        query for query in _queries if not query.client.get_job_status().result().is_terminal_state()
    ]
    _queries.append(KeyedProcessQuery(client, output, job_name))
    reader = df.sparkSession.readStream.schema(empty.schema)
    return reader.option("recursiveFileLookup", "true").parquet(output)


#: By directory of results: the queries that read what the newest job there commits.
_readers: dict[str, job_failure.ResultQueries] = {}


def _tell(
    queries: job_failure.ResultQueries, output: str, job_name: str, result: Future[JobExecutionResult]
) -> None:
    """Have the queries of a job that has failed fail, unless a newer run of the job goes on for them."""
    error = _failure(result)
    if error is not None and _readers.get(output) is queries:
        why = f"{type(error).__name__}: {error}"
        queries.fail(f"job {job_name!r}, whose results this query reads, has failed: {why}")


def _arrow_schema(frame: DataFrame) -> ArrowObject:
    return frame.toArrow().schema
