"""Streams whose records have keys (``pyflink.datastream.KeyedStream``)."""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, NoReturn

from pyflinkstate.api.functions import KeyedProcessFunction, KeySelector, ReduceFunction
from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.type_information import OutputType
from pyflinkstate.api.type_variables import K_co, T, T_co, W
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import UserFunction
from pyflinkstate.api.window_assigners import (
    CountSlidingWindowAssigner,
    CountTumblingWindowAssigner,
    WindowAssigner,
)
from pyflinkstate.api.windows import CountWindow
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import (
    BatchReduce,
    FieldReduce,
    OneInputOperator,
    RecordChoice,
    RollingReduce,
)
from pyflinkstate.runtime.plan import Input, Node, Partitioning
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.user_functions import check_callable, check_function, name_of
from pyflinkstate.runtime.program.windowed_stream import WindowedStream

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment


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

    def as_input(self) -> Input:
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
        return self._keyed_operator(func, name_of(func, "process"), output_type)

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
        function = BatchReduce(func) if self._env.jobs.runs_in_batch(self._node) else RollingReduce(func)
        return self.stateful((self.as_input(),), function, name, None, keeps_type=True)

    def window(self, window_assigner: WindowAssigner[T_co, W]) -> WindowedStream[T_co, K_co, W]:
        """Put the records of each key into windows."""
        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream[T_co, K_co, CountWindow]:
        """Put every ``size`` records of a key into a window; one begins every ``slide`` records, if given."""
        if slide == 0:
            return WindowedStream(self, CountTumblingWindowAssigner(size))
        return WindowedStream(self, CountSlidingWindowAssigner(size, slide))

    def _operator(self, kind: str, func: UserFunction, output_type: OutputType | None) -> DataStream:
        check_callable(kind, func)
        function, keeps_type = OneInputOperator(kind, func, is_keyed=True), kind == "filter"
        name = name_of(func, kind)
        return self.stateful((self.as_input(),), function, name, output_type, keeps_type=keeps_type)

    def _keyed_operator(
        self, func: KeyedProcessFunction, name: str, output_type: OutputType | None
    ) -> DataStream:
        return self.stateful((self.as_input(),), func, name, output_type)
