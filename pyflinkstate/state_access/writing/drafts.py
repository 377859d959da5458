"""The operators of a savepoint that is being made.

A draft is immutable, and each change returns another one. The state itself is not read until the savepoint is
written: a draft holds functions that yield the key groups, and a change wraps these functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import StateKind, Stored, safe_repr
from pyflinkstate.backends.format import OperatorState
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    arrow_type,
    decode_column,
    encode_column,
    sealed,
)
from pyflinkstate.errors import (
    IncompatibleCheckpointError,
    PickledStateError,
    PyFlinkStateError,
    StateTableError,
    UnknownStateError,
    UserFunctionError,
)
from pyflinkstate.state_access.keyed_state import (
    Group,
    KeyedState,
    KeySpace,
    last_of_each,
    state_schema,
    together,
)
from pyflinkstate.state_access.tables import Mask, nearest, nested, offsets_of, parts_of, with_elements
from pyflinkstate.state_access.views import (
    entries,
    exploded,
    timer_service,
)
from pyflinkstate.state_access.writing.fitted_tables import FittedRows, gathered


@attrs.frozen
class DraftState:
    """A keyed state or a timer queue.

    Attributes:
        meta: its name, kind and types, with pickles sealed.
        read: yields its key groups, with the columns ``key``, ``namespace`` if there is one, and ``value``.
    """

    meta: StateMeta
    read: Callable[[], Iterator[Group]]

    def changed(self, change: Callable[[int, pa.RecordBatch], pa.RecordBatch]) -> DraftState:
        """Return the state with each key group replaced by ``change(key_group, rows)``."""
        read = self.read
        return attrs.evolve(
            self, read=lambda: ((key_group, change(key_group, batch)) for key_group, batch in read())
        )


@attrs.frozen
class OperatorDraft:
    """An operator that comes from a checkpoint.

    Attributes:
        uid: its uid in the savepoint.
        keys: its keys.
        states: its keyed states and timer queues, by name.
        origin: its state in the checkpoint.
        is_rewritten: whether keyed state must be written anew; otherwise its files are copied.
        dropped: the names of operator states that are left out.
    """

    uid: str
    keys: KeySpace
    states: Mapping[str, DraftState]
    origin: OperatorState
    is_rewritten: bool = False
    dropped: frozenset[str] = frozenset()

    def state(self, name: str) -> DraftState:
        """Return a keyed state; raise ``UnknownStateError`` if there is none of that name."""
        found = self.states.get(name)
        if found is None or isinstance(found.meta, RegisteredQueueMeta):
            raise self._unknown("keyed state", name, self._names())
        return found

    def state_meta(self, name: str) -> RegisteredStateMeta:
        """Return the metadata of a keyed state; errors are those of :meth:`state`."""
        meta = self.state(name).meta
        assert isinstance(meta, RegisteredStateMeta)
        return meta

    def renamed(self, uid: str) -> OperatorDraft:
        """Return the same with another uid."""
        return attrs.evolve(self, uid=uid, keys=attrs.evolve(self.keys, uid=uid))

    def with_state(self, state: DraftState, instead_of: str | None = None) -> OperatorDraft:
        """Return the draft with a changed state, which may have another name than before."""
        kept = {name: known for name, known in self.states.items() if name != instead_of}
        return attrs.evolve(self, states={**kept, state.meta.name: state}, is_rewritten=True)

    def with_all(self, change: Callable[[DraftState], DraftState]) -> OperatorDraft:
        """Return the draft with a change of each state and timer queue."""
        states = {name: change(state) for name, state in self.states.items()}
        return attrs.evolve(self, states=states, is_rewritten=True)

    def without_state(self, name: str) -> OperatorDraft:
        """Return the draft without all that has a name: a keyed state, a timer service, an operator state.

        Raises:
            UnknownStateError: there is none of that name.
        """
        dropped = {known for known, state in self.states.items() if name in (known, _service(state.meta))}
        is_operator_state = name in self.operator_states
        if not dropped and not is_operator_state:
            services = {service for state in self.states.values() if (service := _service(state.meta))}
            raise self._unknown("state", name, [*self._names(), *services, *self.operator_states])
        draft = attrs.evolve(self, dropped=self.dropped | {name}) if is_operator_state else self
        kept = {known: state for known, state in self.states.items() if known not in dropped}
        return attrs.evolve(draft, states=kept, is_rewritten=True) if dropped else draft

    @property
    def operator_states(self) -> list[str]:
        """The names of operator states that are not left out."""
        handles = [subtask.managed_operator for subtask in self.origin.subtasks]
        names = dict.fromkeys(name for handle in handles if handle is not None for name in handle.states)
        return [name for name in names if name not in self.dropped]

    @property
    def has_operator_state(self) -> bool:
        """Whether a subtask has operator state, managed or raw, that is not left out."""
        return bool(self.operator_states) or any(sub.raw_operator for sub in self.origin.subtasks)

    def with_at_most(self, parallelism: int) -> OperatorDraft:
        """Return the draft with at most this many subtasks. The others have only keyed state."""
        subtasks = self.origin.subtasks[:parallelism]
        number = min(self.origin.parallelism, parallelism)
        return attrs.evolve(self, origin=attrs.evolve(self.origin, parallelism=number, subtasks=subtasks))

    def check_no_raw_keys(self) -> None:
        """Refuse raw keyed state, which only its function reads, with an ``IncompatibleCheckpointError``."""
        if any(subtask.raw_keyed is not None for subtask in self.origin.subtasks):
            raise IncompatibleCheckpointError(
                f"operator {self.uid!r} has raw keyed state, and only its function knows the keys in it, so "
                f"they cannot be assigned to other key groups",
                operator=self.uid,
            )

    def _names(self) -> list[str]:
        return [name for name, state in self.states.items() if isinstance(state.meta, RegisteredStateMeta)]

    def _unknown(self, kind: str, name: str, known: list[str]) -> UnknownStateError:
        return UnknownStateError(
            f"operator {self.uid!r} has no {kind} {name!r}; it has {nearest(name, known)}",
            uid=self.uid,
            state=name,
        )


def draft_of(state: KeyedState) -> OperatorDraft:
    """Return the draft of an operator as it is in its checkpoint."""
    operator = state.operator
    states = {
        name: DraftState(_lasting(state, meta), partial(state.groups, name))
        for name, meta in state.metas.items()
    }
    is_one_file = all(len(chain) == 1 and chain[0].handle.native is None for chain in state.chains)
    return OperatorDraft(operator.operator_id, state.keys, states, operator, not is_one_file)


def _lasting(state: KeyedState, meta: StateMeta) -> StateMeta:
    """Return the metadata with the newest time to live that a file knows."""
    if isinstance(meta, RegisteredQueueMeta):
        return meta
    return attrs.evolve(meta, ttl_ms=state.ttl_ms.get(meta.name))


def _service(meta: StateMeta) -> str | None:
    return timer_service(meta)[1] if isinstance(meta, RegisteredQueueMeta) else None


#: Returns a mask of the rows of a batch of entries that are deleted.
Predicate = Callable[[RegisteredStateMeta, pa.RecordBatch], Mask]


def with_rows(state: DraftState, fitted: FittedRows, keys: KeySpace) -> DraftState:
    """Return the state with rows put into it."""
    new = list(keys.split(in_columns_of(state.meta, keys, fitted.rows)))
    merge = _merged_maps if fitted.are_map_entries else _last_rows

    def read() -> Iterator[Group]:
        for key_group, present in together([state.read(), iter(new)]):
            rows = pa.concat_batches([in_columns_of(state.meta, keys, batch) for batch in present.values()])
            yield key_group, merge(state.meta, keys, rows) if 1 in present else rows

    return DraftState(state.meta, read)


def _last_rows(meta: StateMeta, keys: KeySpace, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the last row of each key and namespace."""
    return _without_empty(
        meta, rows.take(pa.array(last_of_each(keys.head_codes(meta.namespace_type, rows.columns[:-1]))))
    )


def _without_empty(meta: StateMeta, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows that a backend would keep: empty lists and maps are left out."""
    if not isinstance(meta, RegisteredStateMeta) or meta.kind not in (StateKind.LIST, StateKind.MAP):
        return rows
    return rows.filter(pa.array(np.diff(offsets_of(rows.column("value"))) > 0))


def _merged_maps(meta: StateMeta, keys: KeySpace, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return one map for each key and namespace; of equal map keys the last entry counts."""
    heads, (map_keys, items) = exploded(StateKind.MAP, rows)
    codes = keys.head_codes(meta.namespace_type, heads, (meta.stored_type.parts()[0], map_keys))
    kept = pa.array(last_of_each(codes))
    entries = pa.StructArray.from_arrays([map_keys.take(kept), items.take(kept)], ["key", "value"])
    flat = pa.record_batch([*(head.take(kept) for head in heads), entries], rows.schema.names)
    lists = gathered(flat, keys.head_codes(meta.namespace_type, flat.columns[:-1]))
    values = lists.column("value")
    maps = nested(offsets_of(values), values.values.flatten()).cast(arrow_type(meta.stored_type))
    return pa.record_batch([*lists.columns[:-1], maps], rows.schema.names)


def without_keys(state: DraftState, gone: pa.Array, keys: KeySpace) -> DraftState:
    """Return the state without the entries of some keys, given as a column of a state file."""
    wanted = set(keys.groups_of_keys(keys.decoded(gone)).tolist())

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
        gone = is_gone(meta, entries(meta, batch, meta.ttl_ms))
        return _kept(meta, batch, ~gone) if gone.any() else batch

    return state.changed(change)


def _kept(meta: RegisteredStateMeta, batch: pa.RecordBatch, kept: Mask) -> pa.RecordBatch:
    """Return the rows that are left; lists and maps without elements are left out, as by ``clear()``."""
    if meta.kind not in (StateKind.LIST, StateKind.MAP):
        return batch.filter(pa.array(kept))
    values = batch.column("value")
    left, sizes = with_elements(values, parts_of(values), kept)
    rows = pa.record_batch([*batch.columns[:-1], left.cast(values.type)], batch.schema.names)
    return rows.filter(pa.array(sizes > 0))


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
        pieces = keys.spread(in_columns_of(state.meta, keys, batch) for _, batch in state.read())
        return ((key_group, pa.concat_batches(batches)) for key_group, batches in pieces.items())

    return DraftState(state.meta, read)


def in_columns_of(meta: StateMeta, keys: KeySpace, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows in exactly the columns of a state."""
    schema = state_schema(meta, keys.key_type)
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.record_batch(columns, schema=schema)
