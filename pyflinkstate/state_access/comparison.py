"""What differs between two checkpoints: keys added, removed and changed, a key group at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.types import RegisteredStateMeta, arrow_type, keys_may_become, sealed, unsealed
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.checkpoint import Checkpoint, open_checkpoint
from pyflinkstate.state_access.equality import equal_rows
from pyflinkstate.state_access.expiry import Expiry, user_type, user_values
from pyflinkstate.state_access.identity import row_codes
from pyflinkstate.state_access.keyed_state import Group, KeyedState, together
from pyflinkstate.state_access.tables import Column, Read, StateTable
from pyflinkstate.state_access.views import namespace_name

#: The kinds of change, by whether the key is in the old and in the new checkpoint.
_CHANGES = np.array(["added", "removed", "changed"], dtype=object)


@attrs.frozen
class StateDiff:
    """The difference of one keyed state between two checkpoints.

    Attributes:
        uid: the operator.
        state: the name of the state.
        table: a row for each key that differs: ``key_group``, ``key``, ``window`` or ``namespace`` if there
            is one, ``change`` (``added``, ``removed`` or ``changed``), ``old`` and ``new``.
    """

    uid: str
    state: str
    table: StateTable

    def counts(self) -> dict[str, int]:
        """Return how many keys were added, removed and changed."""
        found: Counter[str] = Counter({"added": 0, "removed": 0, "changed": 0})
        for batch in self.table.to_batches():
            found.update(batch.column("change").to_pylist())
        return dict(found)


def diff(
    a: str | Checkpoint, b: str | Checkpoint, uid: str | None = None, *, allow_pickle: bool = False
) -> list[StateDiff]:
    """Compare the keyed state of two checkpoints.

    Values are compared as the program knows them: the time of an access is no difference. Values that have
    expired and are still there count. Nothing is read before a table is asked for its rows. Memory then holds
    one key group of each checkpoint, unless the two differ in max parallelism: then it holds both states.

    Args:
        a: the old checkpoint, or its path as in :func:`open_checkpoint`.
        b: the new one.
        uid: compare only this operator. Default: all.
        allow_pickle: load pickled keys and values, which runs code.

    Returns:
        an item for each state that either checkpoint has, in order; most may have no rows.

    Raises:
        UnknownOperatorError: neither checkpoint has an operator ``uid``.
        StateTableError: an operator has keys of incompatible types in the two.
    """
    sides = [open_checkpoint(side) if isinstance(side, str) else side for side in (a, b)]
    uids = [operator.uid for side in sides for operator in side.operators()]
    if uid is not None and uid not in uids:
        sides[1].operator(uid)
    wanted = [uid] if uid is not None else list(dict.fromkeys(uids))
    return list(chain.from_iterable(_of_operator(name, sides, allow_pickle) for name in wanted))


def _of_operator(uid: str, sides: list[Checkpoint], allow_pickle: bool) -> Iterator[StateDiff]:
    old, new = (_keyed_state(side, uid, allow_pickle) for side in sides)
    names = [name for state in (old, new) if state is not None for name in state.metas]
    for name in dict.fromkeys(names):
        metas = [None if state is None else state.metas.get(name) for state in (old, new)]
        if any(isinstance(meta, RegisteredStateMeta) for meta in metas):
            found = [meta if isinstance(meta, RegisteredStateMeta) else None for meta in metas]
            pair = Pair(_Side(old, found[0]), _Side(new, found[1]), allow_pickle)
            yield StateDiff(uid, name, pair.table())


def _keyed_state(checkpoint: Checkpoint, uid: str, allow_pickle: bool) -> KeyedState | None:
    has_it = checkpoint.metadata.operator(uid) is not None
    return checkpoint.keyed_state(uid, allow_pickle) if has_it else None


@attrs.frozen
class _Side:
    """A state in one of the two checkpoints; without ``meta`` it has no such state."""

    state: KeyedState | None
    meta: RegisteredStateMeta | None

    @property
    def user_type(self) -> TypeInformation | None:
        return None if self.meta is None else user_type(self.meta.stored_type)

    def groups(self, as_one: bool, wanted: KeyGroupRange | None) -> Iterator[Group]:
        """Yield the wanted key groups, or all of them as one."""
        if self.state is None or self.meta is None:
            return
        groups = self.state.groups(self.meta.name, wanted)
        if not as_one:
            yield from groups
            return
        batches = [batch for _, batch in groups]
        if batches:
            names = batches[0].schema.names
            yield 0, pa.record_batch([pa.concat_arrays([b.column(n) for b in batches]) for n in names], names)

    def values(self, batch: pa.RecordBatch | None, arrow: pa.DataType) -> pa.Array:
        if batch is None:
            return pa.nulls(0, arrow)
        assert self.meta is not None
        return user_values(self.meta.stored_type, batch.column("value"), Expiry(0))[0]


@attrs.frozen
class Pair:
    """The same state in two checkpoints."""

    old: _Side
    new: _Side
    allow_pickle: bool

    def table(self) -> StateTable:
        """Return the rows that differ."""
        declared = self._declared
        head = [Column("key_group", pa.int32()), self._column("key", self._key_type)]
        if declared.is_namespaced:
            head.append(self._column(namespace_name(declared), declared.namespace_type))
        values = [
            self._column(name, side.user_type or user_type(declared.stored_type))
            for name, side in (("old", self.old), ("new", self.new))
        ]
        columns = (*head, Column("change", pa.string()), *values)
        read = partial(Pair._batches, self, columns)
        return StateTable(columns, partial(read, None), self.allow_pickle, partial(self._split, read))

    def _split(
        self, read: Callable[[KeyGroupRange | None], Iterator[pa.RecordBatch]], number: int | None
    ) -> list[Read]:
        """Return what reads a range of key groups each; one for all of them if a range needs all files."""
        states = [side.state for side in (self.old, self.new) if side.state is not None]
        most, *others = {state.operator.max_parallelism for state in states}
        if others or any(state.is_spread_anew for state in states):
            return [partial(read, None)]
        count = min(number or max(len(state.operator.subtasks) for state in states), most)
        return [partial(read, key_group_range(most, count, index)) for index in range(count)]

    def _column(self, name: str, type_info: TypeInformation) -> Column:
        return Column(name, arrow_type(sealed(type_info)), unsealed(type_info))

    @property
    def _declared(self) -> RegisteredStateMeta:
        """The state of the newer side that has it."""
        meta = self.new.meta or self.old.meta
        assert meta is not None
        spaces = {str(side.meta.namespace_type) for side in (self.old, self.new) if side.meta is not None}
        if len(spaces) > 1:
            raise StateTableError(
                f"state {meta.name!r} has namespaces of {' and '.join(sorted(spaces))} in the two "
                f"checkpoints, so it cannot be compared",
                state=meta.name,
            )
        return meta

    @property
    def _key_type(self) -> TypeInformation:
        types = [side.state.key_type for side in (self.old, self.new) if side.state and side.meta]
        for one in types:
            if all(keys_may_become(other, one) for other in types):
                return one
        raise StateTableError(
            f"state {self._declared.name!r} has keys of {' and '.join(map(str, types))} in the two "
            f"checkpoints, so it cannot be compared",
            state=self._declared.name,
        )

    def _batches(
        self, columns: tuple[Column, ...], wanted: KeyGroupRange | None = None
    ) -> Iterator[pa.RecordBatch]:
        most = {side.state.operator.max_parallelism for side in (self.old, self.new) if side.state}
        sides = [side.groups(len(most) > 1, wanted) for side in (self.old, self.new)]
        for key_group, present in together(sides):
            made = self._compared(key_group, present.get(0), present.get(1), columns)
            if made.num_rows:
                yield made

    def _compared(
        self,
        key_group: int,
        old: pa.RecordBatch | None,
        new: pa.RecordBatch | None,
        columns: tuple[Column, ...],
    ) -> pa.RecordBatch:
        schema = pa.schema([(column.name, column.arrow) for column in columns])
        head = [
            pa.concat_arrays([batch.column(n).cast(field.type) for batch in (old, new) if batch is not None])
            for n, field in enumerate(list(schema)[1:-3])
        ]
        first, places = self._places(head, 0 if old is None else old.num_rows)
        values = [
            side.values(batch, column.arrow)
            for side, batch, column in ((self.old, old, columns[-2]), (self.new, new, columns[-1]))
        ]
        differs = ~self._alike(places, values)
        picked = [place[differs] for place in places]
        kinds = np.where(picked[0] < 0, 0, np.where(picked[1] < 0, 1, 2))
        rows = pa.array(first[differs])
        arrays = [pa.repeat(pa.scalar(key_group, pa.int32()), len(rows))]
        arrays += [column.take(rows) for column in head]
        arrays.append(pa.array(_CHANGES[kinds], pa.string()))
        arrays += [
            value.take(pa.array(place, mask=place < 0)) for value, place in zip(values, picked, strict=True)
        ]
        return pa.record_batch(arrays, schema=schema)

    def _places(self, head: list[pa.Array], old_rows: int) -> tuple[ArrowObject, list[ArrowObject]]:
        """Return the distinct keys, and where each is among the old and the new rows; -1 where it is not."""
        types = [self._key_type, self._declared.namespace_type]
        load = (self.new.state or self.old.state).load  # type: ignore[union-attr] # one side is there
        codes = row_codes(list(zip(types, head, strict=False)), load)
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        numbers = numbers.reshape(-1)
        places = [np.full(len(first), -1) for _ in range(2)]
        places[0][numbers[:old_rows]] = np.arange(old_rows)
        places[1][numbers[old_rows:]] = np.arange(len(numbers) - old_rows)
        return first, places

    def _alike(self, places: list[ArrowObject], values: list[pa.Array]) -> ArrowObject:
        """Return which keys have equal values in both."""
        both = (places[0] >= 0) & (places[1] >= 0)
        if both.any():
            old, new = (
                value.take(pa.array(place[both])) for value, place in zip(values, places, strict=True)
            )
            type_info = self.new.user_type
            assert type_info is not None
            both[both] = _equal(type_info, old, new)
        return both


def _equal(type_info: TypeInformation, old: pa.Array, new: pa.Array) -> ArrowObject:
    """Compare values that may be of two types; those that have no common form differ."""
    try:
        old = old if old.type == new.type else old.cast(new.type)
    except pa.ArrowException:
        return np.zeros(len(old), np.bool_)
    return equal_rows(type_info, old, new)
