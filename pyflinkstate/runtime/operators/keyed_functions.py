"""The functions behind ``reduce``, ``sum``, ``min`` and the like on a keyed stream."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

import numpy as np

from pyflinkstate.api.functions import ReduceFunction
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.state import ValueStateDescriptor
from pyflinkstate.api.values import FunctionContext, Record
from pyflinkstate.backends.values import told_function
from pyflinkstate.errors import BadRecordError, ConfigurationError, FunctionResultError
from pyflinkstate.runtime.operators.function_operators import FunctionOperator, Process
from pyflinkstate.runtime.operators.operators import OperatorSetup

#: Flink's name for the state of ``reduce``.
STATE_NAME = "_reduce_state"
#: Plain values whose classes have ``__getitem__`` all the same; of numpy's, only a ``void`` may have fields.
_PLAIN = (str, bytes, bytearray, np.generic)


class RollingReduce(FunctionOperator):
    """Combines all records of a key so far; every record gives a result.

    Its function is a ``ReduceFunction``, or a callable that combines two values.
    """

    def open(self, setup: OperatorSetup) -> None:
        super().open(setup)
        self._state = setup.context.get_state(ValueStateDescriptor(STATE_NAME))

    def _process_first(self) -> Process:
        self._reduce = reduce_of(self.function)
        return self._combine

    def _combine(self, value: Record, _: FunctionContext) -> Iterable[Record]:
        before = self._state.value()
        combined = value
        if before is not None:
            combined = self._reduce(before, value)
            if combined is None:
                raise no_combination(self._reduce)
        self._state.update(combined)
        return (combined,)


def reduce_of(
    func: ReduceFunction | Callable[[Record, Record], Record],
) -> Callable[[Record, Record], Record]:
    """Return the callable that combines two values."""
    return func.reduce if isinstance(func, ReduceFunction) else func


def no_combination(reduce: Callable[[Record, Record], Record]) -> FunctionResultError:
    """Return the error of a reduce function that forgot to return something: its key would begin anew."""
    name = told_function(reduce)
    return FunctionResultError(f"{name} returned None: return what its two arguments make", function=name)


def _check_field(position: object) -> None:
    """Raise ``ConfigurationError`` unless ``position`` is the index or the name of a field."""
    if isinstance(position, bool) or not isinstance(position, (int, str)):
        raise ConfigurationError(
            f"min, max, min_by, max_by and sum take the index (an int) or the name (a str) of a field, not "
            f"{position!r}"
        )


class FieldReduce(ReduceFunction):
    """Combines one field of two records; the other fields are those of the first record.

    Args:
        position: the index or name of the field; 0 is the record itself if it has no fields.
        combine: combines two values of the field.
    """

    def __init__(self, position: int | str, combine: Callable[[Record, Record], Record]) -> None:
        _check_field(position)
        self._position = position
        self._combine = combine

    def reduce(self, value1: Record, value2: Record) -> Record:
        if not has_fields(value1):
            _check_whole(self._position, value1)
            return self._combine(value1, value2)
        combined = self._combine(value1[self._position], value2[self._position])
        return _replaced(value1, self._position, combined)


class RecordChoice(ReduceFunction):
    """Chooses one of two records by one of their fields; the first one if the fields are equal."""

    def __init__(self, position: int | str, prefers_second: Callable[[Record, Record], bool]) -> None:
        _check_field(position)
        self._position = position
        self._prefers_second = prefers_second

    def reduce(self, value1: Record, value2: Record) -> Record:
        first, second = self._field(value1), self._field(value2)
        return value2 if self._prefers_second(first, second) else value1

    def _field(self, record: Record) -> Record:
        if has_fields(record):
            return record[self._position]
        _check_whole(self._position, record)
        return record


def _check_whole(position: int | str, record: Record) -> None:
    if position != 0:
        raise BadRecordError(
            f"the plain value {safe_repr(record)} has no field {position!r}; it is itself field 0"
        )


def has_fields(record: Record) -> bool:
    """Return whether a record is a tuple, list, dict or row, and not a plain value."""
    if isinstance(record, _PLAIN):
        return isinstance(record, np.void)
    return hasattr(record, "__getitem__")


def _replaced(record: Record, position: int | str, value: Record) -> Record:
    if isinstance(record, tuple) and isinstance(position, int):
        fields = list(record)
        fields[position] = value
        make = getattr(type(record), "_make", type(record))
        return make(fields)
    replaced = copy.copy(record)
    replaced[position] = value
    return replaced


class Projection:
    """Returns some fields of a tuple or row, in the given order."""

    def __init__(self, indexes: tuple[int, ...]) -> None:
        self.indexes = indexes

    def __call__(self, record: Record) -> tuple[Record, ...]:
        return tuple(record[index] for index in self.indexes)
