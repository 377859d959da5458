"""Functions in a row over the rows of a DataFrame, each with its own key."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import attrs

from pyflinkstate.api.functions import AggregateFunction, KeyedProcessFunction, ReduceFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record, SparkSchema
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.api.window_functions import ProcessWindowFunction, WindowFunction
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.plan import Input
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.dataframes.event_time import Length, length_ms
from pyflinkstate.runtime.program.dataframes.initial_state import check_method
from pyflinkstate.runtime.program.dataframes.keys import KeyColumns, selector
from pyflinkstate.runtime.program.user_functions import check_function, name_of
from pyflinkstate.runtime.program.windowed_stream import WindowedStream
from pyflinkstate.runtime.spark import row_batches, row_schema

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream

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
        initial = () if initial_rows is None else (initial_rows.key_by(select_key, self.key_type).as_input(),)
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
        return keyed.stateful(
            (keyed.as_input(), *initial), self.function, name_of(self.function, "process"), None
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
    names = getattr(row_schema.schema_of(schema), "names", None)
    checked = DataStream(env, env.jobs.checked_rows(results.node, schema, for_spark=False))
    return (checked, None) if names is None else (checked.map(_Named(tuple(names))), list(names))


@attrs.frozen
class _Named:
    names: tuple[str, ...]

    def __call__(self, values: Record) -> Record:
        return row_batches.row_maker(self.names)(values)
