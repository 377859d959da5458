"""The steps and the options of ``keyed_process`` and ``keyed_map``.

Each option is named once, in a TypedDict for type checkers. An option that is not passed has no key
there. :class:`JobOptions` says what the options of the job do.
"""

from __future__ import annotations

import datetime
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict, cast

import attrs

from pyflinkstate.api import (
    AggregateFunction,
    ArrowTable,
    Duration,
    KeyedProcessFunction,
    LengthOfTime,
    OutputTag,
    ProcessWindowFunction,
    Record,
    ReduceFunction,
    SelectKey,
    SparkObject,
    SparkSchema,
    Time,
    TimestampAssigner,
    TypeInformation,
    WatermarkStrategy,
    WindowAssigner,
    WindowFunction,
    as_int,
    check_dataframe,
    check_kind,
    check_text,
    milliseconds_of,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import JobListener
from pyflinkstate.runtime.operators import awaits
from pyflinkstate.runtime.plan import Input, SourceNode
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.program.keyed_stream import WindowedStream
from pyflinkstate.runtime.program.user_functions import check_function, name_of
from pyflinkstate.runtime.settings import RestartStrategy
from pyflinkstate.runtime.sinks import FileCompactStrategy
from pyflinkstate.runtime.sources import InitialRows
from pyflinkstate.runtime.spark import row_batches, row_columns
from pyflinkstate.runtime.storage import (
    AnyPath,
    absolute,
    check_spark_reaches,
    check_spark_reads,
    child_uri,
    name_below,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pyflinkstate.runtime.program.keyed_stream import KeyedStream


#: The name of a column, several names, or a function of the row.
KeyColumns: TypeAlias = "str | list[str] | tuple[str, ...] | SelectKey"


def columns_of(key: KeyColumns, option: str = "key=") -> list[str]:
    """Return the columns of a key, or of another ``option``; none if it is a function of the row.

    Raises:
        ConfigurationError: it is something else, or names no column.
    """
    if callable(key):
        return []
    names: list[Any] = list(key) if isinstance(key, (list, tuple)) else [key]
    if not names:
        raise ConfigurationError(
            f"{option}{key!r} names no column, so that all rows would have one key: give the names of "
            f"columns, or a function of the row"
        )
    # What else has several names may have no order, or be used up when it is looked at.
    if isinstance(key, Iterable) and not (isinstance(key, (str, list, tuple)) or _is_column(key)):
        raise ConfigurationError(
            f"{option} takes the name of a column, a list of names or a function of the row, not "
            f"{safe_repr(key)}"
        )
    for name in names:
        check_name(option, name)
    return names


def check_name(option: str, name: object) -> None:
    """Check that a column is given by its name.

    Raises:
        ConfigurationError: it is a Spark ``Column``, or anything else that is not a string.
    """
    if _is_column(name):
        told = str(name).removeprefix("Column<'").removesuffix("'>")
        raise ConfigurationError(f"{option} is the name of a column, not a Column: {told!r}")
    check_kind(f"{option} is the name of a column, or a function of the row", name, str)


def _is_column(name: object) -> bool:
    return type(name).__name__ == "Column" and type(name).__module__.startswith("pyspark.")


def selector(key: KeyColumns, columns: list[str] | None, of: str = "") -> SelectKey:
    """Return what selects the key of a row.

    Args:
        key: the key.
        columns: the columns of the rows, if they are known.
        of: where the rows come from, for the error.

    Raises:
        ConfigurationError: there is no such column.
    """
    if callable(key):
        return key
    names = columns_of(key)
    missing = [name for name in names if columns is not None and name not in columns]
    if missing:
        where = f"{of}: " if of else ""
        raise ConfigurationError(
            f"{where}there is no column {missing[0]!r}; the columns are {', '.join(columns or ())}"
        )
    return row_batches.ColumnKey(tuple(names))


#: A column, or a function of the row that returns a moment, a day or milliseconds since 1970.
Timestamp: TypeAlias = str | Callable[[Any], object]
#: A length of time: in words such as ``"10 seconds"``, in milliseconds, or as a window takes it.
Length: TypeAlias = str | int | LengthOfTime

_UNITS_MS: Final = {
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
_PART = re.compile(r"(\d+)\s*([a-z]+)")


def length_ms(name: str, length: Length) -> int:
    """Return a length of time in milliseconds.

    >>> length_ms("watermark", "1 minute 30 seconds")
    90000

    Raises:
        ConfigurationError: it is not a length of time, or it is negative.
    """
    if isinstance(length, str):
        return _parsed(name, length)
    is_number = not isinstance(length, (Duration, Time, datetime.timedelta))
    found = as_int(length) if is_number else milliseconds_of(length)  # type: ignore[arg-type]
    if found is None or found < 0:
        raise _no_length(name, length)
    return found


def _parsed(name: str, text: str) -> int:
    parts = _PART.findall(text.lower())
    units = [unit.removesuffix("s") for _, unit in parts]
    if not parts or _PART.sub("", text.lower()).strip() or not set(units) <= _UNITS_MS.keys():
        raise _no_length(name, text)
    return sum(int(number) * _UNITS_MS[unit] for (number, _), unit in zip(parts, units, strict=True))


def _no_length(name: str, length: object) -> ConfigurationError:
    return ConfigurationError(
        f"{name} takes a length of time, such as '10 seconds', a timedelta or a number of milliseconds, not "
        f"{length!r}"
    )


@attrs.frozen
class _FunctionTimestamps(TimestampAssigner):
    function: Callable[[Record], object]

    def extract_timestamp(self, value: Record, record_timestamp: int) -> int:
        found: int = row_batches.as_milliseconds(self.function(value))
        return found


def strategy_of(
    columns: list[str],
    is_streaming: bool,
    timestamp: Timestamp | None,
    watermark: Length | WatermarkStrategy | None,
) -> WatermarkStrategy | None:
    """Return how timestamps and watermarks are made, or None if the job does not use event time.

    Raises:
        ConfigurationError: there is no such column, ``timestamp`` is no name of one, or one of the two is
            missing.
    """
    if timestamp is None and watermark is None:
        return None
    assigner = None if timestamp is None else _assigner(columns, timestamp)
    if isinstance(watermark, WatermarkStrategy):
        return watermark if assigner is None else watermark.with_timestamp_assigner(assigner)
    if assigner is None:
        raise ConfigurationError("watermark= needs timestamp=: the column that says when a row happened")
    if watermark is not None:
        strategy = WatermarkStrategy(length_ms("watermark", watermark))
    elif is_streaming:
        raise ConfigurationError(
            "timestamp= on a streaming DataFrame needs watermark=: how late rows may come, as '10 seconds'"
        )
    else:
        strategy = WatermarkStrategy.no_watermarks()
    return strategy.with_timestamp_assigner(assigner)


def _assigner(columns: list[str], timestamp: Timestamp) -> TimestampAssigner:
    if callable(timestamp):
        return _FunctionTimestamps(timestamp)
    check_name("timestamp=", timestamp)
    if timestamp not in columns:
        raise ConfigurationError(f"there is no column {timestamp!r}; the columns are {', '.join(columns)}")
    return row_batches.ColumnTimestamps(timestamp)


#: Under this name the rows are counted and shown.
SOURCE_NAME = "initial state"
_WHOLE_NUMBERS = {"tinyint", "smallint", "int", "bigint"}


def check_frame(initial_state: DataFrame, df: DataFrame, key: KeyColumns) -> None:
    """Check that rows of ``initial_state`` can have keys of ``df``.

    Raises:
        ConfigurationError: it is not a batch DataFrame, or lacks these columns, or their types differ.
    """
    check_dataframe("initial_state=", initial_state)
    if initial_state.isStreaming:
        raise ConfigurationError(
            "initial_state= takes a batch DataFrame, and this is a streaming one: it is read once, before "
            "the first row of the input"
        )
    selector(key, initial_state.columns, "initial_state=")
    for name in columns_of(key):
        _check_same_type(name, df, initial_state)


def _check_same_type(name: str, df: DataFrame, initial_state: DataFrame) -> None:
    """Check a column of the key: a number and its text are two keys, which would never meet."""
    if name not in df.columns:
        return  # the step says so
    own, other = (frame.schema[name].dataType.simpleString() for frame in (df, initial_state))
    if own != other and not {own, other} <= _WHOLE_NUMBERS:
        raise ConfigurationError(
            f"initial_state=: its column {name!r} is {other}, and that of the input is {own}, so their keys "
            f"would not meet: cast one of them"
        )


def check_method(function: object) -> None:
    """Check that a function takes rows of initial state.

    Raises:
        ConfigurationError: it does not, or would emit or await something.
    """
    if not isinstance(function, KeyedProcessFunction):
        raise ConfigurationError(
            f"initial_state= needs a KeyedProcessFunction, which says in handle_initial_state() what a row "
            f"means, not {function!r}"
        )
    kind, method = type(function), function.handle_initial_state
    if kind.handle_initial_state is KeyedProcessFunction.handle_initial_state:
        raise ConfigurationError(
            f"initial_state= needs a function that says what a row of it means: define "
            f"handle_initial_state(self, value, ctx) in {kind.__name__}"
        )
    if awaits(method) or inspect.isgeneratorfunction(method):
        does = "is 'async def'" if awaits(method) else "yields"
        raise ConfigurationError(
            f"{kind.__name__}.handle_initial_state() {does}: it fills the state of the row's key, and "
            f"returns nothing"
        )


def rows_of(env: StreamExecutionEnvironment, initial_state: DataFrame) -> DataStream:
    """Return the rows of a DataFrame, which a job reads first if it does not go on from a checkpoint."""
    return DataStream(env, SourceNode(InitialRows(partial(row_batches.epoch_of, initial_state)), SOURCE_NAME))


AnyWindowFunction: TypeAlias = "ProcessWindowFunction | WindowFunction"
Combine: TypeAlias = "AggregateFunction | ReduceFunction"
#: What a step calls. With a window: how its rows are combined, what is called at its end, or a pair of both.
StepFunction: TypeAlias = (
    "KeyedProcessFunction | AnyWindowFunction | Combine | tuple[Combine, AnyWindowFunction]"
)


@attrs.frozen(kw_only=True)
class KeyedStep:
    """A keyed function over rows, with the schema of its results.

    :func:`keyed_process` takes further steps as ``then``. Each gets the rows that the one before it made.

    Attributes:
        key: the name of a column, several names, or a function of the row.
        function: a ``KeyedProcessFunction``. With ``window``: an ``AggregateFunction`` or ``ReduceFunction``,
            a ``ProcessWindowFunction`` or ``WindowFunction``, or a tuple of one of the former and one of the
            latter, which is called with the combined value.
        schema: of the results: what ``createDataFrame`` takes, such as ``"user string, n long"``.
        key_type: see :meth:`DataStream.key_by`.
        window: puts the rows of each key into windows, such as ``TumblingEventTimeWindows.of(...)``.
        allowed_lateness: for how long after its end a window takes late rows, as ``"1 minute"``.
        late_rows: the tag of a side output for rows that are later than that, whose schema is in the
            ``side_outputs`` of :func:`keyed_process`. Without it they are dropped, and counted.
        uid: the id of the function's state in checkpoints.
    """

    key: KeyColumns
    function: StepFunction
    schema: SparkSchema
    key_type: TypeInformation | None = None
    window: WindowAssigner | None = None
    allowed_lateness: Length = 0
    late_rows: OutputTag | None = None
    uid: str | None = None

    def results(
        self, rows: DataStream, columns: list[str] | None, uid: str, initial_rows: DataStream | None = None
    ) -> DataStream:
        """Return the results of the step.

        Args:
            rows: the rows that it reads.
            columns: their columns, if these are known.
            uid: its uid, unless it has one of its own.
            initial_rows: rows that fill its state first; they have the key's columns too.
        """
        select_key = selector(self.key, columns)
        keyed = rows.key_by(select_key, self.key_type)
        initial = (
            () if initial_rows is None else (initial_rows.key_by(select_key, self.key_type)._as_input(),)
        )
        if self.window is None:
            made = self.processed(keyed, initial)
        elif initial:
            raise ConfigurationError(
                "initial_state= and window= do not go together: windows cannot be seeded"
            )
        else:
            made = self._windowed(keyed, self.window)
        return made.uid(uid if self.uid is None else self.uid)

    def processed(self, keyed: KeyedStream, initial: tuple[Input, ...]) -> DataStream:
        """Return the results of a function without windows; ``initial`` is the input of its initial state."""
        if self.late_rows is not None or self.allowed_lateness != 0:
            raise ConfigurationError("allowed_lateness= and late_rows= need window=")
        check_function("keyed_process()", self.function, (KeyedProcessFunction,))
        if initial:
            check_method(self.function)
        return keyed._stateful(
            (keyed._as_input(), *initial), self.function, name_of(self.function, "process"), None
        )

    def _windowed(self, keyed: KeyedStream, assigner: WindowAssigner) -> DataStream:
        windows = keyed.window(assigner)
        lateness_ms = length_ms("allowed_lateness", self.allowed_lateness)
        if lateness_ms:
            windows = windows.allowed_lateness(lateness_ms)
        if self.late_rows is not None:
            windows = windows.side_output_late_data(self.late_rows)
        combine, function = self.function if isinstance(self.function, tuple) else (self.function, None)
        return _combined(windows, combine, function)


def _combined(
    windows: WindowedStream, combine: StepFunction, function: AnyWindowFunction | None
) -> DataStream:
    if isinstance(combine, AggregateFunction):
        return windows.aggregate(combine) if function is None else windows.aggregate(combine, function)
    if isinstance(combine, ReduceFunction):
        return windows.reduce(combine) if function is None else windows.reduce(combine, function)
    if isinstance(combine, ProcessWindowFunction) and function is None:
        return windows.process(combine)
    if isinstance(combine, WindowFunction) and function is None:
        return windows.apply(combine)
    raise ConfigurationError(
        f"window= needs a function for windows: an AggregateFunction or ReduceFunction, a "
        f"ProcessWindowFunction or WindowFunction, or a tuple of both kinds, not {combine!r}"
    )


def chained(
    env: StreamExecutionEnvironment,
    rows: DataStream,
    columns: list[str],
    steps: list[KeyedStep],
    job_name: str,
    initial_rows: DataStream | None = None,
) -> list[DataStream]:
    """Return the results of each step, each of which reads the rows of the one before.

    ``initial_rows`` fill the state of the first step.
    """
    made = [steps[0].results(rows, columns, job_name, initial_rows)]
    for number, step in enumerate(steps[1:], 2):
        rows, names = _as_rows(env, made[-1], steps[number - 2].schema)
        made.append(step.results(rows, names, f"{job_name}-{number}"))
    return made


def _as_rows(
    env: StreamExecutionEnvironment, results: DataStream, schema: SparkSchema
) -> tuple[DataStream, list[str] | None]:
    """Return results as rows with names, and the names."""
    names = getattr(row_columns.schema_of(schema), "names", None)
    checked = DataStream(env, env._jobs.checked_rows(results._node, schema, for_spark=False))
    return (checked, None) if names is None else (checked.map(_Named(tuple(names))), list(names))


@attrs.frozen
class _Named:
    names: tuple[str, ...]

    def __call__(self, values: Iterable[object]) -> object:
        return row_batches.row_maker(self.names)(values)


#: How long results stay by default: as long as records in Kafka.
DEFAULT_RETENTION = "7 days"
#: Rows are appended in both: what a function yields is never taken back.
_OUTPUT_MODES = ("append", "update")


class JobKeywords(TypedDict, total=False):
    """Options of the job behind a DataFrame, for both functions."""

    initial_state: DataFrame | ArrowTable | None
    parallelism: int | None
    checkpoint_directory: AnyPath | None
    restore_from: AnyPath | None
    on_failure: RestartStrategy | None
    listener: JobListener | None
    trigger: dict[str, SparkObject] | None
    output_mode: str
    retention: Length | None
    compact: FileCompactStrategy | Length | None
    job_name: str


class _Required(TypedDict):
    key: KeyColumns
    function: StepFunction
    schema: SparkSchema


class StepKeywords(_Required, total=False):
    """The fields of the first :class:`KeyedStep`, which has no uid of its own."""

    key_type: TypeInformation | None
    window: WindowAssigner | None
    allowed_lateness: Length
    late_rows: OutputTag | None


class ProcessKeywords(StepKeywords, JobKeywords, total=False):
    """The options of ``keyed_process``, without ``side_outputs``."""

    timestamp: Timestamp | None
    watermark: Length | WatermarkStrategy | None
    then: Sequence[KeyedStep]


def check_keywords(call: str, given: Mapping[str, object], known: type, others: Collection[str] = ()) -> None:
    """Check the names of the options that a function was called with.

    Args:
        call: the function, for messages.
        given: the options.
        known: the TypedDict of those that it takes.
        others: its other parameters, one of which a misspelled name may mean.

    Raises:
        ConfigurationError: one is not known, or one is missing that must be given.
    """
    names = known.__annotations__
    for name in given:
        if name not in names:
            near = get_close_matches(name, [*names, *others], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"the options are {', '.join(names)}"
            raise ConfigurationError(f"{call} has no option {name!r}; {hint}")
    missing = [name for name in names if name in _Required.__annotations__ and name not in given]
    if missing:
        raise ConfigurationError(f"{call} needs {', '.join(f'{name}=' for name in missing)}")


@attrs.frozen
class JobOptions:
    """How the job behind a DataFrame is run; see :func:`keyed_process`.

    Attributes:
        call: the function that the user called, for messages.
        given: its options.
        timestamp: when a row happened.
        watermark: how much later than others a row may come.
    """

    call: str
    given: JobKeywords
    timestamp: Timestamp | None = None
    watermark: Length | WatermarkStrategy | None = None

    @property
    def job_name(self) -> str:
        """The name of the job; by default that of the function."""
        return self.given.get("job_name", self.call.removesuffix("()"))

    @property
    def initial_state(self) -> DataFrame | None:
        """The initial state, if there is one; a table of another library is a Spark DataFrame by now."""
        return cast("DataFrame | None", self.given.get("initial_state"))

    def check(self, df: DataFrame) -> None:
        """Check the DataFrame, and the options that depend on its kind.

        Raises:
            ConfigurationError: it is not a Spark DataFrame, or an option is missing or would have no effect.
        """
        check_text("job_name", self.job_name)
        check_dataframe(
            self.call,
            df,
            "give the columns that it is grouped by as key=" if type(df).__name__ == "GroupedData" else "",
        )
        output_mode = self.given.get("output_mode", "append")
        if output_mode.lower() not in _OUTPUT_MODES:
            raise ConfigurationError(
                f"output_mode must be 'append' or 'update', not {output_mode!r}: a function emits rows, "
                f"and no table of results"
            )
        if df.isStreaming:
            self._check_streaming()
        else:
            self._check_batch()

    def _has(self, name: str) -> bool:
        """Return whether an option is given; None stands for the default."""
        return self.given.get(name) is not None

    def _check_streaming(self) -> None:
        if not self._has("checkpoint_directory"):
            raise ConfigurationError(f"{self.call} on a streaming DataFrame needs checkpoint_directory")
        if self._has("initial_state") and self._has("restore_from"):
            raise ConfigurationError(
                f"{self.call} takes initial_state or restore_from, not both: a savepoint has the state that "
                f"the job begins with"
            )

    def _check_batch(self) -> None:
        if self._has("checkpoint_directory"):
            raise ConfigurationError(
                f"{self.call} on a batch DataFrame takes no checkpoint_directory: its partitions may have "
                f"other records when they are computed again, so no restart from a checkpoint would be "
                f"exact. Leave it out; or read the input as a stream, with spark.readStream; or write it to "
                f"files, and read them with from_files() of an environment that has checkpoints"
            )
        names = ("restore_from", "on_failure", "trigger", "retention", "compact")
        for name in filter(self._has, names):
            raise ConfigurationError(
                f"{self.call} on a batch DataFrame takes no {name}: that is for a streaming one, whose "
                f"job has checkpoints"
            )

    def base(self) -> str:
        """Return the directory of checkpoints and results of a streaming DataFrame.

        Raises:
            ConfigurationError: Spark does not reach it.
        """
        directory = self.given.get("checkpoint_directory")
        assert directory is not None
        base = absolute(directory)
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
            found[tag_id] = child_uri(
                base, name_below(base, f"{self.job_name}-output{tag_id and '-'}{tag_id}")
            )
            check_spark_reads(
                found[tag_id],
                f"{self.call} on a streaming DataFrame keeps results in",
                "choose a checkpoint_directory, a job_name and ids of output tags without {}[]*?\\",
            )
        return found

    def ends_by_itself(self) -> bool:
        """Return whether the job of a streaming DataFrame ends when it has read what there is."""
        chosen = self.given.get("trigger") or {}
        return bool(chosen.get("availableNow") or chosen.get("once"))

    def until_results(self) -> str:
        """Return for what a query waits that reads what there is of the results, and ends."""
        if self.ends_by_itself():
            return f"until job {self.job_name!r}, whose results it reads, has ended"
        return f"until job {self.job_name!r}, whose results it reads, has committed its first ones"

    @property
    def retention_ms(self) -> int | None:
        """How long results stay, in ms; None if for ever."""
        retention = self.given.get("retention", DEFAULT_RETENTION)
        return None if retention is None else length_ms("retention", retention)

    @property
    def compact(self) -> FileCompactStrategy | None:
        """When results are joined; None if not at all."""
        compact = self.given.get("compact")
        if compact is None or isinstance(compact, FileCompactStrategy):
            return compact
        return FileCompactStrategy(delay_ms=length_ms("compact", compact))

    def environment(self, df: DataFrame) -> StreamExecutionEnvironment:
        """Return the environment of the job."""
        env, given = StreamExecutionEnvironment(df.sparkSession), self.given
        if (parallelism := given.get("parallelism")) is not None:
            env.set_parallelism(parallelism)
        if (strategy := given.get("on_failure")) is not None:
            env.set_restart_strategy(strategy)
        if (listener := given.get("listener")) is not None:
            env.add_listener(listener)
        if (folder := given.get("restore_from")) is not None:
            env.restore_from(folder)
        return env

    def rows(self, env: StreamExecutionEnvironment, df: DataFrame) -> DataStream:
        """Return the rows of the DataFrame, with timestamps if the job uses event time."""
        strategy = strategy_of(df.columns, df.isStreaming, self.timestamp, self.watermark)
        rows = (
            env.from_streaming(df, trigger=self.given.get("trigger"))
            if df.isStreaming
            else env.from_dataframe(df)
        )
        return rows if strategy is None else rows.assign_timestamps_and_watermarks(strategy)
