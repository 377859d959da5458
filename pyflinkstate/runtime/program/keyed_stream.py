"""Streams whose records have keys or are in windows (``pyflink.datastream.KeyedStream``)."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar, overload

from pyflinkstate.api import (
    ACC,
    AggregateFunction,
    AllWindowFunction,
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    CountWindow,
    Function,
    K,
    K_co,
    KeyedProcessFunction,
    KeySelector,
    OutputTag,
    OutputType,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    R,
    Record,
    ReduceFunction,
    T,
    T_co,
    Trigger,
    TypeInformation,
    UserFunction,
    V,
    W,
    WindowAssigner,
    WindowFunction,
    check_kind,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import (
    BatchReduce,
    FieldReduce,
    RecordChoice,
    RollingReduce,
    window_operator,
)
from pyflinkstate.runtime.plan import Input, Node, Partitioning
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.user_functions import (
    check_function,
    name_of,
    refuse_checkpointed,
)

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment


S = TypeVar("S", bound="_Windows")
_WINDOW_FUNCTIONS = (WindowFunction, ProcessWindowFunction, AllWindowFunction, ProcessAllWindowFunction)


class _Windows(Generic[T, K, W]):
    """What windows on keyed and other streams have in common; each takes the window functions of its kind."""

    #: Whether all records meet in one subtask.
    _is_non_parallel = False

    def __init__(self, keyed_stream: KeyedStream[K, T], window_assigner: WindowAssigner[T, W]) -> None:
        check_kind("window() takes a WindowAssigner", window_assigner, WindowAssigner)
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
            refuse_checkpointed(
                contents,
                "the reduce or aggregate function of a window is not notified of checkpoints: make the "
                "window function one, which is called with the combined value",
            )
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
        made = stream._stateful(
            (stream._as_input(),), operator, name, output_type, uses_event_time=True, keeps_type=keeps_type
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
        return self._append(
            reduce_function, window_function, "window reduce", output_type, keeps_type=window_function is None
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
        return self._append(
            list, process_window_function, type(process_window_function).__name__, output_type
        )


class WindowedStream(_Windows[T, K, W], Generic[T, K, W]):
    """The records of each key in windows."""


def _one_key(_: Record) -> int:
    return 0


class AllWindowedStream(_Windows[T, int, W], Generic[T, W]):
    """All records in windows, in one subtask."""

    _is_non_parallel = True

    def __init__(self, data_stream: DataStream[T], window_assigner: WindowAssigner[T, W]) -> None:
        super().__init__(data_stream.key_by(_one_key), window_assigner)


class KeyedStream(DataStream[T_co], Generic[K_co, T_co]):
    """A stream whose records have keys, so that the next operator may use keyed state."""

    def __init__(
        self,
        env: StreamExecutionEnvironment,
        node: Node,
        select_key: Callable[[T_co], K_co] | KeySelector[T_co, K_co],
        key_type: TypeInformation[K_co],
    ) -> None:
        super().__init__(env, node)
        self._select_key = select_key
        self._key_type = key_type

    @property
    def is_keyed(self) -> bool:
        """Whether records have keys."""
        return True

    def _as_input(self) -> Input:
        """Return the stream as an input of a stateful operator."""
        return Input(self._node, Partitioning.KEY, self._select_key, self._key_type)

    def _made_by(self) -> str | None:
        return "key_by()"

    def _refuse(self, method: str) -> NoReturn:
        raise ConfigurationError(
            f"{method}() cannot follow key_by(), which decides where records go: call it before key_by(), or "
            f"after the next operator"
        )

    def get_side_output(self, output_tag: OutputTag[T]) -> DataStream[T]:
        """Refuse it, because side outputs belong to the operator before ``key_by``."""
        self._refuse("get_side_output")

    def broadcast(self, *args: object) -> NoReturn:
        """Refuse it, like all calls that distribute records, because the key decides where they go."""
        self._refuse("broadcast")

    def cache(self) -> NoReturn:
        """Refuse it: a cached stream has no keys."""
        self._refuse("cache")

    def _partitioned(self, partitioning: Partitioning, *functions: UserFunction) -> NoReturn:
        self._refuse(partitioning.value)

    def process(  # type: ignore[override]  # as in PyFlink, keyed streams take another function
        self, func: KeyedProcessFunction[K_co, T_co, T], output_type: OutputType[T] | None = None
    ) -> DataStream[T]:
        """Run ``func`` with keyed state, each key's records in order.

        Raises:
            ConfigurationError: ``func`` is not a KeyedProcessFunction.
        """
        check_function("process() on a keyed stream", func, (KeyedProcessFunction,))
        return self._stateful((self._as_input(),), func, name_of(func, "process"), output_type)

    def reduce(self, func: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co]) -> DataStream[T_co]:
        """Combine all records of a key so far; every record emits the result up to then.

        In batch mode (``RuntimeExecutionMode.BATCH``) each key emits one result at the end of the input.
        """
        check_function("reduce()", func, (ReduceFunction,), arguments=2)
        return self._reduce(func, "reduce")

    def sum(self, position_to_sum: int | str = 0) -> DataStream[T_co]:
        """Add up a field of the records of each key so far; the other fields are the first record's.

        Args:
            position_to_sum: the index or name of the field; for plain values 0, the value itself.
        """
        return self._reduce(FieldReduce(position_to_sum, operator.add), "sum")

    def min(self, position_to_min: int | str = 0) -> DataStream[T_co]:
        """Emit the least value of a field so far; the other fields are the first record's."""
        return self._reduce(FieldReduce(position_to_min, builtins.min), "min")

    def max(self, position_to_max: int | str = 0) -> DataStream[T_co]:
        """Emit the greatest value of a field so far; the other fields are the first record's."""
        return self._reduce(FieldReduce(position_to_max, builtins.max), "max")

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream[T_co]:
        """Emit the record with the least value of a field so far, the first one if several are equal."""
        return self._reduce(RecordChoice(position_to_min_by, operator.gt), "min_by")

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream[T_co]:
        """Emit the record with the greatest value of a field so far, the first one if several are equal."""
        return self._reduce(RecordChoice(position_to_max_by, operator.lt), "max_by")

    def _reduce(
        self, func: ReduceFunction[T_co] | Callable[[T_co, T_co], T_co], name: str
    ) -> DataStream[T_co]:
        in_batch = self._env._settings.runs_in_batch(self._node)
        function = BatchReduce(func) if in_batch else RollingReduce(func)
        return self._stateful((self._as_input(),), function, name, None, keeps_type=True)

    def window(self, window_assigner: WindowAssigner[T_co, W]) -> WindowedStream[T_co, K_co, W]:
        """Put the records of each key into windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, K_co, CountWindow]:
        """Put every ``size`` records of a key into a window; one begins every ``slide`` records, if given."""
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner(size))
        return WindowedStream(self, CountSlidingWindowAssigner(size, slide))
