"""Streams in windows (``pyflink.datastream.WindowedStream``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

from pyflinkstate.api.functions import AggregateFunction, Function, ReduceFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.triggers import Trigger
from pyflinkstate.api.type_information import OutputType
from pyflinkstate.api.type_variables import ACC, K, R, T, V, W
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Record, UserFunction
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.program.user_functions import check_function, refuse_checkpointed_contents

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.data_stream import DataStream
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream

S = TypeVar("S", bound="_Windows")
_WINDOW_FUNCTIONS = (WindowFunction, ProcessWindowFunction, AllWindowFunction, ProcessAllWindowFunction)


class _Windows(Generic[T, K, W]):
    """What windows on keyed and other streams have in common; each takes the window functions of its kind."""

    #: Whether all records meet in one subtask.
    _is_non_parallel = False

    def __init__(self, keyed_stream: KeyedStream[K, T], window_assigner: WindowAssigner[T, W]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise ConfigurationError(f"window() takes a WindowAssigner, not {window_assigner!r}")
        self._stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[T, W] | None = None
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag[T] | None = None

    def get_execution_environment(self) -> StreamExecutionEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation[T]:
        """Return the type of the records in windows."""
        return self._stream.get_type()

    def trigger(self: S, trigger: Trigger[T, W]) -> S:
        """Set when windows fire. Default: the trigger of the assigner."""
        self._trigger = trigger
        return self

    def allowed_lateness(self: S, time_ms: int) -> S:
        """Keep event-time windows for that long after their end; a late record makes them fire again."""
        self._allowed_lateness_ms = time_ms
        return self

    def side_output_late_data(self: S, output_tag: OutputTag[T]) -> S:
        """Send records that are too late for all their windows to a side output, instead of dropping them."""
        self._late_tag = output_tag
        return self

    def _append(
        self,
        contents: UserFunction,
        function: Function | None,
        name: str,
        output_type: OutputType | None,
        contents_type: TypeInformation | None = None,
        keeps_type: bool = False,
    ) -> DataStream:
        if function is not None:
            check_function("a window", function, _WINDOW_FUNCTIONS)
        if contents is not list:
            check_function("a window", contents, (ReduceFunction, AggregateFunction), arguments=2)
            refuse_checkpointed_contents(contents)
        operator = window_operator(
            self._assigner,
            self._trigger,
            self._allowed_lateness_ms,
            self._late_tag,
            contents,
            function,
            contents_type,
        )
        stream = self._stream
        made = stream.stateful(
            (stream.as_input(),), operator, name, output_type, uses_event_time=True, keeps_type=keeps_type
        )
        return made.force_non_parallel() if self._is_non_parallel else made

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: None = None,
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: (
            WindowFunction[T, R, K, W]
            | ProcessWindowFunction[T, R, K, W]
            | AllWindowFunction[T, R, W]
            | ProcessAllWindowFunction[T, R, W]
        ),
        output_type: OutputType[R] | None = None,
    ) -> DataStream[R]: ...

    def reduce(
        self,
        reduce_function: ReduceFunction[T] | Callable[[T, T], T],
        window_function: Function | None = None,
        output_type: OutputType | None = None,
    ) -> DataStream:
        """Combine the records of a window as they come.

        Args:
            reduce_function: a ``ReduceFunction``, or a callable that combines two records.
            window_function: called with the one combined record; without it that record is the result.
            output_type: the type against which results are checked. Default: without a window function the
                type of the records.
        """
        keeps_type = window_function is None
        return self._append(
            reduce_function, window_function, "window reduce", output_type, keeps_type=keeps_type
        )

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, V],
        window_function: None = None,
        accumulator_type: TypeInformation[ACC] | None = None,
        output_type: OutputType[V] | None = None,
    ) -> DataStream[V]: ...

    @overload
    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, V],
        window_function: (
            WindowFunction[V, R, K, W]
            | ProcessWindowFunction[V, R, K, W]
            | AllWindowFunction[V, R, W]
            | ProcessAllWindowFunction[V, R, W]
        ),
        accumulator_type: TypeInformation[ACC] | None = None,
        output_type: OutputType[R] | None = None,
    ) -> DataStream[R]: ...

    def aggregate(
        self,
        aggregate_function: AggregateFunction[T, ACC, V],
        window_function: Function | None = None,
        accumulator_type: TypeInformation[ACC] | None = None,
        output_type: OutputType | None = None,
    ) -> DataStream:
        """Aggregate the records of a window as they come.

        Args:
            aggregate_function: aggregates the records.
            window_function: called with the one aggregated result; without it that is the result of the
                window.
            accumulator_type: the type of accumulators in state.
            output_type: the type against which results are checked.
        """
        check_function("aggregate()", aggregate_function, (AggregateFunction,))
        return self._append(
            aggregate_function, window_function, "window aggregate", output_type, accumulator_type
        )

    def apply(
        self,
        window_function: WindowFunction[T, R, K, W] | AllWindowFunction[T, R, W],
        output_type: OutputType[R] | None = None,
    ) -> DataStream[R]:
        """Call ``window_function`` with all records of a window when it fires."""
        return self._append(list, window_function, type(window_function).__name__, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[T, R, K, W] | ProcessAllWindowFunction[T, R, W],
        output_type: OutputType[R] | None = None,
    ) -> DataStream[R]:
        """Call ``process_window_function`` with all records of a window when it fires."""
        name = type(process_window_function).__name__
        return self._append(list, process_window_function, name, output_type)


class WindowedStream(_Windows[T, K, W], Generic[T, K, W]):
    """The records of each key in windows."""


def _one_key(_: Record) -> int:
    return 0


class AllWindowedStream(_Windows[T, int, W], Generic[T, W]):
    """All records in windows, in one subtask."""

    _is_non_parallel = True

    def __init__(self, data_stream: DataStream[T], window_assigner: WindowAssigner[T, W]) -> None:
        super().__init__(data_stream.key_by(_one_key), window_assigner)
