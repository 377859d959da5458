"""The functions that users give: they build state from rows, migrate values, and pick entries.

Those that build state are Flink's (``org.apache.flink.state.api.functions``).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import (
    CheckpointedFunction,
    FunctionSnapshotContext,
    Key,
    KeyedProcessFunction,
    ListTypeInfo,
    MapStateDescriptor,
    MapTypeInfo,
    ProcessFunction,
    Record,
    RuntimeContext,
    StateDescriptor,
    StateKind,
    StateValue,
    Stored,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.types import RegisteredStateMeta, TtlTypeInfo, decode_column, sealed, unsealed
from pyflinkstate.errors import ConfigurationError, StateTableError, UserFunctionError
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.tables import Mask, expires, user_type
from pyflinkstate.state_access.views import element_type
from pyflinkstate.state_access.writing.drafts import Predicate
from pyflinkstate.state_access.writing.fitted_tables import key_check, stamped, stored_check

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
        self._put: list[Callable[[object], None]] = []

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
    adding: dict[StateKind, Callable[[Any], Any]] = {
        StateKind.LIST: context.get_list_state,
        StateKind.REDUCING: context.get_reducing_state,
        StateKind.AGGREGATING: context.get_aggregating_state,
    }
    is_value = descriptor.kind is StateKind.VALUE
    add = context.get_state(descriptor).update if is_value else adding[descriptor.kind](descriptor).add
    return lambda row: None if row[column] is None else add(row[column])


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


def _check_columns(descriptor: StateDescriptor, column: object, types: Mapping[str, pa.DataType]) -> None:
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


#: The value of an entry, as a program knows it, before and after a migration.
Convert = Callable[[Any], StateValue]


def by_function(
    was: RegisteredStateMeta, now: RegisteredStateMeta, function: Convert, now_ms: int
) -> Convert:
    """Return a converter of stored values, made of a function of values without timestamps.

    What has expired is left out. A value with time to live keeps its timestamp. So do the entries of a map
    whose keys stay, and the elements of a list, place by place, if there are as many as before; what is new
    gets the latest timestamp of the old value. The converter raises ``UserFunctionError`` if the function
    raises, and ``ValueError`` or ``TypeError`` if its result does not fit.
    """
    check = stored_check(now)

    def convert(stored: Stored) -> Stored:
        seen = _seen(was, stored, now_ms)
        if seen is None:
            return None
        try:
            made = function(seen.value)
        except Exception as error:
            told = f"the migration function raised {type(error).__name__}: {error}"
            raise UserFunctionError(told) from error
        return None if made is None else check(_stamped(now, made, seen))

    return convert


@attrs.frozen
class _Seen:
    """A stored value as its program sees it.

    Attributes:
        value: the value without timestamps.
        latest_ms: its timestamp, or the latest of its elements.
        of_elements: the timestamps of the elements of a list, in order.
        of_keys: the timestamps of the entries of a map.
    """

    value: StateValue
    latest_ms: int
    of_elements: Sequence[int] = ()
    of_keys: Mapping[StateValue, int] = attrs.field(factory=dict)


def _seen(was: RegisteredStateMeta, stored: Any, now_ms: int) -> _Seen | None:
    """Return the value that the program sees, or None if all of it has expired."""
    if stored is None or not expires(was.stored_type):
        return _Seen(stored, now_ms)

    def is_alive(at_ms: int) -> bool:
        return was.ttl_ms is None or at_ms > now_ms - was.ttl_ms

    if isinstance(was.stored_type, TtlTypeInfo):
        at_ms, value = stored
        return _Seen(value, at_ms) if is_alive(at_ms) else None
    pairs = stored.values() if isinstance(stored, dict) else stored
    alive = [at_ms for at_ms, _ in pairs if is_alive(at_ms)]
    if stored and not alive:
        return None
    latest_ms = max(alive, default=now_ms)
    if isinstance(stored, dict):
        left = {key: pair for key, pair in stored.items() if is_alive(pair[0])}
        values = {key: value for key, (_, value) in left.items()}
        return _Seen(values, latest_ms, of_keys={key: at_ms for key, (at_ms, _) in left.items()})
    return _Seen([value for at_ms, value in stored if is_alive(at_ms)], latest_ms, alive)


def _stamped(now: RegisteredStateMeta, made: StateValue, seen: _Seen) -> StateValue:
    """Return a function's result in the form that the state stores."""
    stored_type = now.stored_type
    if expires(stored_type):
        if isinstance(stored_type, ListTypeInfo) and isinstance(made, (list, tuple)):
            are_as_many = len(made) == len(seen.of_elements)
            stamps = seen.of_elements if are_as_many else [seen.latest_ms] * len(made)
            return list(zip(stamps, made, strict=True))
        if isinstance(stored_type, MapTypeInfo) and isinstance(made, Mapping):
            check_key = key_check(stored_type.key_type_info) or stored_type.key_type_info.check
            checked = {check_key(key): item for key, item in made.items()}
            return {key: (seen.of_keys.get(key, seen.latest_ms), item) for key, item in checked.items()}
    return stamped(stored_type, made, seen.latest_ms)


#: What a user gives: ``pc.field("value") < 0``, or a function of a row, a dict of Python values by column.
UserPredicate: TypeAlias = "pc.Expression | Callable[[dict[str, Any]], bool]"


def predicate_of(given: UserPredicate, keys: KeySpace) -> Predicate:
    """Return the function that makes a mask of the rows that match a user's predicate.

    Raises:
        ConfigurationError: it is neither an expression nor a function.
    """
    if isinstance(given, pc.Expression):
        return lambda meta, batch: _picked(given, keys, meta, batch)
    if callable(given):
        return lambda meta, batch: _asked_of_each_row(given, keys, meta, batch)
    raise ConfigurationError(
        f"a predicate is an expression such as pyarrow.compute.field('value') < 0, or a function of a row, "
        f"not {given!r}"
    )


def _picked(
    expression: pc.Expression, keys: KeySpace, meta: RegisteredStateMeta, batch: pa.RecordBatch
) -> Mask:
    mask = np.zeros(batch.num_rows, np.bool_)
    numbered = pa.Table.from_batches([batch]).append_column("", pa.array(range(batch.num_rows), pa.int64()))
    try:
        picked = numbered.filter(expression).column("").to_numpy()
    except (pa.ArrowException, TypeError) as error:
        raise StateTableError(
            f"operator {keys.uid!r}, state {meta.name!r}: the predicate {expression} does not fit its "
            f"entries, whose columns are {', '.join(map(repr, batch.schema.names))}: {error}"
        ) from error
    mask[picked] = True
    return mask


def _asked_of_each_row(
    function: Callable[[dict[str, Any]], bool],
    keys: KeySpace,
    meta: RegisteredStateMeta,
    batch: pa.RecordBatch,
) -> Mask:
    columns = [
        _decoded(name, keys, meta, column)
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    try:
        picked = [
            bool(function(dict(zip(batch.schema.names, row, strict=True))))
            for row in zip(*columns, strict=True)
        ]
    except Exception as error:
        raise UserFunctionError(
            f"operator {keys.uid!r}, state {meta.name!r}: the predicate raised {type(error).__name__}: "
            f"{error}",
            state=meta.name,
        ) from error
    return np.array(picked, np.bool_)


def _decoded(name: str, keys: KeySpace, meta: RegisteredStateMeta, column: pa.Array) -> list[object]:
    """Return the values of a column as the program knows them; pickles that must not be loaded are bytes."""
    if name == "key":
        return keys.decoded(column)
    types = {
        "window": meta.namespace_type,
        "namespace": meta.namespace_type,
        "value": user_type(element_type(meta)),
    }
    if meta.kind is StateKind.MAP:
        types["map_key"] = meta.stored_type.parts()[0]
    if name not in types:
        plain: list[object] = column.to_pylist()
        return plain
    type_info = types[name]
    # The type of namespaces is as the file has it, so it may be a pickled one that nobody has sealed.
    return decode_column(unsealed(type_info) if keys.allow_pickle else sealed(type_info), column)
