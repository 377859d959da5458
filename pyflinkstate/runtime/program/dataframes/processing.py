"""``keyed_process`` and ``keyed_map``, keyed functions over DataFrames in one call, and their queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, TypeAlias, overload

import attrs
from pyarrow.fs import FileSelector

from pyflinkstate.api import (
    ArrowTable,
    OutputTag,
    SparkSchema,
    StateTtlConfig,
    TypeInformation,
    Types,
    ValueStateDescriptor,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError, JobCancelledError
from pyflinkstate.runtime.master import CheckpointStats, JobExecutionResult, JobListener
from pyflinkstate.runtime.operators import ColumnOrder, KeyedMap, MapKey, RowOrder
from pyflinkstate.runtime.plan import Input, Node
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.dataframes.options import (
    JobKeywords,
    JobOptions,
    KeyColumns,
    KeyedStep,
    ProcessKeywords,
    StepKeywords,
    chained,
    check_frame,
    check_keywords,
    columns_of,
    rows_of,
    selector,
)
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.program.user_functions import check_function, name_of
from pyflinkstate.runtime.sinks import FileSink, Sink
from pyflinkstate.runtime.spark import sessions, streaming_queries
from pyflinkstate.runtime.storage import AnyPath, open_file_system, path_in_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from typing_extensions import Unpack

    from pyflinkstate.runtime.program.job_client import JobClient
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream


#: A Spark DataFrame, or a table of which Spark makes one.
Frame: TypeAlias = "DataFrame | ArrowTable"


@attrs.frozen
class KeyedProcessQuery:
    """A job that :func:`keyed_process` or :func:`keyed_map` runs for a streaming DataFrame.

    Its methods are those of Spark's ``StreamingQuery``.

    Attributes:
        client: monitors and controls the job: status, cancellation, savepoints.
        output: the directory of its committed results, which are Parquet files, as Spark reads it: without
            the ``%`` escapes of a URI. Empty if the results go into a sink.
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
        return None if self.is_active else failure_of(self.client.get_job_execution_result())

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, and return whether it has.

        Args:
            timeout: the longest time to wait, in seconds. Default: no limit.

        Raises:
            PyFlinkStateError: what made the job fail.
        """
        try:
            error = failure_of(self.client.get_job_execution_result(), timeout)
        except FutureTimeoutError:
            return False
        if error is not None:
            raise error
        return True

    def stop(self, savepoint: AnyPath | None = None) -> str | None:
        """End the job, and wait until it has ended.

        Args:
            savepoint: a directory, below which the state is written first, after all output before it has
                been committed. Pass the folder that is returned as ``restore_from``. Without it the job ends
                at once, and goes on from its last checkpoint when it is run again.

        Returns:
            the savepoint's folder; None without one.

        Raises:
            CheckpointError: the savepoint could not be written.
        """
        if savepoint is None:
            self.client.cancel().result()
            return None
        folder = self.client.stop_with_savepoint(savepoint_directory=savepoint).result()
        self.await_termination()
        return folder


def failure_of(result: Future[JobExecutionResult], timeout: float | None = None) -> BaseException | None:
    """Return what made a job fail; that it was cancelled is no failure."""
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


def add_query(query: KeyedProcessQuery, tell: Callable[[Future[JobExecutionResult]], object]) -> None:
    """Add the query of a job that has just started; ``tell`` is called with its result."""
    query.client.get_job_execution_result().add_done_callback(tell)
    _queries[:] = [
        other for other in _queries if not other.client.get_job_status().result().is_terminal_state()
    ]
    _queries.append(query)


@overload
def keyed_process(
    df: Frame, *, side_outputs: None = None, sink: None = None, **options: Unpack[ProcessKeywords]
) -> DataFrame: ...


@overload
def keyed_process(
    df: Frame,
    *,
    side_outputs: Mapping[OutputTag, SparkSchema],
    sink: None = None,
    **options: Unpack[ProcessKeywords],
) -> tuple[DataFrame, ...]: ...


@overload
def keyed_process(df: Frame, *, sink: Sink, **options: Unpack[ProcessKeywords]) -> KeyedProcessQuery: ...


def keyed_process(
    df: Frame,
    *,
    side_outputs: Mapping[OutputTag, SparkSchema] | None = None,
    sink: Sink | None = None,
    **options: Unpack[ProcessKeywords],
) -> DataFrame | tuple[DataFrame, ...] | KeyedProcessQuery:
    """Run a keyed function over a DataFrame and return its results as a DataFrame.

    A batch DataFrame is processed at once, and the result is kept on the cluster. For a streaming DataFrame a
    job starts that runs batch by batch, and its committed results are returned as a streaming DataFrame. If
    it is run again with the same checkpoint directory and job name, the job continues where it was.
    :func:`keyed_process_queries` returns the job's query, which can be stopped and waited for.

    If the job fails, the queries that read the DataFrame fail with the job's error, and their
    ``awaitTermination()`` raises it. Before that they read what the job has committed. A job that is
    cancelled, stopped with a savepoint, or ended by stopping the query of its input ends no query: each query
    reads what was committed, and then waits for another run of the job, or to be stopped.

    Args:
        df: a batch or streaming DataFrame; the function gets Spark ``Row`` records. Also a table of pandas,
            polars or Arrow, of which ``spark.createDataFrame`` of the active session makes a DataFrame.
        key: the name of a column, several names, or a function of the row.
        function: the function to run; its results are rows of ``schema``. With ``window``, see
            :class:`KeyedStep`.
        schema: what ``createDataFrame`` takes, such as ``"user string, n long"``. The fields of
            tuples must be in its order.
        key_type: see :meth:`DataStream.key_by`.
        parallelism: the number of subtasks that hold the state. Default: Spark's default parallelism.
        timestamp: when a row happened: the name of a column of moments, of days, or of whole milliseconds
            since 1970; or a function of the row that returns one of these. Event-time timers and windows
            need it.
        watermark: how much later than others a row may come, such as ``"10 seconds"`` or a ``timedelta``, or
            a ``WatermarkStrategy``. It is required for a streaming DataFrame with ``timestamp``. Default for
            a batch DataFrame: as late as it likes; timers and windows fire at the end of the input.
        window: puts the rows of each key into windows, such as ``TumblingEventTimeWindows.of(...)``.
        allowed_lateness: for how long after its end a window takes late rows, such as ``"1 minute"``.
        late_rows: the tag of a side output for rows that come later than that, whose schema is in
            ``side_outputs``. Without it they are dropped, and counted.
        initial_state: a batch DataFrame that fills the state before the first row of ``df`` is read. The
            ``function`` has a method ``handle_initial_state(value, ctx)``, which is called for each of its
            rows, under the row's key; ``key`` must fit both DataFrames. Keys that only occur in it have state
            too. Values with time to live count as written when they are read. It is read in an epoch of its
            own, and only if the job does not go on from a checkpoint: a later run with the same
            ``checkpoint_directory`` does not read it again. With ``then`` it is for the first step. It does
            not go together with ``window`` or ``restore_from``.
        then: further steps. Each gets the rows that the one before made; the result is that of the last one.
        side_outputs: by tag, the schema of a side output. The result is then a tuple: the DataFrame of the
            results, and one for each tag in the order given. A step before the last one may have side
            outputs, too.
        sink: for a streaming DataFrame, where the results go, such as a ``SqlSink``; it gets them as tuples
            in the order of ``schema``. No second query is needed then: the job's query is returned, and no
            DataFrame. It does not go together with ``side_outputs``, ``retention`` or ``compact``.
        checkpoint_directory: required for a streaming DataFrame: a path or URI that driver and executors can
            reach. The results are there too, as Parquet. Spark must reach it under the same URI, so it cannot
            be on S3. Spark takes some characters, such as ``*`` and ``[``, for patterns of names: its path,
            ``job_name`` and the ids of ``side_outputs`` must not have them. It is not allowed for a batch
            DataFrame: see below.
        restore_from: for a streaming DataFrame, the folder of a savepoint to begin with.
        on_failure: for a streaming DataFrame, when the job restarts; see :class:`RestartStrategies`. Default:
            three times, but once after an error of the function that comes again with the same row.
        listener: called with epochs, checkpoints and restarts.
        trigger: for a streaming DataFrame, the arguments of Spark's ``trigger()``, such as
            ``{"processingTime": "1 second"}`` or ``{"availableNow": True}``. Each batch is an epoch, and ends
            with a checkpoint.
        output_mode: ``"append"`` or ``"update"``, which are the same here: what a function yields is
            appended, and never taken back.
        retention: for a streaming DataFrame, for how long the Parquet files of its results stay, such as
            ``"7 days"``, which is the default; None keeps them for ever. The queries that read them must have
            done so by then.
        compact: for a streaming DataFrame, joins the Parquet files of its results before queries see them, so
            that there are fewer: those of a time such as ``"2 minutes"``, or as a
            :class:`FileCompactStrategy` says. Default: the results of each epoch are seen at once.
        job_name: the name of the job in checkpoints.

    For a batch DataFrame no checkpoints are taken, because an exact restart would not be guaranteed: its
    partitions may have other records when they are computed again, and results that are kept on the cluster
    end with the program. After a failure, call the function again.

    Raises:
        ConfigurationError: a streaming DataFrame has no ``checkpoint_directory``, or one on S3, or one that
            Spark takes for a pattern, a batch DataFrame has one, ``schema`` cannot be parsed,
            ``initial_state`` does not fit, two arguments do not go together, ``side_outputs`` has no schema
            for ``late_rows``, or there is no such option.
        RowError: a result does not fit ``schema``; for a streaming DataFrame it fails the job.
    """
    check_keywords("keyed_process()", options, ProcessKeywords, ["side_outputs", "sink"])
    then = options.get("then", ())
    _check_lists(then, side_outputs)
    own = {name: value for name, value in options.items() if name in StepKeywords.__annotations__}
    steps = [KeyedStep(**own), *then]  # type: ignore[arg-type]
    _check_late_rows(steps, side_outputs or {})
    job = JobOptions("keyed_process()", options, options.get("timestamp"), options.get("watermark"))
    df = _on_spark(df, options)
    if sink is not None:
        return _process_into(df, steps, sink, side_outputs, job)
    frames = process(df, steps, side_outputs or {}, job)
    return frames[0] if side_outputs is None else tuple(frames)


def _on_spark(df: Frame, options: JobKeywords) -> DataFrame:
    """Return the input as a Spark DataFrame, and make the initial state one in the options."""
    if "initial_state" in options:
        options["initial_state"] = sessions.frame_of(options["initial_state"])
    made: DataFrame = sessions.frame_of(df)
    return made


def _check_lists(then: object, side_outputs: object) -> None:
    if not isinstance(then, Sequence) or not all(isinstance(step, KeyedStep) for step in then):
        raise ConfigurationError(
            f"then= takes a list of steps, such as [KeyedStep(...)], not {safe_repr(then)}"
        )
    tags = {} if side_outputs is None else side_outputs
    if not isinstance(tags, Mapping) or not all(isinstance(tag, OutputTag) for tag in tags):
        raise ConfigurationError(
            f"side_outputs= takes a dict with the schema of each tag, such as {{OutputTag('late'): "
            f"'user string'}}, not {safe_repr(tags)}"
        )


def _check_late_rows(steps: list[KeyedStep], side_outputs: Mapping[OutputTag, SparkSchema]) -> None:
    for step in steps:
        if step.late_rows is not None and step.late_rows not in side_outputs:
            raise ConfigurationError(
                f"late_rows={safe_repr(step.late_rows)} needs side_outputs= with the schema of that tag, "
                f"such as {{OutputTag('late'): 'user string'}}: otherwise late rows would be lost, and not "
                f"counted"
            )


def process(
    df: DataFrame, steps: list[KeyedStep], side_outputs: Mapping[OutputTag, SparkSchema], options: JobOptions
) -> list[DataFrame]:
    """Run steps over a DataFrame; return their results and then the side outputs."""
    env, base, made = _prepared(df, steps, options)
    outputs: dict[str, tuple[Node, SparkSchema]] = {"": (made[-1]._node, steps[-1].schema)}
    for tag, schema in side_outputs.items():
        side = [stream.get_side_output(tag) for stream in made]
        outputs[tag.tag_id] = (side[0].union(*side[1:])._node if side[1:] else side[0]._node, schema)
    if base is None:
        return env._jobs.run_to_dataframes(list(outputs.values()), options.job_name)
    return _streaming(env, df, outputs, options, base)


def _prepared(
    df: DataFrame, steps: list[KeyedStep], options: JobOptions
) -> tuple[StreamExecutionEnvironment, str | None, list[DataStream]]:
    """Return an environment, the directory for a streaming DataFrame, and the results of each step."""
    options.check(df)
    env = options.environment(df)
    base = options.base() if df.isStreaming else None
    if base is not None:
        env.enable_checkpointing(0, options.checkpoints(base), incremental=True)
    initial_rows = None
    if options.initial_state is not None:
        check_frame(options.initial_state, df, steps[0].key)
        initial_rows = rows_of(env, options.initial_state)
    return env, base, chained(env, options.rows(env, df), df.columns, steps, options.job_name, initial_rows)


def _process_into(
    df: DataFrame, steps: list[KeyedStep], sink: Sink, side_outputs: object, options: JobOptions
) -> KeyedProcessQuery:
    """Start a job that sends the results of the last step to a sink."""
    of_files = [name for name in ("retention", "compact") if options.given.get(name) is not None]
    if side_outputs is not None or of_files or not df.isStreaming:
        raise ConfigurationError(
            "keyed_process() with sink= takes a streaming DataFrame, and neither side_outputs nor retention "
            "nor compact: leave sink= out, and write the DataFrames that are returned"
        )
    env, _, made = _prepared(df, steps, options)
    DataStream(env, env._jobs.checked_rows(made[-1]._node, steps[-1].schema, False)).sink_to(sink)
    query = KeyedProcessQuery(env.execute_async(options.job_name), "", options.job_name)
    add_query(query, failure_of)
    return query


def _streaming(
    env: StreamExecutionEnvironment,
    df: DataFrame,
    outputs: dict[str, tuple[Node, SparkSchema]],
    options: JobOptions,
    base: str,
) -> list[DataFrame]:
    """Start the job; return the DataFrames of what it commits below ``base``."""
    frames: list[DataFrame] = []
    folders = options.folders(base, outputs)
    for tag_id, (node, schema) in outputs.items():
        folder = folders[tag_id]
        empty = df.sparkSession.createDataFrame([], schema)  # type: ignore[arg-type]  # Spark checks it
        rows, columns = env._jobs.rows_for_files(node, schema)
        made_by = empty.toArrow().schema if columns is None else columns
        compact, keeps_ms = options.compact, options.retention_ms
        sink = FileSink(folder, "parquet", made_by, retention_ms=keeps_ms, compact=compact)
        DataStream(env, rows).sink_to(sink)
        file_system, path = open_file_system(folder)
        file_system.create_dir(path, recursive=True)
        frames.append(
            df.sparkSession.readStream.schema(empty.schema)
            .option("recursiveFileLookup", "true")
            .parquet(path_in_spark(folder))
        )
    read = [path_in_spark(folder) for folder in folders.values()]
    until, ends = options.until_results(), options.ends_by_itself()
    have_come: Callable[[], bool] = bool if ends else partial(_has_results, folders[""])
    readers = [
        (path, streaming_queries.ResultQueries(df.sparkSession, path, until, have_come)) for path in read
    ]
    if not ends and options.compact is None:
        env.add_listener(_FirstResults(readers))
    if have_come():
        _release(readers)
    client = env.execute_async(options.job_name)
    for path, queries in readers:
        if path in _readers:
            _readers[path].forget()
        _readers[path] = queries
        queries.hold()
    add_query(KeyedProcessQuery(client, read[0], options.job_name), partial(_tell, readers, options.job_name))
    return frames


def _has_results(folder: str) -> bool:
    """Return whether an earlier run of the job has committed anything."""
    file_system, path = open_file_system(folder)
    return any(
        entry.base_name.startswith("epoch=")
        for entry in file_system.get_file_info(FileSelector(path, recursive=False))
    )


#: By directory of results: the queries that read what the newest job there commits.
_readers: dict[str, streaming_queries.ResultQueries] = {}


_Readers = list[tuple[str, streaming_queries.ResultQueries]]


@attrs.define
class _FirstResults(JobListener):
    """Lets the queries begin that wait for the first checkpoint, which shows its results."""

    readers: _Readers

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        _release(self.readers)


def _release(readers: _Readers) -> None:
    for _, queries in readers:
        queries.release()


def _tell(readers: _Readers, job_name: str, result: Future[JobExecutionResult]) -> None:
    """Have the queries of a job that has failed fail, unless a newer run of the job goes on for them."""
    error = failure_of(result)
    for output, queries in readers:
        if error is not None and _readers.get(output) is queries:
            why = f"{type(error).__name__}: {error}"
            queries.fail(f"job {job_name!r}, whose results this query reads, has failed: {why}")
        queries.release()


@attrs.frozen(kw_only=True)
class _MapStep(KeyedStep):
    """A step whose function is the operator itself."""

    def processed(self, keyed: KeyedStream, initial: tuple[Input, ...]) -> DataStream:
        operator: KeyedMap = self.function  # type: ignore[assignment]
        return keyed._stateful(
            (keyed._as_input(), *initial), operator, name_of(operator.function, "keyed_map"), None
        )


def _initial_column(initial_state: DataFrame | None, key: KeyColumns) -> str | None:
    """Return the column that has the state of a key: the only one that does not belong to the key.

    Raises:
        ConfigurationError: there is not exactly one.
    """
    if initial_state is None or not hasattr(initial_state, "isStreaming"):
        return None  # no initial state, or not a DataFrame: that error is raised later
    columns = initial_state.columns
    others = [name for name in columns if name not in columns_of(key)]
    if callable(key) or len(others) != 1:
        raise ConfigurationError(
            f"initial_state= of keyed_map() takes a DataFrame with the columns of the key, given by their "
            f"names, and one more, whose value becomes the state; its columns are {', '.join(columns)}"
        )
    return str(others[0])


def _order(df: DataFrame, sort_by: KeyColumns | None) -> RowOrder | None:
    """Return how to sort the rows of a key.

    Raises:
        ConfigurationError: there is no such column.
    """
    if sort_by is None or callable(sort_by):
        return sort_by
    names = columns_of(sort_by, "sort_by=")
    selector(sort_by, getattr(df, "columns", None), "sort_by=")
    return ColumnOrder(tuple(names))


def keyed_map(
    df: Frame,
    key: KeyColumns,
    function: MapKey,
    schema: SparkSchema,
    *,
    sort_by: KeyColumns | None = None,
    state_type: TypeInformation | None = None,
    state_ttl: StateTtlConfig | None = None,
    key_type: TypeInformation | None = None,
    **options: Unpack[JobKeywords],
) -> DataFrame:
    """Call ``function(key, rows, state)`` for each key of a DataFrame, and return what it yields.

    For a batch DataFrame it is called once for each key, with all rows of the key. For a streaming DataFrame
    it is called once for each key that has rows in a micro-batch, with these rows; ``state`` has what the
    calls before have left there. The rows of a batch are held in memory until all have come.

    Args:
        df: as for :func:`keyed_process`.
        key: the name of a column, several names, or a function of the row.
        function: called with the key, a list of Spark ``Row`` records, and a :class:`KeyState`; returns or
            yields rows of ``schema``, or returns None.
        schema: what ``createDataFrame`` takes, such as ``"user string, n long"``.
        sort_by: the column, or several, by which the rows of each call are sorted, nulls first; or a function
            of the row, as the ``key`` of ``list.sort``. Default: rows of one partition of ``df`` are in the
            order of that partition, and those of several are mixed as they arrive.
        state_type: the type of the value in ``state``, which is then checked and stored as columns. Default:
            any value, which is pickled.
        state_ttl: when a value expires.
        key_type: see :meth:`DataStream.key_by`.
        initial_state: a batch DataFrame with the columns of ``key``, which must be names then, and one more,
            whose value becomes the state of the key before the first row of ``df`` is read. There may be one
            row for each key. :func:`keyed_process` says when it is read.
        **options: as for :func:`keyed_process`: ``parallelism``, ``checkpoint_directory`` (required for a
            streaming DataFrame), ``restore_from``, ``on_failure``, ``listener``, ``trigger``,
            ``output_mode``, ``retention``, ``compact`` and ``job_name``.

    Raises:
        ConfigurationError: as for :func:`keyed_process`.
        RowError: a result does not fit ``schema``; for a streaming DataFrame it fails the job.
    """
    check_keywords("keyed_map()", options, JobKeywords, ["sort_by", "state_type", "state_ttl", "key_type"])
    check_function("keyed_map()", function, (), arguments=3)
    df = _on_spark(df, options)
    descriptor = ValueStateDescriptor("state", state_type or Types.PICKLED_BYTE_ARRAY())
    if state_ttl is not None:
        descriptor.enable_time_to_live(state_ttl)
    job = JobOptions("keyed_map()", options)
    initial_column = _initial_column(job.initial_state, key)
    operator = KeyedMap(function, descriptor, initial_column, _order(df, sort_by))
    step = _MapStep(key=key, function=operator, schema=schema, key_type=key_type)  # type: ignore[arg-type]
    (frame,) = process(df, [step], {}, job)
    return frame
