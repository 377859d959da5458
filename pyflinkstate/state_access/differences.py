"""The differences between two checkpoints: keys added, removed and changed, a key group at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import TypedValue, TypeInformation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    StateMeta,
    keys_may_become,
)
from pyflinkstate.errors import StateTableError
from pyflinkstate.runtime.storage import AnyPath
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.keyed_state import (
    Codes,
    Group,
    KeyedState,
    Typed,
    distinct,
    row_codes,
    together,
    values_at,
)
from pyflinkstate.state_access.tables import (
    Column,
    Expiry,
    Load,
    Mask,
    OperatorStates,
    Read,
    StateTable,
    comparable,
    equal_rows,
    schema_of,
    typed_column,
    user_type,
    user_values,
)
from pyflinkstate.state_access.views import head_columns, timer_service


@attrs.frozen
class StateDiff:
    """The difference of one state between two checkpoints.

    Attributes:
        uid: the operator.
        state: the name of the state; of timers the name of their service and its kind of time.
        table: a row for each key that differs: ``key_group``, ``key``, ``window`` or ``namespace`` if there
            is one, ``change`` (``added``, ``removed`` or ``changed``), ``old`` and ``new``. Timers have
            ``timestamp_ms`` instead of old and new, elements of lists ``change`` and ``value`` only, and
            entries of broadcast state ``key``, ``change``, ``old`` and ``new``.
        kind: ``keyed``, ``timers`` or ``operator_state``.
    """

    uid: str
    state: str
    table: StateTable
    kind: str = "keyed"

    def counts(self) -> dict[str, int]:
        """Return the number of added, removed and changed rows."""
        found: Counter[str] = Counter({"added": 0, "removed": 0, "changed": 0})
        for batch in self.table.to_batches():
            found.update(batch.column("change").to_pylist())
        return dict(found)


def diff(
    a: AnyPath | Checkpoint, b: AnyPath | Checkpoint, uid: str | None = None, *, allow_pickle: bool = False
) -> list[StateDiff]:
    """Compare the state of two checkpoints: keyed state, timers, operator state.

    Values are compared as the program sees them, without the times of accesses. Expired values that are
    still there count. No state is read before a table is asked for its rows. Memory then
    holds one key group of each checkpoint, unless the two differ in max parallelism: then it holds both
    states. Operator state is compared over all subtasks, lists without regard to order, in memory.

    Args:
        a: the old checkpoint, or its path as in :func:`open_checkpoint`.
        b: the new one.
        uid: compare only this operator. Default: all.
        allow_pickle: load pickled keys and values, which runs code.

    Returns:
        an item for each state that either checkpoint has, operator by operator; most may have no rows.

    Raises:
        ConfigurationError: one of the two is neither a checkpoint nor a path.
        UnknownOperatorError: neither checkpoint has an operator ``uid``.
        StateTableError: a state has keys, namespaces, or elements of incompatible types in the two.
    """
    sides = [side if isinstance(side, Checkpoint) else open_checkpoint(side) for side in (a, b)]
    uids = [operator.uid for side in sides for operator in side.operators()]
    if uid is not None and uid not in uids:
        sides[1].operator(uid)
    wanted = [uid] if uid is not None else list(dict.fromkeys(uids))
    return list(chain.from_iterable(_of_operator(name, sides, allow_pickle) for name in wanted))


def _of_operator(uid: str, sides: list[Checkpoint], allow_pickle: bool) -> Iterator[StateDiff]:
    handles = [side.metadata.operator(uid) for side in sides]
    pairs = list(zip(sides, handles, strict=True))
    keyed = [side.keyed_state(uid, allow_pickle) if operator else None for side, operator in pairs]
    timers = []
    for name in dict.fromkeys(name for state in keyed if state is not None for name in state.metas):
        pair = KeyedPair(name, keyed, allow_pickle)
        if pair.is_queue:
            timers.append(pair)
        else:
            yield StateDiff(uid, name, pair.table())
    yield from (StateDiff(uid, pair.timer_service, pair.table(), "timers") for pair in timers)
    lists = [OperatorStates(operator, side.reader) if operator else None for side, operator in pairs]
    for name in dict.fromkeys(name for states in lists if states is not None for name in states.written):
        yield StateDiff(uid, name, OperatorStatePair(name, lists, allow_pickle).table(), "operator_state")


@attrs.frozen
class KeyedPair:
    """A keyed state, or a queue of timers, in the old and in the new checkpoint.

    Attributes:
        name: its name.
        states: the keyed state of the operator in the two; None where there is no such operator.
        allow_pickle: whether pickles are loaded in the rows of the table.
    """

    name: str
    states: Sequence[KeyedState | None]
    allow_pickle: bool

    @property
    def metas(self) -> list[StateMeta | None]:
        """The state's metadata in the two checkpoints; None in one without the state."""
        return [None if state is None else state.metas.get(self.name) for state in self.states]

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue of timers."""
        return any(isinstance(meta, RegisteredQueueMeta) for meta in self.metas)

    @property
    def timer_service(self) -> str:
        """The name of the timer service of a queue, and its kind of time."""
        return ", ".join(reversed(timer_service(self._declared)))

    def table(self) -> StateTable:
        """Return the rows that differ; of timers, those that only one of the two has."""
        head = (Column("key_group", pa.int32()), *head_columns(self._key_type, [self._declared]))
        change = Column("change", pa.string())
        if self.is_queue:
            columns = (*head, Column("timestamp_ms", pa.int64()), change)
        else:
            newest = user_type(self._declared.stored_type)
            old, new = (one or newest for one in self._user_types)
            columns = (*head, change, typed_column("old", old), typed_column("new", new))
        read = partial(self._batches, columns)
        return StateTable(columns, partial(read, None), self.allow_pickle, partial(self._split, read))

    # --- types -----------------------------------------------------------------------------------------

    @property
    def _declared(self) -> StateMeta:
        """The state's metadata in the newer checkpoint that has it.

        Raises:
            StateTableError: namespaces are of other types in the other one.
        """
        old, new = self.metas
        meta = new or old
        assert meta is not None
        spaces = {str(one.namespace_type) for one in (old, new) if one is not None}
        if len(spaces) > 1:
            raise self._incomparable("namespaces", sorted(spaces))
        return meta

    @property
    def _key_type(self) -> TypeInformation:
        """The type of keys; the wider one if it differs.

        Raises:
            StateTableError: neither type can hold the keys of the other.
        """
        types = [state.key_type for state in self._present]
        for one in types:
            if all(keys_may_become(other, one) for other in types):
                return one
        raise self._incomparable("keys", map(str, types))

    def _incomparable(self, what: str, types: Iterable[str]) -> StateTableError:
        return StateTableError(
            f"state {self.name!r} has {what} of {' and '.join(types)} in the two checkpoints, so it cannot "
            f"be compared",
            state=self.name,
        )

    @property
    def _user_types(self) -> list[TypeInformation | None]:
        """The types of values, as the program knows them."""
        return [None if meta is None else user_type(meta.stored_type) for meta in self.metas]

    @property
    def _present(self) -> list[KeyedState]:
        """The operator's state in those checkpoints that have this state."""
        return [state for state in self.states if state is not None and self.name in state.metas]

    # --- rows ------------------------------------------------------------------------------------------

    @property
    def _numbers_differ(self) -> bool:
        """Whether the two have another number of key groups, so that all of them are compared as one."""
        return len({state.operator.max_parallelism for state in self.states if state is not None}) > 1

    def _batches(self, columns: tuple[Column, ...], wanted: KeyGroupRange | None) -> Iterator[pa.RecordBatch]:
        for key_group, present in together([self._groups(state, wanted) for state in self.states]):
            made = self._compared(key_group, [present.get(0), present.get(1)], columns)
            if made.num_rows:
                yield made

    def _groups(self, state: KeyedState | None, wanted: KeyGroupRange | None) -> Iterator[Group]:
        if state is None or self.name not in state.metas:
            return iter(())
        groups = state.groups(self.name, wanted)
        return _as_one(groups) if self._numbers_differ else groups

    def _compared(
        self, key_group: int, batches: list[pa.RecordBatch | None], columns: tuple[Column, ...]
    ) -> pa.RecordBatch:
        present = [batch for batch in batches if batch is not None]
        head = columns[1:-1] if self.is_queue else columns[1:-3]
        keys = [
            (column.type_info, pa.concat_arrays([batch.column(n).cast(column.arrow) for batch in present]))
            for n, column in enumerate(head)
        ]
        values = [] if self.is_queue else [self._values(n, batches[n], columns[n - 2].arrow) for n in (0, 1)]
        old_rows = 0 if batches[0] is None else batches[0].num_rows
        load = self._present[0].keys.load
        arrays = differing_rows(keys, old_rows, load, values, self._user_types[1])
        key_groups = pa.repeat(pa.scalar(key_group, pa.int32()), len(arrays[0]))
        return pa.record_batch([key_groups, *arrays], schema=schema_of(columns))

    def _values(self, number: int, batch: pa.RecordBatch | None, arrow: pa.DataType) -> pa.Array:
        meta = self.metas[number]
        if batch is None or meta is None:
            return pa.nulls(0, arrow)
        return user_values(meta.stored_type, batch.column("value"), Expiry(0))[0]

    def _split(
        self, read: Callable[[KeyGroupRange | None], Iterator[pa.RecordBatch]], number: int | None
    ) -> list[Read]:
        """Return readers of ranges of key groups; a single one if a range needs all files."""
        states = [state for state in self.states if state is not None]
        if self._numbers_differ or any(state.is_spread_anew for state in states):
            return [partial(read, None)]
        ranges = max((state.ranges(number) for state in states), key=len)
        return [partial(read, own) for own in ranges]


def differing_rows(
    keys: Sequence[Typed],
    old_rows: int,
    load: Load,
    values: Sequence[pa.Array],
    type_info: TypeInformation | None,
) -> list[pa.Array]:
    """Return the rows that differ between two tables: the columns of keys, ``change``, old and new values.

    Args:
        keys: the columns that tell rows apart, the rows of the old table before those of the new one.
        old_rows: the number of rows of the old table.
        load: loads pickled keys.
        values: the old and the new values; none if a key is all of its row.
        type_info: the type of the values.
    """
    codes = row_codes(keys, load)
    first, places = distinct(codes, (old_rows, len(codes) - old_rows))
    differs = ~_alike(places, values, type_info)
    rows = pa.array(first[differs])
    old, new = (place[differs] for place in places)
    kinds = np.where(old < 0, "added", np.where(new < 0, "removed", "changed"))
    heads = [column.take(rows) for _, column in keys]
    return [*heads, pa.array(kinds, pa.string()), *map(values_at, values, (old, new))]


def _alike(places: Sequence[Codes], values: Sequence[pa.Array], type_info: TypeInformation | None) -> Mask:
    """Return which keys are in both tables, with equal values."""
    both: Mask = (places[0] >= 0) & (places[1] >= 0)
    if both.any() and values:
        old, new = (value.take(pa.array(place[both])) for value, place in zip(values, places, strict=True))
        assert type_info is not None
        both[both] = _equal(type_info, old, new)
    return both


def _equal(type_info: TypeInformation, old: pa.Array, new: pa.Array) -> Mask:
    """Compare values that may be of two types; those that have no common form differ."""
    try:
        old = old if old.type == new.type else old.cast(new.type)
    except pa.ArrowInvalid:  # at least one value does not fit
        half = len(old) // 2
        if not half:
            return np.zeros(len(old), np.bool_)
        halves = _equal(type_info, old[:half], new[:half]), _equal(type_info, old[half:], new[half:])
        return np.concatenate(halves)
    except pa.ArrowException:
        return np.zeros(len(old), np.bool_)
    return equal_rows(type_info, old, new)


def _as_one(groups: Iterator[Group]) -> Iterator[Group]:
    batches = [batch for _, batch in groups]
    if batches:
        yield 0, pa.concat_batches(batches)


# --- operator state ----------------------------------------------------------------------------------------


@attrs.frozen
class OperatorStatePair:
    """The same operator state in two checkpoints.

    Elements of lists have no key, and a restore gives them to other subtasks in another order. So a list is
    compared as a bag, over all subtasks. The whole state is in memory meanwhile.

    Attributes:
        name: its name.
        states: the operator state of the operator in the two; None where there is no such operator.
        allow_pickle: whether pickles are loaded in the rows of the table.
    """

    name: str
    states: Sequence[OperatorStates | None]
    allow_pickle: bool

    def table(self) -> StateTable:
        """Return the elements, or the entries of a broadcast state, that differ.

        Raises:
            StateTableError: the two have elements or entries of different types.
        """
        types, change = self._types(), Column("change", pa.string())
        value = types["value"]
        if "key" in types:
            keys = (typed_column("key", types["key"]), change)
            columns = (*keys, typed_column("old", value), typed_column("new", value))
            return StateTable(columns, partial(_unless_empty, self._entries, columns), self.allow_pickle)
        elements = (change, typed_column("value", value))
        return StateTable(elements, partial(_unless_empty, self._elements, elements), self.allow_pickle)

    def _types(self) -> dict[str, TypeInformation]:
        found = [
            {column.name: column.type_info for column in table.columns if column.type_info is not None}
            for table in self._tables
            if table is not None
        ]
        if any(types != found[0] for types in found):
            told = [" to ".join(map(str, types.values())) for types in found]
            raise StateTableError(
                f"operator state {self.name!r} is of {' and of '.join(told)} in the two checkpoints, so it "
                f"cannot be compared",
                state=self.name,
            )
        return found[0]

    @property
    def _tables(self) -> list[StateTable | None]:
        """The state in the two checkpoints; None where it is not there."""
        return [
            state.table(self.name) if state is not None and self.name in state.written else None
            for state in self.states
        ]

    def _columns(self, name: str, arrow: pa.DataType) -> list[pa.Array]:
        """Return a column in both checkpoints; it is empty where the state is not there."""
        batches = [[] if table is None else list(table.read()) for table in self._tables]
        return [
            pa.concat_arrays([pa.nulls(0, arrow), *(one.column(name) for one in each)]) for each in batches
        ]

    def _entries(self, columns: tuple[Column, ...]) -> pa.RecordBatch:
        key, _, old, _ = columns
        keys, values = self._columns("key", key.arrow), self._columns("value", old.arrow)
        both = [(key.type_info, pa.concat_arrays(keys))]
        arrays = differing_rows(both, len(keys[0]), _identity, values, old.type_info)
        return pa.record_batch(arrays, schema=schema_of(columns))

    def _elements(self, columns: tuple[Column, ...]) -> pa.RecordBatch:
        value = columns[1]
        old, new = self._columns("value", value.arrow)
        both = pa.concat_arrays([old, new])
        codes = row_codes([(value.type_info, both)], _identity)
        removed = _surplus(codes[: len(old)], codes[len(old) :])
        added = [len(old) + row for row in _surplus(codes[len(old) :], codes[: len(old)])]
        kinds = ["removed"] * len(removed) + ["added"] * len(added)
        arrays = [pa.array(kinds, pa.string()), both.take(pa.array(removed + added, pa.int64()))]
        return pa.record_batch(arrays, schema=schema_of(columns))


def _unless_empty(
    read: Callable[[tuple[Column, ...]], pa.RecordBatch], columns: tuple[Column, ...]
) -> Iterator[pa.RecordBatch]:
    batch = read(columns)
    if batch.num_rows:
        yield batch


def _surplus(codes: Codes, others: Codes) -> list[int]:
    """Return the rows without a counterpart among the others, each of which matches one row."""
    left = Counter(others.tolist())
    found = []
    for row, code in enumerate(codes.tolist()):
        if left[code] > 0:
            left[code] -= 1
        else:
            found.append(row)
    return found


def _identity(data: bytes) -> TypedValue:
    """Return the identity of a pickle: its value if that is plain and hashable, otherwise its bytes."""
    value = comparable(data)
    try:
        hash(value)
    except TypeError:
        return data
    return value
