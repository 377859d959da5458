"""Functions that build state from rows (``org.apache.flink.state.api.functions``)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from pyflinkstate.api.context import CheckpointedFunction, FunctionSnapshotContext, RuntimeContext
from pyflinkstate.api.functions import KeyedProcessFunction, ProcessFunction
from pyflinkstate.api.state import MapStateDescriptor, StateDescriptor, StateKind, ValueStateDescriptor
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import Key, Record
from pyflinkstate.errors import ConfigurationError

#: The column for a state; for a ``MapState`` the columns of keys and of values.
StateColumn: TypeAlias = str | tuple[str, str]

#: The types of states that are named without a descriptor.
_TYPES: dict[pa.DataType, Callable[[], TypeInformation]] = {
    pa.bool_(): Types.BOOLEAN,
    pa.int8(): Types.BYTE,
    pa.int16(): Types.SHORT,
    pa.int32(): Types.INT,
    pa.int64(): Types.LONG,
    pa.float32(): Types.DOUBLE,
    pa.float64(): Types.DOUBLE,
    pa.string(): Types.STRING,
    pa.large_string(): Types.STRING,
}


class KeyedStateBootstrapFunction(KeyedProcessFunction[Key, Any, None]):
    """Builds keyed state from rows (Flink: ``KeyedStateBootstrapFunction``).

    ``process_element(value, ctx)`` is called with each row under its key, and may register timers through
    ``ctx.timer_service()``. Its results are dropped.
    """


class StateBootstrapFunction(ProcessFunction[Any, None], CheckpointedFunction):
    """Builds operator state from rows without keys (Flink: ``StateBootstrapFunction``).

    ``initialize_state(context)`` asks for the state, and ``process_element(value, ctx)`` is called with each
    row.
    """

    @abstractmethod
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> None:
        """Change the state."""

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Do nothing: override it to write the state only at the end."""


class ColumnStates(KeyedStateBootstrapFunction):
    """Puts columns of rows into states; cells without a value are skipped.

    Args:
        columns: the descriptors and their columns.
    """

    def __init__(self, columns: Sequence[tuple[StateDescriptor, StateColumn]]) -> None:
        self._columns = columns
        self._put: list[Callable[[Record], None]] = []

    def open(self, runtime_context: RuntimeContext) -> None:
        self._put = [_put(runtime_context, descriptor, column) for descriptor, column in self._columns]

    def process_element(self, value: Record, ctx: KeyedProcessFunction.Context[Key]) -> None:
        for put in self._put:
            put(value)


def _put(context: RuntimeContext, descriptor: Any, column: Any) -> Callable[[Any], None]:
    """Return the function that puts the cell of a row into a state."""
    if descriptor.kind is StateKind.MAP:
        of_key, of_value = column
        map_state = context.get_map_state(descriptor)
        return lambda row: None if row[of_key] is None else map_state.put(row[of_key], row[of_value])
    add = _adder(context, descriptor)
    return lambda row: None if row[column] is None else add(row[column])


def _adder(context: RuntimeContext, descriptor: Any) -> Callable[[Any], None]:
    if descriptor.kind is StateKind.VALUE:
        return context.get_state(descriptor).update
    if descriptor.kind is StateKind.LIST:
        return context.get_list_state(descriptor).add
    if descriptor.kind is StateKind.REDUCING:
        return context.get_reducing_state(descriptor).add
    return context.get_aggregating_state(descriptor).add


def column_states(given: Mapping[Any, Any], types: Mapping[str, pa.DataType]) -> ColumnStates:
    """Return the function for ``{state: column}``.

    Args:
        given: columns by descriptors, or by the names of value states.
        types: the Arrow types of the columns, as far as they are known.

    Raises:
        ConfigurationError: there is no such column, or the type of a state is not known.
    """
    if not given:
        raise ConfigurationError("no state is named: give {state: column}")
    columns = [(_descriptor(state, column, types), column) for state, column in given.items()]
    for descriptor, column in columns:
        _check_columns(descriptor, column, types)
    return ColumnStates(columns)


def _descriptor(state: Any, column: Any, types: Mapping[str, pa.DataType]) -> StateDescriptor:
    if isinstance(state, StateDescriptor):
        return state
    make = _TYPES.get(types.get(column)) if isinstance(column, str) else None
    if not isinstance(state, str) or make is None:
        raise ConfigurationError(
            f"state {state!r} of column {column!r}: its type is not known from the column, so give a state "
            f"descriptor instead of its name"
        )
    return ValueStateDescriptor(state, make())


def _check_columns(descriptor: StateDescriptor, column: Any, types: Mapping[str, pa.DataType]) -> None:
    is_map = isinstance(descriptor, MapStateDescriptor)
    names = column if isinstance(column, tuple) else (column,)
    if len(names) != (2 if is_map else 1) or not all(isinstance(name, str) for name in names):
        wanted = "a pair of columns, for its keys and its values" if is_map else "the name of a column"
        raise ConfigurationError(f"state {descriptor.name!r} needs {wanted}, not {column!r}")
    missing = [name for name in names if types and name not in types]
    if missing:
        raise ConfigurationError(
            f"state {descriptor.name!r}: there is no column {missing[0]!r}; the columns are "
            f"{', '.join(map(repr, types))}"
        )
