"""What ``reduce``, ``sum``, ``min`` and the like run on a keyed stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyflinkstate.api.context import RuntimeContext
from pyflinkstate.api.descriptors import ValueStateDescriptor
from pyflinkstate.api.functions import KeyedProcessFunction, ReduceFunction
from pyflinkstate.runtime.context import close_function, open_function
from pyflinkstate.runtime.watermarks import MAX_WATERMARK

#: Flink's name of the state of ``reduce``.
STATE_NAME = "_reduce_state"


class RollingReduce(KeyedProcessFunction):
    """All records of a key so far, combined; every record gives a result.

    Args:
        func: a ``ReduceFunction``, or what combines two values.
        at_the_end: results come when the input has ended, one for each key, as in Flink's batch mode.
    """

    def __init__(self, func: ReduceFunction | Callable[[Any, Any], Any], at_the_end: bool = False) -> None:
        self._func = func
        self._at_the_end = at_the_end

    def open(self, runtime_context: RuntimeContext) -> None:
        open_function(self._func, runtime_context)
        self._reduce = self._func.reduce if isinstance(self._func, ReduceFunction) else self._func
        self._state = runtime_context.get_state(ValueStateDescriptor(STATE_NAME))

    def close(self) -> None:
        close_function(self._func)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any] | None:
        before = self._state.value()
        combined = value if before is None else self._reduce(before, value)
        self._state.update(combined)
        if not self._at_the_end:
            return iter((combined,))
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK)
        return None

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any] | None:
        combined = self._state.value()
        return () if combined is None else (combined,)


class FieldReduce(ReduceFunction):
    """Combines one field of records: the first record's other fields stay.

    Args:
        position: index or name of the field; where records have no fields, 0 is the record itself.
        combine: what becomes of two values of the field.
    """

    def __init__(self, position: int | str, combine: Callable[[Any, Any], Any]) -> None:
        self._position = position
        self._combine = combine

    def reduce(self, value1: Any, value2: Any) -> Any:
        if not has_fields(value1):
            return self._combine(value1, value2)
        combined = self._combine(value1[self._position], value2[self._position])
        return _replaced(value1, self._position, combined)


class RecordChoice(ReduceFunction):
    """Keeps one of two records, by one of their fields; the first of those that are equal."""

    def __init__(self, position: int | str, prefers_second: Callable[[Any, Any], bool]) -> None:
        self._position = position
        self._prefers_second = prefers_second

    def reduce(self, value1: Any, value2: Any) -> Any:
        first, second = (
            (value[self._position] if has_fields(value) else value) for value in (value1, value2)
        )
        return value2 if self._prefers_second(first, second) else value1


def has_fields(record: Any) -> bool:
    """Return whether a record is a tuple, list, dict or row, and not a plain value."""
    return hasattr(type(record), "__getitem__") and not isinstance(record, (str, bytes, bytearray))


def _replaced(record: Any, position: int | str, value: Any) -> Any:
    if isinstance(record, tuple) and isinstance(position, int):
        fields = list(record)
        fields[position] = value
        make = getattr(type(record), "_make", type(record))
        return make(fields)
    replaced = copy.copy(record)
    replaced[position] = value
    return replaced


class Projection:
    """Some fields of records that are tuples or rows, in the order given."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self._indexes = indexes

    def __call__(self, record: Any) -> tuple[Any, ...]:
        return tuple(record[index] for index in self._indexes)
