"""Two streams that one operator reads (``pyflink.datastream.ConnectedStreams``)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic

import attrs

from pyflinkstate.api import (
    BroadcastProcessFunction,
    CoFlatMapFunction,
    CoMapFunction,
    CoProcessFunction,
    K,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeySelector,
    L,
    MapStateDescriptor,
    OutputType,
    R,
    T,
    TypeInformation,
    UserFunction,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators import BroadcastOperator, TwoInputOperator
from pyflinkstate.runtime.plan import Input, Partitioning
from pyflinkstate.runtime.program.user_functions import check_function

if TYPE_CHECKING:
    from pyflinkstate.runtime.program.data_stream import DataStream


@attrs.frozen
class ConnectedStreams(Generic[L, R]):
    """Two streams for one function, which sees the records of both and knows which stream each comes from.

    If both streams are keyed, equal keys meet in one subtask and share state and timers. Either both streams
    are keyed or neither is.
    """

    stream1: DataStream[L]
    stream2: DataStream[R]

    def key_by(
        self,
        key_selector1: Callable[[L], K] | KeySelector[L, K],
        key_selector2: Callable[[R], K] | KeySelector[R, K],
        key_type: TypeInformation[K] | None = None,
    ) -> ConnectedStreams[L, R]:
        """Key both streams; the keys must have the same type."""
        return ConnectedStreams(
            self.stream1.key_by(key_selector1, key_type), self.stream2.key_by(key_selector2, key_type)
        )

    def map(self, func: CoMapFunction[L, R, T], output_type: OutputType[T] | None = None) -> DataStream[T]:
        """Run ``map1`` on records of the first stream, ``map2`` on the second's; None is no result."""
        return self._append("map", func, (CoMapFunction,), output_type)

    def flat_map(
        self, func: CoFlatMapFunction[L, R, T], output_type: OutputType[T] | None = None
    ) -> DataStream[T]:
        """Run ``flat_map1`` on records of the first stream and ``flat_map2`` on records of the second."""
        return self._append("flat_map", func, (CoFlatMapFunction,), output_type)

    def process(
        self,
        func: CoProcessFunction[L, R, T] | KeyedCoProcessFunction[Any, L, R, T],
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Run ``process_element1`` on records of the first stream, ``process_element2`` on the second's.

        A ``KeyedCoProcessFunction`` needs keys; a ``CoProcessFunction`` may have them. Only the first has an
        ``on_timer``.
        """
        kinds = (CoProcessFunction, KeyedCoProcessFunction) if self._is_keyed() else (CoProcessFunction,)
        return self._append("process", func, kinds, output_type)

    def _is_keyed(self) -> bool:
        keyed = {stream.is_keyed for stream in (self.stream1, self.stream2)}
        if len(keyed) == 2:
            raise ConfigurationError(
                "connected streams must both have keys, or neither: call key_by() on both, or "
                "broadcast() on one"
            )
        return keyed == {True}

    def _append(
        self, method: str, function: UserFunction, kinds: tuple[type, ...], output_type: OutputType | None
    ) -> DataStream:
        check_function(f"{method}() on these streams", function, kinds)
        operator = function if self._is_keyed() else TwoInputOperator(function, is_keyed=False)
        first, second = self.stream1._as_input(), self.stream2._as_input()
        return self.stream1._stateful((first, second), operator, type(function).__name__, output_type)


@attrs.frozen
class BroadcastStream(Generic[R]):
    """A stream whose records go to every subtask of the operator that it is connected to."""

    input_stream: DataStream[R]
    broadcast_state_descriptors: tuple[MapStateDescriptor, ...]


@attrs.frozen
class BroadcastConnectedStream(Generic[L, R]):
    """A stream and a broadcast stream, whose records go to all subtasks."""

    non_broadcast_stream: DataStream[L]
    broadcast_stream: BroadcastStream[R]
    broadcast_state_descriptors: tuple[MapStateDescriptor, ...]

    def process(
        self,
        func: BroadcastProcessFunction[L, R, T] | KeyedBroadcastProcessFunction[Any, L, R, T],
        output_type: OutputType[T] | None = None,
    ) -> DataStream[T]:
        """Run ``process_element`` on the one stream and ``process_broadcast_element`` on the broadcast one.

        Within an epoch the broadcast records come first; Flink promises no order.
        """
        stream = self.non_broadcast_stream
        kind = KeyedBroadcastProcessFunction if stream.is_keyed else BroadcastProcessFunction
        check_function("process() on these streams", func, (kind,))
        second = Input(self.broadcast_stream.input_stream._node, Partitioning.BROADCAST)
        operator = BroadcastOperator(func, self.broadcast_state_descriptors, stream.is_keyed)
        return stream._stateful((stream._as_input(), second), operator, type(func).__name__, output_type)
