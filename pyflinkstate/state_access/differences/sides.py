"""The keyed state of one operator in two checkpoints, read side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    StateMeta,
    arrow_type,
    keys_may_become,
    sealed,
    unsealed,
)
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.key_space import Group
from pyflinkstate.state_access.keyed_state import KeyedState, together
from pyflinkstate.state_access.pickles import Load
from pyflinkstate.state_access.tables import Column, Read, StateTable
from pyflinkstate.state_access.views import namespace_name

#: Compares the old and the new rows of a key group; the columns are those of the result.
Compare = Callable[[int, list[pa.RecordBatch | None], tuple[Column, ...]], pa.RecordBatch]


@attrs.frozen
class Sides:
    """A state, or a queue of timers, in the old and in the new checkpoint.

    Attributes:
        name: its name.
        states: the keyed state of the operator in the two; None where there is no such operator.
    """

    name: str
    states: tuple[KeyedState | None, KeyedState | None]

    @property
    def metas(self) -> list[StateMeta | None]:
        """The state's metadata in the two checkpoints; None in one without the state."""
        return [None if state is None else state.metas.get(self.name) for state in self.states]

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue of timers."""
        return any(isinstance(meta, RegisteredQueueMeta) for meta in self.metas)

    @property
    def declared(self) -> StateMeta:
        """The state's metadata in the newer checkpoint that has it.

        Raises:
            StateTableError: namespaces are of other types in the other one.
        """
        old, new = self.metas
        meta = new or old
        assert meta is not None
        spaces = {str(one.namespace_type) for one in (old, new) if one is not None}
        if len(spaces) > 1:
            raise StateTableError(
                f"state {self.name!r} has namespaces of {' and '.join(sorted(spaces))} in the two "
                f"checkpoints, so it cannot be compared",
                state=self.name,
            )
        return meta

    @property
    def key_type(self) -> TypeInformation:
        """The type of keys; the wider one if it differs.

        Raises:
            StateTableError: neither type can hold the keys of the other.
        """
        types = [state.key_type for state in self._present]
        for one in types:
            if all(keys_may_become(other, one) for other in types):
                return one
        raise StateTableError(
            f"state {self.name!r} has keys of {' and '.join(map(str, types))} in the two checkpoints, so it "
            f"cannot be compared",
            state=self.name,
        )

    def key_columns(self) -> list[Column]:
        """Return the columns of key groups, keys, and namespaces if there are any."""
        declared = self.declared
        columns = [Column("key_group", pa.int32()), typed_column("key", self.key_type)]
        if declared.is_namespaced:
            columns.append(typed_column(namespace_name(declared), declared.namespace_type))
        return columns

    @property
    def load(self) -> Load:
        """The function that loads pickled keys."""
        return self._present[0].load

    @property
    def _present(self) -> list[KeyedState]:
        """The operator's state in those checkpoints that have this state."""
        pairs = zip(self.states, self.metas, strict=True)
        return [state for state, meta in pairs if state is not None and meta is not None]

    def groups(self, wanted: KeyGroupRange | None) -> Iterator[tuple[int, list[pa.RecordBatch | None]]]:
        """Yield the key groups with the rows of both; all of them as one if their numbers differ."""
        streams = [self._groups(state, wanted) for state in self.states]
        for key_group, present in together(streams):
            yield key_group, [present.get(0), present.get(1)]

    def _groups(self, state: KeyedState | None, wanted: KeyGroupRange | None) -> Iterator[Group]:
        if state is None or self.name not in state.metas:
            return iter(())
        groups = state.groups(self.name, wanted)
        return _as_one(groups) if self._numbers_differ else groups

    @property
    def _numbers_differ(self) -> bool:
        return len({state.operator.max_parallelism for state in self.states if state is not None}) > 1

    def table(self, columns: tuple[Column, ...], compare: Compare, allow_pickle: bool) -> StateTable:
        """Return the table of the rows that ``compare`` makes of each key group."""
        read = partial(self._batches, columns, compare)
        return StateTable(columns, partial(read, None), allow_pickle, partial(self.split, read))

    def _batches(
        self, columns: tuple[Column, ...], compare: Compare, wanted: KeyGroupRange | None
    ) -> Iterator[pa.RecordBatch]:
        for key_group, batches in self.groups(wanted):
            made = compare(key_group, batches, columns)
            if made.num_rows:
                yield made

    def split(
        self, read: Callable[[KeyGroupRange | None], Iterator[pa.RecordBatch]], number: int | None
    ) -> list[Read]:
        """Return readers of ranges of key groups; a single one if a range needs all files."""
        states = [state for state in self.states if state is not None]
        if self._numbers_differ or any(state.is_spread_anew for state in states):
            return [partial(read, None)]
        ranges = max((state.ranges(number) for state in states), key=len)
        return [partial(read, own) for own in ranges]


def typed_column(name: str, type_info: TypeInformation) -> Column:
    """Return a column of values of a type, in which pickles are bytes."""
    return Column(name, arrow_type(sealed(type_info)), unsealed(type_info))


def _as_one(groups: Iterator[Group]) -> Iterator[Group]:
    batches = [batch for _, batch in groups]
    if batches:
        names = batches[0].schema.names
        yield 0, pa.record_batch([pa.concat_arrays([b.column(n) for b in batches]) for n in names], names)
