"""Changes of one state, key group by key group: put, delete, delete some entries, convert the values."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.state import StateKind
from pyflinkstate.api.types import MapTypeInfo, TypeInformation
from pyflinkstate.api.values import ArrowObject, Stored
from pyflinkstate.backends.types import (
    RegisteredStateMeta,
    StateMeta,
    TtlTypeInfo,
    arrow_type,
    decode_column,
    encode_column,
    sealed,
    unsealed,
)
from pyflinkstate.errors import PickledStateError, PyFlinkStateError, StateTableError, UserFunctionError
from pyflinkstate.state_access.expiry import Mask, offsets_of
from pyflinkstate.state_access.identity import last_of_each
from pyflinkstate.state_access.key_space import Group, KeySpace
from pyflinkstate.state_access.keyed_state import state_schema
from pyflinkstate.state_access.views import element_type, expiries_of, exploded, exploded_rows, namespace_name
from pyflinkstate.state_access.writing.drafts import DraftState
from pyflinkstate.state_access.writing.fitted_tables import FittedRows, gathered

#: Returns a mask of the rows of a batch of entries that are deleted.
Predicate = Callable[[RegisteredStateMeta, pa.RecordBatch], Mask]


def with_rows(state: DraftState, fitted: FittedRows, keys: KeySpace) -> DraftState:
    """Return the state with rows put into it."""
    new = dict(keys.split(in_columns_of(state.meta, keys, fitted.rows)))
    merge = _merged_maps if fitted.are_map_entries else _last_rows

    def read() -> Iterator[Group]:
        left = dict(new)
        for key_group, batch in _with_empty(state, left, keys):
            rows = left.pop(key_group, None)
            if rows is not None:
                batch = merge(state.meta, keys, pa.concat_batches([batch, rows]))
            yield key_group, batch

    return DraftState(state.meta, read)


def _with_empty(state: DraftState, wanted: dict[int, pa.RecordBatch], keys: KeySpace) -> Iterator[Group]:
    """Yield the key groups of a state and, in order, empty ones for those that are wanted and not there."""
    missing, schema = sorted(wanted), columns_of(state.meta, keys)
    for key_group, batch in state.read():
        while missing and missing[0] < key_group:
            yield missing.pop(0), _no_rows(schema)
        if missing and missing[0] == key_group:
            del missing[0]
        yield key_group, in_columns_of(state.meta, keys, batch)
    for key_group in missing:
        yield key_group, _no_rows(schema)


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)


def _last_rows(meta: StateMeta, keys: KeySpace, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last row of each key and namespace."""
    return _without_empty(meta, rows.take(pa.array(last_of_each(_codes(meta, keys, rows)))))


def _without_empty(meta: StateMeta, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that a backend would keep: empty lists and maps are left out."""
    if not isinstance(meta, RegisteredStateMeta) or meta.kind not in (StateKind.LIST, StateKind.MAP):
        return rows
    return rows.filter(pa.array(np.diff(offsets_of(rows.column("value"))) > 0))


def _codes(meta: StateMeta, keys: KeySpace, rows: pa.RecordBatch) -> ArrowObject:
    heads = rows.columns[:-1]
    return keys.codes(zip([keys.key_type, meta.namespace_type], heads, strict=False))


def _merged_maps(meta: StateMeta, keys: KeySpace, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return one map for each key and namespace; of equal map keys the last entry counts."""
    assert isinstance(meta.stored_type, MapTypeInfo)
    numbers, (map_keys, items) = exploded(StateKind.MAP, rows.column("value"))
    heads = [head.take(numbers) for head in rows.columns[:-1]]
    types = [keys.key_type, meta.namespace_type][: len(heads)]
    codes = keys.codes([*zip(types, heads, strict=True), (meta.stored_type.key_type_info, map_keys)])
    kept = pa.array(last_of_each(codes))
    entries = pa.StructArray.from_arrays([map_keys.take(kept), items.take(kept)], ["key", "value"])
    flat = pa.record_batch([*(head.take(kept) for head in heads), entries], rows.schema.names)
    lists = gathered(flat, _codes(meta, keys, flat))
    return pa.record_batch(
        [*lists.columns[:-1], _maps(lists.column("value"), meta.stored_type)], rows.schema.names
    )


def _maps(lists: pa.LargeListArray, map_type: TypeInformation) -> pa.Array:
    map_keys, items = lists.values.flatten()
    offsets = lists.offsets.cast(pa.int32())
    return pa.MapArray.from_arrays(offsets, map_keys, items).cast(arrow_type(map_type))


def without_keys(state: DraftState, gone: pa.Array, keys: KeySpace) -> DraftState:
    """Return the state without the entries of some keys, given as a column of a state file."""
    wanted = set(keys.groups_of(gone).tolist())

    def change(key_group: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        if key_group not in wanted:
            return batch
        return batch.filter(pa.array(~keys.mask(batch.column("key"), gone)))

    return state.changed(change)


def without_entries(state: DraftState, is_gone: Predicate) -> DraftState:
    """Return the state without the entries that a predicate picks, given them as a table has them."""
    meta = state.meta
    assert isinstance(meta, RegisteredStateMeta)

    def change(_: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        gone = is_gone(meta, entries(meta, batch))
        return _kept(meta, batch, ~gone) if gone.any() else batch

    return state.changed(change)


def entries(meta: RegisteredStateMeta, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a row for each entry of the rows of a state, expired ones too (see ``Checkpoint.entries``)."""
    heads, columns = exploded_rows(meta.kind, batch)
    names = ["key", *([namespace_name(meta)] if meta.is_namespaced else [])]
    names += {StateKind.LIST: ["position"], StateKind.MAP: ["map_key"]}.get(meta.kind, [])
    if isinstance(element_type(meta), TtlTypeInfo):
        timestamps, values = columns.pop().flatten()
        columns += [values, timestamps, expiries_of(timestamps, meta.ttl_ms)]
        return pa.record_batch([*heads, *columns], [*names, "value", "timestamp_ms", "expires_at_ms"])
    return pa.record_batch([*heads, *columns], [*names, "value"])


def _kept(meta: RegisteredStateMeta, batch: pa.RecordBatch, kept: Mask) -> pa.RecordBatch:
    """Return the rows that are left; lists and maps without elements are left out, as by ``clear()``."""
    if meta.kind not in (StateKind.LIST, StateKind.MAP):
        return batch.filter(pa.array(kept))
    values = batch.column("value")
    offsets = np.concatenate(([0], np.cumsum(kept)))[offsets_of(values)]
    _, columns = exploded(meta.kind, values)
    left = [column.filter(pa.array(kept)) for column in columns]
    if meta.kind is StateKind.LIST:
        made = pa.LargeListArray.from_arrays(pa.array(offsets), left[-1])
    else:
        made = pa.MapArray.from_arrays(pa.array(offsets.astype(np.int32)), *left)
    rows = pa.record_batch([*batch.columns[:-1], made.cast(values.type)], batch.schema.names)
    return rows.filter(pa.array(np.diff(offsets) > 0))


# --- migration ---------------------------------------------------------------------------------------------


def converted(
    state: DraftState, now: RegisteredStateMeta, keys: KeySpace, convert: Callable[[Stored], Stored]
) -> DraftState:
    """Return the state as ``now``, with each stored value converted; None removes the entry.

    Raises (when it is read):
        StateTableError: a converted value does not fit.
        UserFunctionError: ``convert`` raised.
    """
    was = state.meta
    assert isinstance(was, RegisteredStateMeta)

    def change(_: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        values = decode_column(was.stored_type, batch.column("value"))
        made = _converted(batch, values, now, keys, convert)
        column = _encoded(batch, made, now, keys)
        rows = pa.record_batch([*batch.columns[:-1], column], batch.schema.names)
        rows = rows.filter(column.is_valid()) if column.null_count else rows
        return _without_empty(now, rows)

    # Later changes see pickles as a file has them, whoever has made them.
    later = attrs.evolve(now, stored_type=sealed(now.stored_type))
    return DraftState(later, state.changed(change).read)


def _converted(
    batch: pa.RecordBatch,
    values: list[Stored],
    now: RegisteredStateMeta,
    keys: KeySpace,
    convert: Callable[[Stored], Stored],
) -> list[Stored]:
    made: list[Stored] = []
    try:
        for value in values:
            made.append(convert(value))
    except Exception as error:
        key = _key_text(batch, len(made), keys)
        where = f"operator {keys.uid!r}, state {now.name!r}, key {key}"
        if isinstance(error, UserFunctionError):
            raise UserFunctionError(f"{where}: {error.message}", state=now.name, key=key) from error.__cause__
        raise StateTableError(f"{where}: {error}") from error
    return made


def _encoded(batch: pa.RecordBatch, made: list[Stored], now: RegisteredStateMeta, keys: KeySpace) -> pa.Array:
    """Return converted values as a column; an error names the key of a value that does not fit."""
    try:
        return encode_column(now.stored_type, made)
    except (PyFlinkStateError, pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        if len(made) == 1:
            key = _key_text(batch, 0, keys)
            raise StateTableError(f"operator {keys.uid!r}, state {now.name!r}, key {key}: {error}") from error
        half = len(made) // 2
        return pa.concat_arrays(
            [
                _encoded(batch.slice(0, half), made[:half], now, keys),
                _encoded(batch.slice(half), made[half:], now, keys),
            ]
        )


def _key_text(batch: pa.RecordBatch, row: int, keys: KeySpace) -> str:
    """Return the key of a row as an error shows it; one that must not be loaded is not shown."""
    try:
        return safe_repr(keys.decoded(batch.column("key").slice(row, 1))[0])
    except PickledStateError:
        return "that is pickled"


# --- key groups --------------------------------------------------------------------------------------------


def spread_anew(state: DraftState, keys: KeySpace) -> DraftState:
    """Return the state with its keys in the key groups of ``keys``; it is in memory while it is read."""

    def read() -> Iterator[Group]:
        pieces: dict[int, list[pa.RecordBatch]] = {}
        for _, batch in state.read():
            for key_group, rows in keys.split(in_columns_of(state.meta, keys, batch)):
                pieces.setdefault(key_group, []).append(rows)
        for key_group in sorted(pieces):
            yield key_group, pa.concat_batches(pieces.pop(key_group))

    return DraftState(state.meta, read)


def columns_of(meta: StateMeta, keys: KeySpace) -> pa.Schema:
    """Return the columns of a state."""
    return state_schema(meta, keys.key_type)


def in_columns_of(meta: StateMeta, keys: KeySpace, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in exactly the columns of a state."""
    schema = columns_of(meta, keys)
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)


def open_pickles(state: DraftState) -> DraftState:
    """Return the state with its pickles as the program declared them, so that its values are loaded."""
    meta = state.meta
    assert isinstance(meta, RegisteredStateMeta)
    return DraftState(attrs.evolve(meta, stored_type=unsealed(meta.stored_type)), state.read)
