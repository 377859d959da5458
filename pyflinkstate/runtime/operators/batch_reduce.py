"""``reduce``, ``sum`` and the like in batch mode: one result for each key at the end of the input."""

from __future__ import annotations

import decimal
import pickle
from collections.abc import Iterator

from pyflinkstate.api.state import ValueStateDescriptor
from pyflinkstate.api.values import Key, Record, UserFunction
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.types import PICKLE_PROTOCOL, VOID_NAMESPACE
from pyflinkstate.runtime.operators.context import close_function, open_function
from pyflinkstate.runtime.operators.keyed_functions import STATE_NAME, no_combination, reduce_of
from pyflinkstate.runtime.operators.operators import OperatorSetup, Output, StatefulOperator
from pyflinkstate.runtime.wire import MAX_WATERMARK


def key_order(key: Key) -> tuple[object, ...]:
    """Return the sort key of a key: numbers by value, then texts by length in bytes and by bytes.

    Flink sorts the input of batch jobs by the serialized keys, which begin with a length.

    >>> sorted(["b", "aa", "a", 10, 9], key=key_order)
    [9, 10, 'a', 'b', 'aa']
    """
    if isinstance(key, (int, float, decimal.Decimal)):
        return 0, key
    written = key.encode() if isinstance(key, str) else pickle.dumps(key, protocol=PICKLE_PROTOCOL)
    return 1 if isinstance(key, str) else 2, len(written), written


class BatchReduce(StatefulOperator):
    """Combines all records of a key, and emits the results in the order of keys at the end of the input.

    It needs no timers, as every key is due at the end of the input. An emitted result is forgotten, so a job
    that is restored from its last checkpoint does not emit it again.

    Args:
        func: a ``ReduceFunction``, or a callable that combines two values.
    """

    def __init__(self, func: UserFunction) -> None:
        self.function = func
        self._due: Iterator[Record] | None = None

    def open(self, setup: OperatorSetup) -> None:
        open_function(self.function, setup.context)
        self._reduce = reduce_of(self.function)
        self._backend: HeapKeyedStateBackend = setup.backend
        self._state = setup.context.get_state(ValueStateDescriptor(STATE_NAME))

    def close(self) -> None:
        close_function(self.function)

    def process_element(self, value: Record, timestamp: int | None, output: Output) -> None:
        before = self._state.value()
        combined = value if before is None else self._reduce(before, value)
        if combined is None and before is not None:
            raise no_combination(self._reduce)
        self._state.update(combined)

    def take_event_time(self, watermark: int) -> Timer | None:
        if watermark < MAX_WATERMARK:
            return None
        if self._due is None:
            self._due = iter(sorted(self._backend.get_keys(STATE_NAME, VOID_NAMESPACE), key=key_order))
        for key in self._due:
            return Timer(MAX_WATERMARK, key, VOID_NAMESPACE)
        self._due = None
        return None

    def on_event_time(self, timer: Timer, output: Output) -> None:
        output.collect((self._state.value(),), None)
        self._state.clear()

    def take_processing_time(self, now_ms: int) -> Timer | None:
        return None

    def on_processing_time(self, timer: Timer, output: Output) -> None:
        raise AssertionError("BatchReduce has no processing-time timers")

    def next_processing_time_ms(self) -> int | None:
        return None
