"""Functions in a row over the rows of a DataFrame, each with its own key."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from pyflinkstate.api.functions import AggregateFunction, KeyedProcessFunction, ReduceFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record, SelectKey, SparkSchema
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.api.window_functions import ProcessWindowFunction, WindowFunction
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.dataframes.event_time import Length, length_ms
from pyflinkstate.runtime.program.windowed_stream import WindowedStream
from pyflinkstate.runtime.spark import arrow, row_schema

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream

#: The name of a column, several names, or a function of the row.
Key: TypeAlias = "str | list[str] | SelectKey"
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
        late_rows: the tag of a side output for rows that are later than that; otherwise they are dropped.
        uid: the id of the function's state in checkpoints.
    """

    key: Key
    function: StepFunction
    schema: SparkSchema
    key_type: TypeInformation | None = None
    window: WindowAssigner | None = None
    allowed_lateness: Length = 0
    late_rows: OutputTag | None = None
    uid: str | None = None

    def results(self, rows: DataStream, columns: list[str] | None, uid: str) -> DataStream:
        """Return the results of the step; ``columns`` are those of the rows, if they are known."""
        keyed = rows.key_by(selector(self.key, columns), self.key_type)
        made = self.processed(keyed) if self.window is None else self._windowed(keyed, self.window)
        return made.uid(self.uid or uid)

    def processed(self, keyed: KeyedStream) -> DataStream:
        """Return the results of a function without windows."""
        if self.late_rows is not None or self.allowed_lateness != 0:
            raise ConfigurationError("allowed_lateness= and late_rows= need window=")
        function: KeyedProcessFunction = self.function  # type: ignore[assignment]  # process() checks it
        return keyed.process(function)

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


def selector(key: Key, columns: list[str] | None) -> SelectKey:
    """Return what selects the key of a row.

    Raises:
        ConfigurationError: there is no such column.
    """
    if callable(key):
        return key
    names = [key] if isinstance(key, str) else list(key)
    missing = [name for name in names if columns is not None and name not in columns]
    if missing:
        raise ConfigurationError(
            f"there is no column {missing[0]!r}; the columns are {', '.join(columns or ())}"
        )
    return arrow.ColumnKey(tuple(names))


def chained(
    env: StreamExecutionEnvironment,
    rows: DataStream,
    columns: list[str],
    steps: list[KeyedStep],
    job_name: str,
) -> list[DataStream]:
    """Return the results of each step, each of which reads the rows of the one before."""
    made: list[DataStream] = []
    names: list[str] | None = columns
    for number, step in enumerate(steps, 1):
        if made:
            rows, names = _as_rows(env, made[-1], steps[number - 2].schema)
        made.append(step.results(rows, names, job_name if number == 1 else f"{job_name}-{number}"))
    return made


def _as_rows(
    env: StreamExecutionEnvironment, results: DataStream, schema: SparkSchema
) -> tuple[DataStream, list[str] | None]:
    """Return results as rows with names, and the names."""
    names = getattr(row_schema.schema_of(schema), "names", None)
    checked = DataStream(env, env.checked_rows(results.node, schema))
    return (checked, None) if names is None else (checked.map(_Named(tuple(names))), list(names))


@attrs.frozen
class _Named:
    names: tuple[str, ...]

    def __call__(self, values: Record) -> Record:
        return arrow.row_maker(self.names)(values)
