"""Turns a user's table into rows of a state, as a state file has them, and checks that every value fits.

A table has the columns of ``Checkpoint.entries``, or for a list or a map one column ``value`` with all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api.descriptors import StateKind
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    TypeInformation,
)
from pyflinkstate.api.values import ArrowObject, Key, TypedValue
from pyflinkstate.api.windows import CountWindow, TimeWindow
from pyflinkstate.backends.types import (
    RegisteredStateMeta,
    TtlTypeInfo,
    arrow_type,
    decode_column,
    dump_pickle,
    encode_column,
    unsealed,
)
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.expiry import expires, user_type
from pyflinkstate.state_access.pickles import has_pickles
from pyflinkstate.state_access.views import namespace_name
from pyflinkstate.state_access.writing.key_space import KeySpace

#: Arrow types whose columns need no look at single values, if the state's type is written in the same way.
_PLAIN = (
    pa.int64(),
    pa.int32(),
    pa.int16(),
    pa.int8(),
    pa.float64(),
    pa.bool_(),
    pa.string(),
    pa.large_string(),
)
_PICKLE_BEGINS, _PICKLE_ENDS = b"\x80", b"."


@attrs.frozen
class FittedRows:
    """Rows that fit a state.

    Attributes:
        rows: ``key``, ``namespace`` if there is one, and ``value`` as the state stores it.
        are_map_entries: whether each value is a map with one entry, to be put into the map that is there.
    """

    rows: pa.RecordBatch
    are_map_entries: bool = False


def arrow_table(table: ArrowObject, what: str) -> pa.Table:
    """Return a table, record batch, reader, pandas ``DataFrame``, list or dict of columns as an Arrow table.

    Raises:
        StateTableError: it is none of these.
    """
    try:
        return _arrow_table(table)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StateTableError(f"{what}: {safe_repr(table)} cannot be made an Arrow table: {error}") from error


def _arrow_table(table: ArrowObject) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "to_arrow"):  # a StateTable, or a table of another library
        return _arrow_table(table.to_arrow())
    if hasattr(table, "read_all"):
        return table.read_all()
    if isinstance(table, Mapping):
        return pa.table(dict(table))
    if isinstance(table, list):
        return pa.Table.from_pylist(table)
    if not hasattr(table, "iloc"):
        raise TypeError("give a table, a pandas DataFrame, a dict of columns or a list of dicts")
    return pa.Table.from_pandas(table, preserve_index=False)


def fitted(table: ArrowObject, keys: KeySpace, meta: RegisteredStateMeta, now_ms: int) -> FittedRows:
    """Return the rows of a table for a state.

    Args:
        table: what :func:`arrow_table` takes.
        keys: the keys of the operator.
        meta: the state.
        now_ms: the timestamp of values with time to live if the table has no column ``timestamp_ms``.

    Raises:
        StateTableError: columns are missing or unknown, or a value does not fit; the message names both.
        InvalidKeyError: a key does not fit.
    """
    what = f"operator {keys.uid!r}, state {meta.name!r}"
    found = arrow_table(table, what)
    form = _Form(keys, meta, what, now_ms)
    form.check_columns(found.column_names)
    (batch,) = found.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], found.schema)]
    return form.rows(batch)


@attrs.frozen
class _Form:
    """Which columns a table for a state has, and what becomes of them."""

    keys: KeySpace
    meta: RegisteredStateMeta
    what: str
    now_ms: int

    def check_columns(self, names: list[str]) -> None:
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

    def rows(self, batch: pa.RecordBatch) -> FittedRows:
        heads = [self._keys(batch.column("key"))]
        if self.meta.is_namespaced:
            heads.append(self._namespaces(batch.column(namespace_name(self.meta))))
        stamps = self._stamps(batch)
        names = batch.schema.names
        if self.meta.kind is StateKind.LIST and "position" in names:
            return FittedRows(self._lists(batch, heads, stamps))
        if self.meta.kind is StateKind.MAP and "map_key" in names:
            return FittedRows(self._batch(heads, self._map_entries(batch, stamps)), are_map_entries=True)
        return FittedRows(self._batch(heads, self._values(batch.column("value"), stamps)))

    def _batch(self, heads: list[pa.Array], values: pa.Array) -> pa.RecordBatch:
        names = ["key", *(["namespace"] if self.meta.is_namespaced else []), "value"]
        return pa.record_batch([*heads, values], names)

    # --- columns -----------------------------------------------------------------------------------------

    def _keys(self, column: pa.Array) -> pa.Array:
        if isinstance(self.keys.key_type, PickledBytesTypeInfo) and pa.types.is_large_binary(column.type):
            self.keys.checked(self.keys.decoded(column))
            return column
        return self.keys.written(self.keys.checked(self._python_keys(column)))

    def _python_keys(self, column: pa.Array) -> Iterable[Key]:
        key_type = self.keys.key_type
        if isinstance(key_type, PickledBytesTypeInfo):
            python_keys: list[Key] = column.to_pylist()
            return python_keys
        as_written = column.type == arrow_type(key_type)
        return self.keys.decoded(column) if as_written else _python_values(key_type, column)

    def _namespaces(self, column: pa.Array) -> pa.Array:
        written = arrow_type(self.meta.namespace_type)
        if column.type == written:
            return column
        return self._encoded(
            self.meta.namespace_type, map(_window, column.to_pylist()), namespace_name(self.meta)
        )

    def _stamps(self, batch: pa.RecordBatch) -> list[int]:
        if "timestamp_ms" not in batch.schema.names:
            return [self.now_ms] * batch.num_rows
        stamps: list[int] = batch.column("timestamp_ms").to_pylist()
        if not all(type(stamp) is int for stamp in stamps):
            raise StateTableError(f"{self.what}: 'timestamp_ms' must be whole numbers, ms since 1970")
        return stamps

    def _values(self, column: pa.Array, stamps: list[int]) -> pa.Array:
        """Return whole values."""
        stored = self.meta.stored_type
        if not expires(stored):
            return self._checked(stored, column)
        values = _python_values(user_type(stored), column)
        return self._encoded(stored, map(stamped, repeat(stored), values, stamps), "value")

    def _lists(self, batch: pa.RecordBatch, heads: list[pa.Array], stamps: list[int]) -> pa.RecordBatch:
        """Return a row for each key with its elements, in the order of their positions."""
        assert isinstance(self.meta.stored_type, ListTypeInfo)
        positions = batch.column("position").to_numpy(zero_copy_only=False)
        order = pa.array(np.argsort(positions, kind="stable"))
        elements = self._elements(self.meta.stored_type.element_type, batch.column("value"), stamps)
        heads, elements = [head.take(order) for head in heads], elements.take(order)
        types = [self.keys.key_type, self.meta.namespace_type]
        codes = self.keys.codes(zip(types, heads, strict=False))
        return gathered(self._batch(heads, elements), codes)

    def _map_entries(self, batch: pa.RecordBatch, stamps: list[int]) -> pa.Array:
        assert isinstance(self.meta.stored_type, MapTypeInfo)
        map_type = self.meta.stored_type
        keys = self._checked(map_type.key_type_info, batch.column("map_key"), "map_key")
        if keys.null_count:
            raise StateTableError(f"{self.what}: 'map_key' must not be null")
        items = self._elements(map_type.value_type_info, batch.column("value"), stamps)
        offsets = pa.array(np.arange(len(keys) + 1, dtype=np.int32))
        return pa.MapArray.from_arrays(offsets, keys, items).cast(arrow_type(map_type))

    def _elements(self, type_info: TypeInformation, column: pa.Array, stamps: list[int]) -> pa.Array:
        if not isinstance(type_info, TtlTypeInfo):
            return self._checked(type_info, column)
        values = _python_values(type_info.value_type, column)
        return self._encoded(type_info, zip(stamps, values, strict=True), "value")

    # --- values ------------------------------------------------------------------------------------------

    def _checked(self, type_info: TypeInformation, column: pa.Array, name: str = "value") -> pa.Array:
        arrow = arrow_type(type_info)
        if column.type == arrow and arrow in _PLAIN and type_info.kind not in ("CHAR", "BIG_DEC"):
            return column
        if column.type == arrow and not has_pickles(unsealed(type_info)):
            return self._encoded(type_info, decode_column(type_info, column), name)
        return self._encoded(type_info, _python_values(type_info, column), name)

    def _encoded(self, type_info: TypeInformation, values: Iterable[TypedValue], name: str) -> pa.Array:
        checked: list[TypedValue] = []
        value = None
        try:
            for value in values:
                checked.append(None if value is None else type_info.check(value))
            return encode_column(type_info, checked)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            raise StateTableError(
                f"{self.what}: {safe_repr(value)} in column {name!r} does not fit {user_type(type_info)}: "
                f"{error}"
            ) from error


def _python_values(type_info: TypeInformation, column: pa.Array) -> Iterator[TypedValue]:
    """Yield the values of a column of any Arrow type in the shapes that the type accepts."""
    convert = _shaped(type_info)
    return (None if value is None else convert(value) for value in column.to_pylist())


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


def _shaped(type_info: TypeInformation) -> Callable[[Any], TypedValue]:
    """Return what makes lists of pairs dicts where the type is a map, and pickles what has no type."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return _pickled
    if isinstance(type_info, MapTypeInfo):
        of_key, of_value = map(_shaped, (type_info.key_type_info, type_info.value_type_info))
        return lambda pairs: {
            of_key(key): None if value is None else of_value(value) for key, value in dict(pairs).items()
        }
    if isinstance(type_info, ListTypeInfo):
        of_element = _shaped(type_info.element_type)
        return lambda values: [None if value is None else of_element(value) for value in values]
    if type_info.kind == "TUPLE":
        return lambda value: tuple(value.values()) if isinstance(value, dict) else tuple(value)
    return lambda value: value


def _window(value: Any) -> Any:
    """Return the window that a value of an Arrow column stands for."""
    if isinstance(value, Mapping) and set(value) == {"start", "end"}:
        return TimeWindow(value["start"], value["end"])
    return CountWindow(value) if type(value) is int else value


def stamped(stored: TypeInformation, value: TypedValue, timestamp_ms: int) -> TypedValue:
    """Return a user's value as a state with time to live stores it."""
    if value is None:
        return None
    if isinstance(stored, TtlTypeInfo):
        return timestamp_ms, value
    if isinstance(stored, ListTypeInfo) and expires(stored):
        return [(timestamp_ms, element) for element in value]
    if isinstance(stored, MapTypeInfo) and expires(stored):
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
