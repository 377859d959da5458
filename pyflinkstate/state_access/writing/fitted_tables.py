"""Turns a user's table into rows of a state, as a state file has them, and checks that every value fits.

A table has the columns of ``Checkpoint.entries``, or for a list or a map one column ``value`` with all of it.

Arrow and pandas have no tuples and no rows: both come back from them as structs, which Python sees as dicts,
maps come back as lists of pairs, and big numbers as the texts that ``Checkpoint.entries`` gives. Cells of
Python's own lists and dicts never become Arrow, which would make lists of tuples, for example.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias, TypeVar

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import (
    ArrayTypeInfo,
    ArrowObject,
    CountWindow,
    CountWindowSerializer,
    ExternalTypeInfo,
    GlobalWindow,
    GlobalWindowSerializer,
    Key,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    Row,
    RowKind,
    RowTypeInfo,
    StateKind,
    TimeWindow,
    TupleTypeInfo,
    TypedValue,
    TypeInformation,
    WindowSerializer,
    names_of,
    row_of,
    safe_repr,
)
from pyflinkstate.backends.types import (
    RegisteredStateMeta,
    TtlTypeInfo,
    arrow_type,
    decode_column,
    dump_pickle,
    encode_column,
    find_codec,
    has_pickles,
    may_hold_nan,
    unsealed,
)
from pyflinkstate.backends.values import refuse_nan
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.keyed_state import KeySpace
from pyflinkstate.state_access.tables import comparable, expires, nested, user_type
from pyflinkstate.state_access.views import namespace_name

T = TypeVar("T")
#: The cells of a column, as Arrow or as Python has them.
Cells: TypeAlias = "pa.Array | list[Any]"
#: Converts a cell to the value that it represents.
Shape = Callable[[Any], TypedValue]


@attrs.frozen
class UserTable:
    """A table in the form in which it was given.

    Attributes:
        names: the names of its columns, in which one may be twice.
        columns: the columns by name, all of the same length.
    """

    names: Sequence[str]
    columns: Mapping[str, Cells]

    def __attrs_post_init__(self) -> None:
        """Raise ``ValueError`` if the columns differ in length."""
        lengths = {name: len(cells) for name, cells in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"its columns have different lengths: {lengths}")

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return next((len(cells) for cells in self.columns.values()), 0)


def user_table(table: ArrowObject, what: str) -> UserTable:
    """Return a table, batch, reader, pandas ``DataFrame``, dict of columns or list of dicts by its columns.

    Raises:
        StateTableError: it is none of these; the message begins with ``what``.
    """
    return _converted(table, what, _user_table)


def arrow_table(table: object, what: str) -> pa.Table:
    """Return a table, record batch, reader, pandas ``DataFrame`` or dict of columns as an Arrow table.

    Raises:
        StateTableError: it is none of these; the message begins with ``what``.
    """
    return _converted(table, what, _arrow_table)


def _converted(table: ArrowObject, what: str, convert: Callable[[ArrowObject], T]) -> T:
    try:
        return convert(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise StateTableError(f"{what}: {safe_repr(table)} cannot be made an Arrow table: {error}") from error


def _user_table(table: ArrowObject) -> UserTable:
    if isinstance(table, Mapping):
        return UserTable(list(table), {name: _cells(given) for name, given in table.items()})
    if isinstance(table, list):
        return _of_rows(table)
    if hasattr(table, "iloc"):
        return _of_frame(table)
    found = _arrow_table(table)
    columns = [column.combine_chunks() for column in found.columns]
    return UserTable(found.column_names, dict(zip(found.column_names, columns, strict=True)))


def _cells(given: object) -> Cells:
    if isinstance(given, (list, tuple)):
        return list(map(_plain, given))
    if isinstance(given, (str, bytes)):
        raise TypeError(f"a column is a list of values, not {safe_repr(given)}")
    array = given if isinstance(given, (pa.Array, pa.ChunkedArray)) else pa.array(given)
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _plain(cell: object) -> object:
    return cell.item() if isinstance(cell, np.generic) else cell


def _of_rows(rows: list[Any]) -> UserTable:
    if not all(isinstance(row, Mapping) for row in rows):
        raise TypeError("give a table, a pandas DataFrame, a dict of columns or a list of dicts")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return UserTable(names, {name: [_plain(row.get(name)) for row in rows] for name in names})


def _of_frame(frame: ArrowObject) -> UserTable:
    if not frame.columns.is_unique:
        raise ValueError("it has a column twice")
    return UserTable(list(frame.columns), {name: _of_series(frame[name]) for name in frame.columns})


def _of_series(series: ArrowObject) -> Cells:
    """Return a column of pandas, in which NaN stands for no value."""
    if series.dtype == object:
        return [None if cell != cell else cell for cell in map(_comparable, series)]
    return _cells(pa.Array.from_pandas(series))


def _comparable(cell: object) -> Any:
    return cell.tolist() if isinstance(cell, np.ndarray) else cell


def _arrow_table(table: object) -> pa.Table:
    if hasattr(table, "to_arrow"):  # a StateTable, or a table of another library
        table = table.to_arrow()
    if hasattr(table, "iloc"):
        return pa.Table.from_pandas(table, preserve_index=False)
    return pa.table(table)


# --- values --------------------------------------------------------------------------------------------


def python_cells(cells: Cells) -> list[Any]:
    """Return the cells of a column as Python has them."""
    found: list[Any] = cells if isinstance(cells, list) else cells.to_pylist()
    return found


def shaped(type_info: TypeInformation, cells: Cells, pickled: Shape) -> Iterator[TypedValue]:
    """Yield the values of cells. Cells that match no value are passed through; the type rejects them.

    Args:
        type_info: the type of the values.
        cells: the column.
        pickled: what becomes of values without a declared type, and of such parts of others.

    Raises (when it is read):
        StateTableError: a string is not a number, or ``pickled`` refuses a value.

    >>> from pyflinkstate.api.types import Types
    >>> pair = Types.TUPLE([Types.STRING(), Types.BIG_DEC()])
    >>> list(shaped(pair, [{"f0": "a", "f1": "1.50"}], repr))
    [('a', Decimal('1.50'))]
    """
    for cell in python_cells(cells):
        try:
            value = _value_of(type_info, cell, pickled)
        except (ValueError, TypeError, decimal.InvalidOperation) as error:
            raise StateTableError(f"{safe_repr(cell)} does not fit {type_info}: {error}") from error
        yield value


def _value_of(type_info: TypeInformation, cell: Any, pickled: Shape) -> TypedValue:
    parts = type_info.parts()
    if isinstance(type_info, ExternalTypeInfo):
        return _value_of(parts[0], cell, pickled)
    if cell is None:
        return None
    if isinstance(type_info, PickledBytesTypeInfo):
        return pickled(cell)
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)):
        elements = _comparable(cell)
        is_list = isinstance(elements, (list, tuple))
        return [_value_of(parts[0], one, pickled) for one in elements] if is_list else elements
    if isinstance(type_info, MapTypeInfo):
        return _map_of(parts, dict(cell) if isinstance(cell, list) else cell, pickled)
    if isinstance(type_info, TupleTypeInfo):
        names = [field.name for field in arrow_type(type_info)]
        is_struct = isinstance(cell, Mapping) and set(cell) == set(names)
        return _tuple_of(parts, [cell[name] for name in names] if is_struct else cell, pickled)
    if isinstance(type_info, RowTypeInfo):
        return _row_of(type_info, cell, pickled)
    return find_codec(type_info).value_of_cell(cell)


def _map_of(parts: Sequence[TypeInformation], cell: object, pickled: Shape) -> TypedValue:
    if not isinstance(cell, Mapping):
        return cell
    of_key, of_item = parts
    return {_value_of(of_key, key, pickled): _value_of(of_item, item, pickled) for key, item in cell.items()}


def _tuple_of(parts: Sequence[TypeInformation], fields: Any, pickled: Shape) -> TypedValue:
    if not isinstance(fields, (list, tuple)) or len(fields) != len(parts):
        return fields
    return tuple([_value_of(part, field, pickled) for part, field in zip(parts, fields, strict=True)])


def _row_of(type_info: RowTypeInfo, cell: object, pickled: Shape) -> TypedValue:
    """Return a row from a struct, a row, or as many fields; the struct may have the kind of row as well."""
    names, kind_name = type_info.field_names, arrow_type(type_info).field(0).name
    fields = cell
    if isinstance(cell, Row):
        fields = cell.as_dict() if names_of(cell) else list(cell)
    if isinstance(fields, (list, tuple)) and len(fields) == len(names):
        fields = dict(zip(names, fields, strict=True))
    if not isinstance(fields, Mapping) or set(fields) - {kind_name} != set(names):
        return cell
    kind = cell.get_row_kind() if isinstance(cell, Row) else RowKind(fields.get(kind_name) or 0)
    return row_of(
        [_value_of(part, fields[name], pickled) for part, name in zip(type_info.parts(), names, strict=True)],
        names,
        kind,
    )


#: The kinds of the types that every value of their Arrow type fits, so that no single value is checked.
_PLAIN = ("BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "STRING")
_PICKLE_BEGINS, _PICKLE_ENDS = b"\x80", b"."


@attrs.frozen
class FittedRows:
    """Rows that fit a state.

    Attributes:
        rows: ``key``, ``namespace`` if there is one, and ``value`` as the state stores it.
        are_map_entries: whether each value is a map with one entry, to be put into the existing map.
    """

    rows: pa.RecordBatch
    are_map_entries: bool = False


def fitted(table: object, keys: KeySpace, meta: RegisteredStateMeta, now_ms: int) -> FittedRows:
    """Return the rows of a table for a state.

    Args:
        table: see :func:`user_table`.
        keys: the keys of the operator.
        meta: the state.
        now_ms: the timestamp of values with time to live if the table has no column ``timestamp_ms``.

    Raises:
        StateTableError: columns are missing or unknown, or a value does not fit; the message names both.
        InvalidKeyError: a key does not fit.
    """
    what = f"operator {keys.uid!r}, state {meta.name!r}"
    found = user_table(table, what)
    form = _Form(keys, meta, what, now_ms)
    form.check_columns(found.names)
    return form.rows(found)


@attrs.frozen
class _Form:
    """The columns of a table for a state, and how they are converted."""

    keys: KeySpace
    meta: RegisteredStateMeta
    what: str
    now_ms: int

    def check_columns(self, names: Sequence[str]) -> None:
        needed = ["key", *([namespace_name(self.meta)] if self.meta.is_namespaced else []), "value"]
        optional = ["timestamp_ms", "expires_at_ms"] if expires(self.meta.stored_type) else []
        optional += {StateKind.LIST: ["position"], StateKind.MAP: ["map_key"]}.get(self.meta.kind, [])
        missing = [name for name in needed if name not in names]
        unknown = [name for name in names if name not in (*needed, *optional)]
        if missing or unknown or len(set(names)) < len(names):
            problem = (missing and f"no column {missing[0]!r}") or (unknown and f"a column {unknown[0]!r}")
            raise StateTableError(
                f"{self.what}: the table has {problem or 'a column twice'}; it needs the columns "
                f"{', '.join(map(repr, needed))}"
                + (f", and may have {', '.join(map(repr, optional))}" if optional else "")
            )

    def rows(self, table: UserTable) -> FittedRows:
        columns = table.columns
        heads = [self._keys(columns["key"])]
        if self.meta.is_namespaced:
            heads.append(self._namespaces(columns[namespace_name(self.meta)]))
        stamps = self._stamps(table)
        if self.meta.kind is StateKind.MAP and "map_key" in columns:
            return FittedRows(self._batch(heads, self._map_entries(columns, stamps)), are_map_entries=True)
        self._check_no_nulls(columns, "value", "to remove a value, use delete() or delete_where()")
        if self.meta.kind is StateKind.LIST and "position" in columns:
            return FittedRows(self._lists(columns, heads, stamps))
        return FittedRows(self._batch(heads, self._values(columns["value"], stamps)))

    def _check_no_nulls(self, columns: Mapping[str, Cells], name: str, advice: str) -> None:
        cells = columns[name]
        if isinstance(cells, list) or cells.null_count:
            missing = next((row for row, cell in enumerate(python_cells(cells)) if cell is None), None)
            if missing is None:
                return
            key = safe_repr(python_cells(columns["key"][missing : missing + 1])[0])
            raise StateTableError(f"{self.what}, key {key}: column {name!r} is null: {advice}")

    def _batch(self, heads: list[pa.Array], values: pa.Array) -> pa.RecordBatch:
        names = ["key", *(["namespace"] if self.meta.is_namespaced else []), "value"]
        return pa.record_batch([*heads, values], names)

    # --- columns -----------------------------------------------------------------------------------------

    def _keys(self, cells: Cells) -> pa.Array:
        keys, key_type = self.keys, self.keys.key_type
        if _is(cells, arrow_type(key_type)):
            decoded = keys.checked(keys.decoded(cells))
            return cells if isinstance(key_type, PickledBytesTypeInfo) else keys.written(decoded)
        try:
            return keys.written(keys.checked(shaped(key_type, cells, self._unpickled)))
        except StateTableError as error:
            raise StateTableError(f"{self.what}, column 'key': {error.message}") from error

    def _unpickled(self, key: Key) -> Key:
        """Return a key of operators without a declared key type; bytes are pickles, as for values."""
        return self.keys.load(_pickled(key)) if isinstance(key, bytes) else key

    def _namespaces(self, cells: Cells) -> pa.Array:
        namespace_type, name = self.meta.namespace_type, namespace_name(self.meta)
        check = key_check(namespace_type)
        if not _is(cells, arrow_type(namespace_type)):
            given = (_window(namespace_type, cell) for cell in python_cells(cells))
            found = self._encoded(namespace_type, given, name, check)
        elif check is None or has_pickles(namespace_type):
            found = cells
        else:
            found = self._encoded(namespace_type, decode_column(namespace_type, cells), name, check)
        if found.null_count:
            raise StateTableError(f"{self.what}: {name!r} must not be null")
        return found

    def _stamps(self, table: UserTable) -> list[int]:
        if "timestamp_ms" not in table.columns:
            return [self.now_ms] * table.num_rows
        stamps: list[int] = python_cells(table.columns["timestamp_ms"])
        if not all(type(stamp) is int for stamp in stamps):
            raise StateTableError(f"{self.what}: 'timestamp_ms' must be whole numbers, ms since 1970")
        return stamps

    def _values(self, cells: Cells, stamps: list[int]) -> pa.Array:
        """Return whole values."""
        stored = self.meta.stored_type
        check = map_check(stored) if self.meta.kind is StateKind.MAP else None
        if not expires(stored):
            return self._checked(stored, cells, check=check)
        values = shaped(user_type(stored), cells, _pickled)
        return self._encoded(stored, map(stamped, repeat(stored), values, stamps), "value", check)

    def _lists(
        self, columns: Mapping[str, Cells], heads: list[pa.Array], stamps: list[int]
    ) -> pa.RecordBatch:
        """Return a row for each key with its elements, in the order of their positions."""
        positions = python_cells(columns["position"])
        if not all(type(position) is int for position in positions):
            raise StateTableError(f"{self.what}: 'position' must be whole numbers")
        order = pa.array(np.argsort(np.array(positions, np.int64), kind="stable"))
        elements = self._elements(self.meta.stored_type.parts()[0], columns["value"], stamps)
        heads, elements = [head.take(order) for head in heads], elements.take(order)
        codes = self.keys.head_codes(self.meta.namespace_type, heads)
        return gathered(self._batch(heads, elements), codes)

    def _map_entries(self, columns: Mapping[str, Cells], stamps: list[int]) -> pa.Array:
        map_type = self.meta.stored_type
        key_type, item_type = map_type.parts()
        keys = self._checked(key_type, columns["map_key"], "map_key", key_check(key_type))
        if keys.null_count:
            raise StateTableError(f"{self.what}: 'map_key' must not be null")
        items = self._elements(item_type, columns["value"], stamps)
        return nested(np.arange(len(keys) + 1), [keys, items]).cast(arrow_type(map_type))

    def _elements(self, type_info: TypeInformation, cells: Cells, stamps: list[int]) -> pa.Array:
        if not isinstance(type_info, TtlTypeInfo):
            return self._checked(type_info, cells)
        values = shaped(type_info.value_type, cells, _pickled)
        return self._encoded(type_info, zip(stamps, values, strict=True), "value")

    # --- values ------------------------------------------------------------------------------------------

    def _checked(
        self, type_info: TypeInformation, cells: Cells, name: str = "value", check: Check | None = None
    ) -> pa.Array:
        arrow = arrow_type(type_info)
        if not _is(cells, arrow) or has_pickles(unsealed(type_info)):
            return self._encoded(type_info, shaped(type_info, cells, _pickled), name, check)
        if check is None and type_info.kind in _PLAIN:
            return cells
        return self._encoded(type_info, decode_column(type_info, cells), name, check)

    def _encoded(
        self, type_info: TypeInformation, values: Iterable[TypedValue], name: str, check: Check | None = None
    ) -> pa.Array:
        """Return values as a column, after the check of their type or another one."""
        checked: list[TypedValue] = []
        check_value, value = check or type_info.check, None
        try:
            for value in values:
                checked.append(None if value is None else check_value(value))
            return encode_column(type_info, checked)
        except StateTableError as error:
            raise StateTableError(f"{self.what}, column {name!r}: {error.message}") from error
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise StateTableError(
                f"{self.what}: {safe_repr(value)} in column {name!r} does not fit {user_type(type_info)}: "
                f"{error}"
            ) from error


def _is(cells: Cells, arrow: pa.DataType) -> bool:
    """Return whether a column is written as a state file has it."""
    return not isinstance(cells, list) and cells.type == arrow


def _pickled(value: TypedValue) -> bytes:
    """Return a value as state without a declared type stores it; bytes are pickles already."""
    if not isinstance(value, bytes):
        return dump_pickle(value)
    if not (value.startswith(_PICKLE_BEGINS) and value.endswith(_PICKLE_ENDS)):
        raise ValueError(
            "the state has no declared type, so bytes must be pickles, as entries() returns them; to store "
            "an object of type bytes, give pickle.dumps(it)"
        )
    return value


def _window(namespace_type: TypeInformation, value: Any) -> Any:
    """Return the window of a cell; a cell that is none is passed through, and the type rejects it."""
    if type(value) is int and isinstance(namespace_type, CountWindowSerializer):
        return CountWindow(value)
    if type(value) is int and isinstance(namespace_type, GlobalWindowSerializer):
        return GlobalWindow.get()
    is_struct = isinstance(value, Mapping) and set(value) == {"start", "end"}
    return TimeWindow(value["start"], value["end"]) if is_struct else value


def stamped(stored: TypeInformation, value: TypedValue, timestamp_ms: int) -> TypedValue:
    """Return a user's value as a state with time to live stores it: elements of lists and maps stamped."""
    if value is None:
        return None
    if isinstance(stored, TtlTypeInfo):
        return timestamp_ms, value
    if isinstance(stored, ListTypeInfo) and expires(stored) and isinstance(value, (list, tuple)):
        return [(timestamp_ms, element) for element in value]
    if isinstance(stored, MapTypeInfo) and expires(stored) and isinstance(value, Mapping):
        return {key: (timestamp_ms, item) for key, item in value.items()}
    return value


def gathered(batch: pa.RecordBatch, codes: ArrowObject) -> pa.RecordBatch:
    """Return a row for each code, whose value is the list of the values of its rows, in order."""
    order = np.argsort(codes, kind="stable")
    _, firsts, counts = np.unique(codes[order], return_index=True, return_counts=True)
    values = batch.column("value").take(pa.array(order))
    offsets = pa.array(np.concatenate(([0], np.cumsum(counts))))
    lists = pa.LargeListArray.from_arrays(offsets, values)
    heads = batch.take(pa.array(order[firsts])).columns[:-1]
    return pa.record_batch([*heads, lists], batch.schema.names)


#: Returns a value in the form that state keeps, or raises ``ValueError`` or ``TypeError``.
Check: TypeAlias = Callable[[TypedValue], TypedValue]


def key_check(type_info: TypeInformation) -> Check | None:
    """Return the check of map keys and namespaces of a type; None if the check of values is enough.

    As in a backend, ``FLOAT`` numbers are rounded to 32 bits, and NaN is refused.

    >>> from pyflinkstate.api.types import Types
    >>> key_check(Types.FLOAT())(0.1), key_check(Types.STRING())
    (0.10000000149011612, None)
    """
    is_plain = bool(type_info.kind) and not may_hold_nan(type_info)
    if is_plain or isinstance(type_info, WindowSerializer):
        return None
    check_key = type_info.check_key
    is_sealed = isinstance(type_info, PickledBytesTypeInfo) and not has_pickles(type_info)

    def check(key: TypedValue) -> TypedValue:
        checked = check_key(key)
        found = comparable(checked) if is_sealed else checked
        hash(found)  # raises an error if it cannot be found by its hash
        refuse_nan(found)
        return checked

    return check


def map_check(map_type: TypeInformation) -> Check | None:
    """Return the check of the map under a key; None if the check of its type is enough."""
    check_key = key_check(map_type.parts()[0])
    if check_key is None:
        return None
    return lambda value: {check_key(key): item for key, item in map_type.check(value).items()}


def stored_check(meta: RegisteredStateMeta) -> Check:
    """Return the check of the value that a state stores under a key."""
    found = map_check(meta.stored_type) if meta.kind is StateKind.MAP else None
    return meta.stored_type.check if found is None else found
