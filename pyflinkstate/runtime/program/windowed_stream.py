"""Streams in windows (``pyflink.datastream.WindowedStream``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from pyflinkstate.api.functions import AggregateFunction, Function, ReduceFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.triggers import Trigger
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.api.window_functions import (
    AllWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import window_operator
from pyflinkstate.runtime.program.stream_environment import StreamEnvironment

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.data_stream import DataStream
    from pyflinkstate.runtime.program.keyed_stream import KeyedStream

S = TypeVar("S", bound="_Windows")


class _Windows:
    """What windows of keyed streams and of others share."""

    def __init__(self, keyed_stream: KeyedStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        if not isinstance(window_assigner, WindowAssigner):
            raise ConfigurationError(f"window() takes a WindowAssigner, not {window_assigner!r}")
        self._stream = keyed_stream
        self._assigner = window_assigner
        self._trigger: Trigger[Any, Any] | None = None
        self._allowed_lateness_ms = 0
        self._late_tag: OutputTag | None = None

    def get_execution_environment(self) -> StreamEnvironment:
        """Return the environment that the stream belongs to."""
        return self._stream.get_execution_environment()

    def get_input_type(self) -> TypeInformation:
        """Return the type of the records that windows hold."""
        return self._stream.get_type()

    def trigger(self: S, trigger: Trigger[Any, Any]) -> S:
        """Say when windows fire. Default: as their assigner says."""
        self._trigger = trigger
        return self

    def allowed_lateness(self: S, time_ms: int) -> S:
        """Keep windows by event time for so long after their end; a late record fires them again."""
        self._allowed_lateness_ms = time_ms
        return self

    def side_output_late_data(self: S, output_tag: OutputTag) -> S:
        """Send records that are too late for all their windows to a side output; else they are dropped."""
        self._late_tag = output_tag
        return self

    def _append(
        self,
        contents: Any,
        function: Function | None,
        name: str,
        output_type: TypeInformation | None,
        contents_type: TypeInformation | None = None,
    ) -> DataStream:
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
        return stream.stateful(stream.as_input(), (), operator, name, output_type, uses_event_time=True)


class WindowedStream(_Windows):
    """The records of each key in windows."""

    def reduce(
        self,
        reduce_function: ReduceFunction | Any,
        window_function: WindowFunction[Any, Any, Any, Any]
        | ProcessWindowFunction[Any, Any, Any, Any]
        | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Combine the records of a window as they come.

        Args:
            reduce_function: a ``ReduceFunction``, or what combines two records.
            window_function: gets the one combined record; without it that is the result.
            output_type: what results are checked against.
        """
        return self._append(reduce_function, window_function, "window reduce", output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: WindowFunction[Any, Any, Any, Any]
        | ProcessWindowFunction[Any, Any, Any, Any]
        | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Aggregate the records of a window as they come.

        Args:
            aggregate_function: what to do with them.
            window_function: gets the one result; without it that is the result of the window.
            accumulator_type: what state keeps accumulators as.
            output_type: what results are checked against.
        """
        if not isinstance(aggregate_function, AggregateFunction):
            raise ConfigurationError(f"aggregate() takes an AggregateFunction, not {aggregate_function!r}")
        return self._append(
            aggregate_function, window_function, "window aggregate", output_type, accumulator_type
        )

    def apply(
        self, window_function: WindowFunction[Any, Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """Call ``window_function`` with all records of a window when it fires."""
        return self._append(list, window_function, type(window_function).__name__, output_type)

    def process(
        self,
        process_window_function: ProcessWindowFunction[Any, Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Call ``process_window_function`` with all records of a window when it fires."""
        name = type(process_window_function).__name__
        return self._append(list, process_window_function, name, output_type)


def _one_key(_: Any) -> int:
    return 0


class AllWindowedStream(_Windows):
    """All records in windows, in one subtask."""

    def __init__(self, data_stream: DataStream, window_assigner: WindowAssigner[Any, Any]) -> None:
        super().__init__(data_stream.key_by(_one_key), window_assigner)

    def _append(self, *args: Any) -> DataStream:
        return super()._append(*args).force_non_parallel()

    def reduce(
        self,
        reduce_function: ReduceFunction | Any,
        window_function: AllWindowFunction[Any, Any, Any]
        | ProcessAllWindowFunction[Any, Any, Any]
        | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """See :meth:`WindowedStream.reduce`."""
        return self._append(reduce_function, window_function, "window reduce", output_type)

    def aggregate(
        self,
        aggregate_function: AggregateFunction,
        window_function: AllWindowFunction[Any, Any, Any]
        | ProcessAllWindowFunction[Any, Any, Any]
        | None = None,
        accumulator_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """See :meth:`WindowedStream.aggregate`."""
        if not isinstance(aggregate_function, AggregateFunction):
            raise ConfigurationError(f"aggregate() takes an AggregateFunction, not {aggregate_function!r}")
        return self._append(
            aggregate_function, window_function, "window aggregate", output_type, accumulator_type
        )

    def apply(
        self, window_function: AllWindowFunction[Any, Any, Any], output_type: TypeInformation | None = None
    ) -> DataStream:
        """See :meth:`WindowedStream.apply`."""
        return self._append(list, window_function, type(window_function).__name__, output_type)

    def process(
        self,
        process_window_function: ProcessAllWindowFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """See :meth:`WindowedStream.process`."""
        name = type(process_window_function).__name__
        return self._append(list, process_window_function, name, output_type)
