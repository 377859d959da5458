"""The keyed state of an operator as tables: a row a key, a row an entry, a row a timer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import StateKind, TypeInformation, WindowSerializer
from pyflinkstate.backends.heap import TIMER_STATE_PREFIX
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    TtlTypeInfo,
)
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.keyed_state import Group, KeyFilter, KeySpace, distinct, together, values_at
from pyflinkstate.state_access.tables import (
    Column,
    Expiry,
    Read,
    StateTable,
    expires,
    offsets_of,
    parts_of,
    schema_of,
    typed_column,
    user_type,
    user_values,
)

#: The kind of time of a timer, by how the name of its queue begins.
_TIME_DOMAINS = {"event_": "event_time", "processing_": "processing_time"}


@attrs.frozen
class View:
    """A selection of an operator's keyed state.

    Attributes:
        keys: the operator's keys.
        metas: its states and timer queues by name, with their pickles sealed.
        groups: yields the key groups of a state, by its name, in order; all of them, or some.
        ranges: returns the key groups in ranges that can be read side by side, at most so many; None if all
            of them have to be read to find a key.
        key_filter: the wanted keys; None for all.
        now_ms: the time by which values expire, in ms since 1970.
        ttl_ms: by state, how long its values live. States that are not named never expire.
        with_expired: whether values that have expired are read as well.
        key_groups: the key groups to read; None for all.
    """

    keys: KeySpace
    metas: Mapping[str, StateMeta]
    groups: Callable[[str, Collection[int] | None], Iterator[Group]]
    ranges: Callable[[int | None], list[KeyGroupRange]] | None
    key_filter: KeyFilter | None
    now_ms: int
    ttl_ms: Mapping[str, int]
    with_expired: bool = False
    key_groups: KeyGroupRange | None = None

    # --- a row a key -----------------------------------------------------------------------------------

    def keyed(self, names: list[str]) -> StateTable:
        """Return a row for each key, or key and namespace, with a column for each state.

        Raises:
            StateTableError: the states have different namespaces, so that they cannot share rows.
        """
        metas = [self._meta(name) for name in names]
        spaces = {str(meta.namespace_type): meta for meta in metas}
        if len(spaces) > 1:
            raise StateTableError(
                f"the states {', '.join(map(repr, names))} have namespaces of different types "
                f"({', '.join(spaces)}), so they have no rows in common: name states of one with states="
            )
        head = head_columns(self.keys.key_type, metas)
        taken = {column.name for column in head}
        values = []
        for meta in metas:
            column = meta.name if meta.name not in taken else f"{meta.name}_state"
            taken.add(column)
            values.append(typed_column(column, user_type(meta.stored_type)))
        columns = (*head, *values)
        return self._table(columns, partial(View._keyed_batches, metas=metas, schema=schema_of(columns)))

    def _keyed_batches(self, metas: list[RegisteredStateMeta], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for _, present in together([self._living(meta) for meta in metas]):
            batch = self._joined(metas, present, schema)
            if batch.num_rows:
                yield batch

    def _joined(
        self, metas: list[RegisteredStateMeta], present: dict[int, pa.RecordBatch], schema: pa.Schema
    ) -> pa.RecordBatch:
        """Return the rows of one key group; a key that a state does not have is null there."""
        heads = [[batch.column(n) for n in range(batch.num_columns - 1)] for batch in present.values()]
        head = [pa.concat_arrays(columns) for columns in zip(*heads, strict=True)]
        values = {index: batch.column("value") for index, batch in present.items()}
        if len(present) > 1:
            codes = self.keys.head_codes(metas[0].namespace_type, head)
            first, places = distinct(codes, [len(columns[0]) for columns in heads])
            head = [column.take(pa.array(first)) for column in head]
            values = dict(zip(values, map(values_at, values.values(), places), strict=True))
        fields = enumerate(list(schema)[len(head) :])
        columns = [values.get(n, pa.nulls(len(head[0]), field.type)) for n, field in fields]
        return pa.record_batch([*head, *columns], schema=schema)

    # --- a row an entry --------------------------------------------------------------------------------

    def entries(self, name: str) -> StateTable:
        """Return a row for each entry of a state, and for each element of a list and each entry of a map."""
        meta = self._meta(name)
        columns = (*head_columns(self.keys.key_type, [meta]), *self._entry_columns(meta))
        return self._table(columns, partial(View._entry_batches, meta=meta))

    def _entry_columns(self, meta: RegisteredStateMeta) -> Iterator[Column]:
        if meta.kind is StateKind.LIST:
            yield Column("position", pa.int64())
        if meta.kind is StateKind.MAP:
            yield typed_column("map_key", meta.stored_type.parts()[0])
        element = element_type(meta)
        yield typed_column("value", user_type(element))
        if expires(element):
            yield Column("timestamp_ms", pa.int64())
            yield Column("expires_at_ms", pa.int64())

    def _entry_batches(self, meta: RegisteredStateMeta) -> Iterator[pa.RecordBatch]:
        expiry = self._expiry(meta) if isinstance(element_type(meta), TtlTypeInfo) else None
        for _, batch in self._groups(meta):
            made = entries(meta, batch, self.ttl_ms.get(meta.name))
            if expiry is not None:
                made = made.filter(pa.array(expiry.alive(made.column("timestamp_ms"))))
            if made.num_rows:
                yield made

    # --- timers ----------------------------------------------------------------------------------------

    def timers(self) -> StateTable:
        """Return a row for each timer that has not fired.

        Raises:
            StateTableError: timers have namespaces of different types.
        """
        metas = [meta for meta in self.metas.values() if isinstance(meta, RegisteredQueueMeta)]
        spaced = {str(meta.namespace_type): meta for meta in metas if meta.is_namespaced}
        if len(spaced) > 1:
            raise StateTableError(
                f"the timers of operator {self.keys.uid!r} have namespaces of different "
                f"types: {', '.join(spaced)}"
            )
        columns = (
            *head_columns(self.keys.key_type, [*spaced.values(), *metas]),
            Column("timestamp_ms", pa.int64()),
            Column("time_domain", pa.string()),
            Column("timer_service", pa.string()),
        )
        return self._table(columns, partial(View._timer_batches, metas=metas, schema=schema_of(columns)))

    def _timer_batches(self, metas: list[RegisteredQueueMeta], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for _, present in together([self._groups(meta) for meta in metas]):
            for index, batch in present.items():
                yield pa.record_batch(_timer_columns(metas[index], batch, schema), schema=schema)

    # --- reading ---------------------------------------------------------------------------------------

    def _living(self, meta: RegisteredStateMeta) -> Iterator[Group]:
        """Yield the key groups of a state, without timestamps and without what has expired."""
        for key_group, batch in self._groups(meta):
            if expires(meta.stored_type):
                heads = [batch.column(n) for n in range(batch.num_columns - 1)]
                values, alive = user_values(meta.stored_type, batch.column("value"), self._expiry(meta))
                batch = pa.record_batch([*heads, values], names=batch.schema.names)
                batch = batch if alive is None else batch.filter(pa.array(alive))
            yield key_group, batch

    def _groups(self, meta: StateMeta) -> Iterator[Group]:
        """Yield the key groups of a state with the rows of the wanted keys."""
        wanted = self.key_filter
        for key_group, batch in self.groups(meta.name, self._wanted_groups()):
            if wanted is not None:
                batch = batch.filter(pa.array(self.keys.mask(batch.column("key"), wanted.written)))
            yield key_group, batch

    def _wanted_groups(self) -> Collection[int] | None:
        if self.key_filter is None or self.key_groups is None:
            return self.key_groups if self.key_filter is None else self.key_filter.key_groups
        return self.key_filter.key_groups.intersection(self.key_groups)

    def _expiry(self, meta: RegisteredStateMeta) -> Expiry:
        return Expiry(self.now_ms, None if self.with_expired else self.ttl_ms.get(meta.name))

    def _meta(self, name: str) -> RegisteredStateMeta:
        meta = self.metas[name]
        assert isinstance(meta, RegisteredStateMeta)
        return meta

    def _table(self, columns: Iterable[Column], read: ReadView) -> StateTable:
        # A table of which each part would read all key groups is one part.
        split = None if self.ranges is None else partial(View._split, self, read)
        return StateTable(tuple(columns), partial(read, self), self.keys.allow_pickle, split)

    # --- parts -----------------------------------------------------------------------------------------

    def _split(self, read: ReadView, number: int | None) -> list[Read]:
        """Return readers of ranges of key groups; at least one."""
        assert self.ranges is not None
        ranges = self.ranges(number)
        if self.key_filter is not None:
            wanted = self.key_filter.key_groups
            ranges = [one for one in ranges if not wanted.isdisjoint(one)] or ranges[:1]
        return [partial(read, attrs.evolve(self, key_groups=part)) for part in ranges]


#: Reads the batches of a table from a view.
ReadView: TypeAlias = Callable[[View], Iterator[pa.RecordBatch]]


def head_columns(key_type: TypeInformation, metas: Sequence[StateMeta]) -> list[Column]:
    """Return the columns of keys, and of namespaces if the first of the states has any."""
    namespaces = [
        typed_column(namespace_name(meta), meta.namespace_type) for meta in metas[:1] if meta.is_namespaced
    ]
    return [typed_column("key", key_type), *namespaces]


def namespace_name(meta: StateMeta) -> str:
    """Return the name of the column of a state's namespaces."""
    return "window" if isinstance(meta.namespace_type, WindowSerializer) else "namespace"


def timer_service(meta: StateMeta) -> tuple[str, str]:
    """Return the kind of time of a queue, and the name of its timer service."""
    name = meta.name.removeprefix(f"{TIMER_STATE_PREFIX}/")
    for prefix, domain in _TIME_DOMAINS.items():
        if name.startswith(prefix):
            return domain, name.removeprefix(prefix)
    return "", name


def element_type(meta: RegisteredStateMeta) -> TypeInformation:
    """Return the type of the values that have a row each among the entries."""
    is_nested = meta.kind in (StateKind.LIST, StateKind.MAP)
    return meta.stored_type.parts()[-1] if is_nested else meta.stored_type


def entries(meta: RegisteredStateMeta, batch: pa.RecordBatch, ttl_ms: int | None) -> pa.RecordBatch:
    """Return a row for each entry of the rows of a state, expired ones too (see ``Checkpoint.entries``)."""
    heads, columns = exploded(meta.kind, batch)
    names = ["key", *([namespace_name(meta)] if meta.is_namespaced else [])]
    names += {StateKind.LIST: ["position"], StateKind.MAP: ["map_key"]}.get(meta.kind, [])
    names.append("value")
    if isinstance(element_type(meta), TtlTypeInfo):
        timestamps, values = columns.pop().flatten()
        # Without a known time to live, they are null.
        columns += [values, timestamps, pc.add(timestamps, pa.scalar(ttl_ms, pa.int64()))]
        names += ["timestamp_ms", "expires_at_ms"]
    return pa.record_batch([*heads, *columns], names)


def exploded(kind: StateKind, rows: pa.RecordBatch) -> tuple[list[pa.Array], list[pa.Array]]:
    """Return a state's rows by element: the columns before the value, and those of the elements."""
    *heads, values = rows.columns
    if kind not in (StateKind.LIST, StateKind.MAP):
        return heads, [values]
    offsets, parts = offsets_of(values), parts_of(values)
    lengths = np.diff(offsets)
    if kind is StateKind.LIST:
        positions = np.arange(lengths.sum()) - np.repeat(offsets[:-1], lengths)
        parts = [pa.array(positions), *parts]
    origins = pa.array(np.repeat(np.arange(len(lengths)), lengths))
    return [head.take(origins) for head in heads], parts


def _timer_columns(meta: RegisteredQueueMeta, batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    size = batch.num_rows
    columns = [batch.column("key")]
    if len(schema) > 4:
        is_here = "namespace" in batch.schema.names
        columns.append(batch.column("namespace") if is_here else pa.nulls(size, schema.field(1).type))
    texts = [pa.repeat(pa.scalar(text, pa.string()), size) for text in timer_service(meta)]
    return [*columns, batch.column("value"), *texts]
