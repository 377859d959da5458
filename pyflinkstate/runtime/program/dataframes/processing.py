"""``keyed_process``: keyed functions over DataFrames, in one call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, overload

import attrs
from pyarrow.fs import FileSelector

from pyflinkstate.api.checks import check_dataframe, check_text
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject, SparkObject, SparkSchema
from pyflinkstate.api.watermark_strategy import WatermarkStrategy
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import CheckpointStats, JobExecutionResult, JobListener
from pyflinkstate.runtime.plan import Node
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.dataframes.event_time import Length, Timestamp, length_ms, strategy_of
from pyflinkstate.runtime.program.dataframes.initial_state import check_frame, rows_of
from pyflinkstate.runtime.program.dataframes.keys import KeyColumns
from pyflinkstate.runtime.program.dataframes.queries import KeyedProcessQuery, add_query, failure_of
from pyflinkstate.runtime.program.dataframes.steps import KeyedStep, StepFunction, chained
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.settings import RestartStrategy
from pyflinkstate.runtime.sinks import FileSink
from pyflinkstate.runtime.spark import job_failure
from pyflinkstate.runtime.storage import (
    AnyPath,
    absolute,
    check_spark_reaches,
    check_spark_reads,
    child_uri,
    name_below,
    open_file_system,
    path_in_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Rows are appended in both: what a function yields is never taken back.
_OUTPUT_MODES = ("append", "update")


@attrs.frozen(kw_only=True)
class JobOptions:
    """How the job behind a DataFrame is run; see :func:`keyed_process`.

    ``call`` is what the user called, for messages.
    """

    call: str = "keyed_process()"
    initial_state: DataFrame | None = None
    parallelism: int | None = None
    timestamp: Timestamp | None = None
    watermark: Length | WatermarkStrategy | None = None
    checkpoint_directory: AnyPath | None = None
    restore_from: AnyPath | None = None
    on_failure: RestartStrategy | None = None
    listener: JobListener | None = None
    trigger: dict[str, SparkObject] | None = None
    output_mode: str = "append"
    retention: Length | None = None
    job_name: str = "keyed_process"

    def check(self, df: DataFrame) -> None:
        """Check the DataFrame, and the options that depend on its kind.

        Raises:
            ConfigurationError: it is none of Spark's, or an option is missing or has no effect.
        """
        check_text("job_name", self.job_name)
        is_grouped = type(df).__name__ == "GroupedData"
        check_dataframe(self.call, df, "give the columns that it is grouped by as key=" if is_grouped else "")
        if self.output_mode.lower() not in _OUTPUT_MODES:
            raise ConfigurationError(
                f"output_mode must be 'append' or 'update', not {self.output_mode!r}: a function emits rows, "
                f"and no table of results"
            )
        if df.isStreaming:
            self._check_streaming()
        else:
            self._check_batch()

    def _check_streaming(self) -> None:
        if self.checkpoint_directory is None:
            raise ConfigurationError(f"{self.call} on a streaming DataFrame needs checkpoint_directory")
        if self.initial_state is not None and self.restore_from is not None:
            raise ConfigurationError(
                f"{self.call} takes initial_state or restore_from, not both: a savepoint has the state that "
                f"the job begins with"
            )

    def _check_batch(self) -> None:
        if self.checkpoint_directory is not None:
            raise ConfigurationError(
                f"{self.call} on a batch DataFrame takes no checkpoint_directory: its partitions may have "
                f"other records when they are computed again, so no restart from a checkpoint would be "
                f"exact. Leave it out; or read the input as a stream, with spark.readStream; or write it to "
                f"files, and read them with from_files() of an environment that has checkpoints"
            )
        for name in ("restore_from", "on_failure", "trigger", "retention"):
            if getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{self.call} on a batch DataFrame takes no {name}: that is for a streaming one, whose "
                    f"job has checkpoints"
                )

    def base(self) -> str:
        """Return the directory of checkpoints and results of a streaming DataFrame.

        Raises:
            ConfigurationError: Spark does not reach it.
        """
        assert self.checkpoint_directory is not None
        base = absolute(self.checkpoint_directory)
        check_spark_reaches(
            base,
            f"{self.call} with checkpoint_directory",
            "choose one that both can reach, such as hdfs://...",
        )
        return base

    def checkpoints(self, base: str) -> str:
        """Return the directory of the checkpoints below that of the job."""
        return child_uri(base, name_below(base, f"{self.job_name}-checkpoints"))

    def folders(self, base: str, tag_ids: Iterable[str]) -> dict[str, str]:
        """Return by the id of a tag the folder of its output below ``base``; "" stands for the results.

        Raises:
            ConfigurationError: Spark would not find one.
        """
        found: dict[str, str] = {}
        for tag_id in tag_ids:
            name = f"{self.job_name}-output{tag_id and '-'}{tag_id}"
            found[tag_id] = child_uri(base, name_below(base, name))
            check_spark_reads(
                found[tag_id],
                f"{self.call} on a streaming DataFrame keeps results in",
                "choose a checkpoint_directory, a job_name and ids of output tags without {}[]*?\\",
            )
        return found

    def ends_by_itself(self) -> bool:
        """Return whether the job of a streaming DataFrame ends when it has read what there is."""
        chosen = self.trigger or {}
        return bool(chosen.get("availableNow") or chosen.get("once"))

    def until_results(self) -> str:
        """Return for what a query waits that reads what there is of the results, and ends."""
        if self.ends_by_itself():
            return f"until job {self.job_name!r}, whose results it reads, has ended"
        return f"until job {self.job_name!r}, whose results it reads, has committed its first ones"

    @property
    def retention_ms(self) -> int | None:
        """How long results stay, in ms; None if for ever."""
        return None if self.retention is None else length_ms("retention", self.retention)

    def environment(self, df: DataFrame) -> StreamExecutionEnvironment:
        """Return the environment of the job."""
        env = StreamExecutionEnvironment(df.sparkSession)
        if self.parallelism is not None:
            env.set_parallelism(self.parallelism)
        if self.on_failure is not None:
            env.set_restart_strategy(self.on_failure)
        if self.listener is not None:
            env.add_listener(self.listener)
        if self.restore_from is not None:
            env.restore_from(self.restore_from)
        return env

    def rows(self, env: StreamExecutionEnvironment, df: DataFrame) -> DataStream:
        """Return the rows of the DataFrame, with timestamps if the job uses event time."""
        strategy = strategy_of(df.columns, df.isStreaming, self.timestamp, self.watermark)
        rows = env.from_streaming(df, trigger=self.trigger) if df.isStreaming else env.from_dataframe(df)
        return rows if strategy is None else rows.assign_timestamps_and_watermarks(strategy)


@overload
def keyed_process(
    df: DataFrame,
    *,
    key: KeyColumns,
    function: StepFunction,
    schema: SparkSchema,
    key_type: TypeInformation | None = None,
    parallelism: int | None = None,
    timestamp: Timestamp | None = None,
    watermark: Length | WatermarkStrategy | None = None,
    window: WindowAssigner | None = None,
    allowed_lateness: Length = 0,
    late_rows: OutputTag | None = None,
    initial_state: DataFrame | None = None,
    then: Sequence[KeyedStep] = (),
    side_outputs: None = None,
    checkpoint_directory: AnyPath | None = None,
    restore_from: AnyPath | None = None,
    on_failure: RestartStrategy | None = None,
    listener: JobListener | None = None,
    trigger: dict[str, SparkObject] | None = None,
    output_mode: str = "append",
    retention: Length | None = None,
    job_name: str = "keyed_process",
) -> DataFrame: ...


@overload
def keyed_process(
    df: DataFrame,
    *,
    key: KeyColumns,
    function: StepFunction,
    schema: SparkSchema,
    key_type: TypeInformation | None = None,
    parallelism: int | None = None,
    timestamp: Timestamp | None = None,
    watermark: Length | WatermarkStrategy | None = None,
    window: WindowAssigner | None = None,
    allowed_lateness: Length = 0,
    late_rows: OutputTag | None = None,
    initial_state: DataFrame | None = None,
    then: Sequence[KeyedStep] = (),
    side_outputs: Mapping[OutputTag, SparkSchema],
    checkpoint_directory: AnyPath | None = None,
    restore_from: AnyPath | None = None,
    on_failure: RestartStrategy | None = None,
    listener: JobListener | None = None,
    trigger: dict[str, SparkObject] | None = None,
    output_mode: str = "append",
    retention: Length | None = None,
    job_name: str = "keyed_process",
) -> tuple[DataFrame, ...]: ...


def keyed_process(
    df: DataFrame,
    *,
    key: KeyColumns,
    function: StepFunction,
    schema: SparkSchema,
    key_type: TypeInformation | None = None,
    parallelism: int | None = None,
    timestamp: Timestamp | None = None,
    watermark: Length | WatermarkStrategy | None = None,
    window: WindowAssigner | None = None,
    allowed_lateness: Length = 0,
    late_rows: OutputTag | None = None,
    initial_state: DataFrame | None = None,
    then: Sequence[KeyedStep] = (),
    side_outputs: Mapping[OutputTag, SparkSchema] | None = None,
    checkpoint_directory: AnyPath | None = None,
    restore_from: AnyPath | None = None,
    on_failure: RestartStrategy | None = None,
    listener: JobListener | None = None,
    trigger: dict[str, SparkObject] | None = None,
    output_mode: str = "append",
    retention: Length | None = None,
    job_name: str = "keyed_process",
) -> DataFrame | tuple[DataFrame, ...]:
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
        df: a batch or streaming DataFrame; the function gets Spark ``Row`` records.
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
            ``"7 days"``. The queries that read them must have done so by then. Default: for ever.
        job_name: the name of the job in checkpoints.

    For a batch DataFrame no checkpoints are taken, because an exact restart would not be guaranteed: its
    partitions may have other records when they are computed again, and results that are kept on the cluster
    end with the program. After a failure, call the function again.

    Raises:
        ConfigurationError: a streaming DataFrame has no ``checkpoint_directory``, or one on S3, or one that
            Spark takes for a pattern, a batch DataFrame has one, ``schema`` cannot be parsed,
            ``initial_state`` does not fit, two arguments do not go together, or ``side_outputs`` has no
            schema for ``late_rows``.
        RowError: a result does not fit ``schema``; for a streaming DataFrame it fails the job.
    """
    _check_lists(then, side_outputs)
    first = KeyedStep(
        key=key,
        function=function,
        schema=schema,
        key_type=key_type,
        window=window,
        allowed_lateness=allowed_lateness,
        late_rows=late_rows,
    )
    _check_late_rows([first, *then], side_outputs or {})
    options = JobOptions(
        initial_state=initial_state,
        parallelism=parallelism,
        timestamp=timestamp,
        watermark=watermark,
        checkpoint_directory=checkpoint_directory,
        restore_from=restore_from,
        on_failure=on_failure,
        listener=listener,
        trigger=trigger,
        output_mode=output_mode,
        retention=retention,
        job_name=job_name,
    )
    frames = process(df, [first, *then], side_outputs or {}, options)
    return frames[0] if side_outputs is None else tuple(frames)


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
    options.check(df)
    env = options.environment(df)
    base = options.base() if df.isStreaming else None
    if base is not None:
        env.enable_checkpointing(0, options.checkpoints(base), incremental=True)
    initial_rows = None
    if options.initial_state is not None:
        check_frame(options.initial_state, df, steps[0].key)
        initial_rows = rows_of(env, options.initial_state)
    made = chained(env, options.rows(env, df), df.columns, steps, options.job_name, initial_rows)
    outputs: dict[str, tuple[Node, SparkSchema]] = {"": (made[-1].node, steps[-1].schema)}
    for tag, schema in side_outputs.items():
        side = [stream.get_side_output(tag) for stream in made]
        outputs[tag.tag_id] = (side[0].union(*side[1:]).node if side[1:] else side[0].node, schema)
    if base is None:
        return env.run_to_dataframes(list(outputs.values()), options.job_name)
    return _streaming(env, df, outputs, options, base)


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
        empty = df.sparkSession.createDataFrame([], schema)
        rows, columns = env.rows_for_files(node, schema)
        made_by = _arrow_schema(empty) if columns is None else columns
        DataStream(env, rows).sink_to(FileSink(folder, "parquet", made_by, retention_ms=options.retention_ms))
        file_system, path = open_file_system(folder)
        file_system.create_dir(path, recursive=True)
        reader = df.sparkSession.readStream.schema(empty.schema)
        frames.append(reader.option("recursiveFileLookup", "true").parquet(path_in_spark(folder)))
    read = [path_in_spark(folder) for folder in folders.values()]
    until = options.until_results()
    readers = [(path, job_failure.ResultQueries(df.sparkSession, path, until)) for path in read]
    if not options.ends_by_itself():
        env.add_listener(_FirstResults(readers))
        if _has_results(folders[""]):
            _release(readers)
    client = env.execute_async(options.job_name)
    for path, queries in readers:
        if path in _readers:
            _readers[path].forget()
        _readers[path] = queries
        queries.hold()
    query = KeyedProcessQuery(client, read[0], options.job_name)
    add_query(query, partial(_tell, readers, options.job_name))
    return frames


def _has_results(folder: str) -> bool:
    """Return whether an earlier run of the job has committed anything."""
    file_system, path = open_file_system(folder)
    found = file_system.get_file_info(FileSelector(path, recursive=False))
    return any(entry.base_name.startswith("epoch=") for entry in found)


#: By directory of results: the queries that read what the newest job there commits.
_readers: dict[str, job_failure.ResultQueries] = {}


_Readers = list[tuple[str, job_failure.ResultQueries]]


@attrs.define
class _FirstResults(JobListener):
    """Lets the queries begin that wait for the first checkpoint, with which results are committed."""

    readers: _Readers
    has_come: bool = False

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        if not self.has_come:
            self.has_come = True
            _release(self.readers)


def _release(readers: _Readers) -> None:
    for _, queries in readers:
        queries.release()


def _tell(readers: _Readers, job_name: str, result: Future[JobExecutionResult]) -> None:
    """Have the queries of a job that has failed fail, unless a newer run of the job goes on for them."""
    error = failure_of(result)
    if error is not None:
        _fail(readers, job_name, error)
    _release(readers)


def _fail(readers: _Readers, job_name: str, error: BaseException) -> None:
    why = f"{type(error).__name__}: {error}"
    for output, queries in readers:
        if _readers.get(output) is queries:
            queries.fail(f"job {job_name!r}, whose results this query reads, has failed: {why}")


def _arrow_schema(frame: DataFrame) -> ArrowObject:
    return frame.toArrow().schema
