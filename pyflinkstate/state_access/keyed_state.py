"""The keyed state of one operator, read from all files of all its subtasks as if it were in one.

A restore puts the same files together entry by entry. Here whole columns are put together: of the batches of
a key group, the oldest full one and the increments on top of it, the last row of each key and namespace
counts. A key group that no increment touches is passed on as it was read.

Key groups are read in order, so memory holds one key group and what is read ahead of it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from itertools import groupby
from operator import itemgetter

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.backends.format import (
    STATE_FILE_MAGIC,
    KeyGroupsStateHandle,
    OperatorState,
    StateCodec,
    StateFileHead,
    StateReader,
    read_head,
    read_sections,
)
from pyflinkstate.backends.keys import (
    KeyGroupRange,
    hash_has_changed,
    key_group_range,
)
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    arrow_type,
    common_meta,
    decode_column,
    encode_column,
    keys_may_become,
    sealed,
    state_migration,
)
from pyflinkstate.errors import (
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateMigrationError,
)
from pyflinkstate.state_access.keys import Group, KeySpace, last_of_each

#: Approximate size of a range of key groups in the checkpoint in bytes, unless the number of ranges is given.
_RANGE_BYTES = 32 << 20


@attrs.frozen
class StateFile:
    """One file of keyed state: a full one, or an increment."""

    handle: KeyGroupsStateHandle
    head: StateFileHead
    what: str

    def meta_of(self, name: str) -> StateMeta | None:
        """Return a state of the file with its pickles sealed, or None if it has no such state."""
        found = next((meta for meta in self.head.states if meta.name == name), None)
        return None if found is None else _sealed(found)


def opened_file(operator: OperatorState, handle: KeyGroupsStateHandle, reader: StateReader) -> StateFile:
    """Return a file with its head.

    Raises:
        CorruptCheckpointError: the file is missing, or its head is damaged.
        IncompatibleCheckpointError: it has another format version or max parallelism.
    """
    what = reader.describe(handle.stream)
    head = StateFileHead.decode(read_head(reader, handle.stream, STATE_FILE_MAGIC), what)
    if head.max_parallelism != operator.max_parallelism:
        raise IncompatibleCheckpointError(
            f"{what} has max parallelism {head.max_parallelism}, and the checkpoint says "
            f"{operator.max_parallelism} for operator {operator.operator_id!r}",
            file=what,
        )
    missing = [meta.name for meta in head.states if meta.name not in handle.sections]
    if missing:
        raise CorruptCheckpointError(
            f"{what} is damaged: it does not say where its state {missing[0]!r} is", file=what
        )
    return StateFile(handle, head, what)


@attrs.define(slots=False)
class KeyedState:
    """The keyed state and timers of one operator.

    Attributes:
        operator: the handles of its state.
        reader: reads the files.
        clock: returns the time, in ms since 1970, that values get if only some files have time to live.
        allow_pickle: whether keys may be unpickled.
    """

    operator: OperatorState
    reader: StateReader
    clock: Callable[[], int]
    allow_pickle: bool = False

    @cached_property
    def chains(self) -> tuple[tuple[StateFile, ...], ...]:
        """The files of each subtask in order of key groups, a full file first and then its increments."""
        handles = [sub.managed_keyed for sub in self.operator.subtasks if sub.managed_keyed is not None]
        handles.sort(key=lambda handle: handle.key_group_range.start)
        return tuple(
            tuple(opened_file(self.operator, one, self.reader) for one in (handle, *handle.increments))
            for handle in handles
        )

    @property
    def files(self) -> Iterator[StateFile]:
        """All files."""
        return (file for chain in self.chains for file in chain)

    @cached_property
    def key_type(self) -> TypeInformation:
        """The declared type of keys; the widest one if it became wider between two files."""
        widest: TypeInformation | None = None
        for file in self.files:
            key_type = file.head.key_type
            if widest is None or keys_may_become(widest, key_type):
                widest = key_type
            elif not keys_may_become(key_type, widest):
                raise IncompatibleCheckpointError(
                    f"{file.what} has keys of {key_type}, and another file of operator "
                    f"{self.operator.operator_id!r} has keys of {widest}",
                    file=file.what,
                )
        return PickledBytesTypeInfo() if widest is None else widest

    @cached_property
    def metas(self) -> dict[str, StateMeta]:
        """The states and timer queues by name, each with the type that holds the values of all files."""
        found: dict[str, StateMeta] = {}
        for file in self.files:
            for meta in map(_sealed, file.head.states):
                known = found.get(meta.name, meta)
                found[meta.name] = known if known == meta else self._common(known, meta)
        return found

    def _common(self, one: StateMeta, other: StateMeta) -> StateMeta:
        try:
            if isinstance(one, RegisteredStateMeta) and isinstance(other, RegisteredStateMeta):
                state_migration(one, common := common_meta(one, other), self.clock)
                state_migration(other, common, self.clock)
                return common
        except StateMigrationError as error:
            raise _not_one(one, other) from error
        raise _not_one(one, other)

    def schema(self, name: str) -> pa.Schema:
        """Return the columns of a state: ``key``, ``namespace`` if there is one, and ``value``."""
        return state_schema(self.metas[name], self.key_type)

    @cached_property
    def ttl_ms(self) -> dict[str, int]:
        """Time to live by state, in ms, from the newest file that has it."""
        newest = sorted(self.files, key=lambda file: file.handle.checkpoint_id or 0)
        metas = [meta for file in newest for meta in file.head.states]
        return {
            meta.name: meta.ttl_ms
            for meta in metas
            if isinstance(meta, RegisteredStateMeta) and meta.ttl_ms is not None
        }

    # --- key groups ------------------------------------------------------------------------------

    def ranges(self, number: int | None = None) -> list[KeyGroupRange]:
        """Return the key groups in ranges, to be read one by one or side by side.

        Args:
            number: how many, at most one for each key group. Default: one for each subtask, or one for each
                32 MiB if these are more.
        """
        most, subtasks = self.operator.max_parallelism, self.operator.subtasks
        by_size = -(-sum(subtask.size_bytes for subtask in subtasks) // _RANGE_BYTES)
        count = min(number or max(len(subtasks), by_size, 1), most)
        return [key_group_range(most, count, index) for index in range(count)]

    def groups(self, name: str, wanted: Collection[int] | None = None) -> Iterator[Group]:
        """Yield the key groups of a state in order; only those that have entries.

        Args:
            name: the name of a state or timer queue in :attr:`metas`.
            wanted: the key groups to read. Default: all.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
            PickledStateError: pickled keys must be loaded to put increments together.
        """
        if self.is_spread_anew:
            return self._spread_anew(name, wanted)
        return (group for chain in self.chains for group in self._of_chain(chain, name, wanted))

    def _of_chain(
        self, chain: tuple[StateFile, ...], name: str, wanted: Collection[int] | None
    ) -> Iterator[Group]:
        parts = [self._of_file(file, name, wanted) for file in chain]
        for key_group, pieces in groupby(heapq.merge(*parts, key=itemgetter(0)), itemgetter(0)):
            batch = self._newest(name, [piece for _, piece in pieces])
            if batch.num_rows:
                yield key_group, batch

    def _of_file(self, file: StateFile, name: str, wanted: Collection[int] | None) -> Iterator[Group]:
        meta = file.meta_of(name)
        if meta is None:
            return
        codec = file.head.codec(meta)
        what = f"{file.what}, state {name!r}"
        sections = file.handle.sections[name]
        if wanted is not None:
            sections = {key_group: sections[key_group] for key_group in sections if key_group in wanted}
        for key_group, data in read_sections(self.reader, file.handle.stream, sections):
            batch = codec.read(data, sections[key_group].checksum, what)
            yield key_group, self._in_common_types(codec, batch)

    def _in_common_types(self, codec: StateCodec, batch: pa.RecordBatch) -> pa.RecordBatch:
        schema, meta = self.schema(codec.meta.name), self.metas[codec.meta.name]
        columns = [_cast(batch.column(field.name), field.type) for field in schema if field.name != "value"]
        columns.append(self._values(codec.meta, meta, batch.column("value"), schema.field("value").type))
        if codec.is_increment:
            schema = schema.append(pa.field("removed", pa.bool_()))
            columns.append(batch.column("removed"))
        return pa.record_batch(columns, schema=schema)

    def _values(self, was: StateMeta, now: StateMeta, column: pa.Array, arrow: pa.DataType) -> pa.Array:
        if was.stored_type == now.stored_type:
            return _cast(column, arrow)
        assert isinstance(was, RegisteredStateMeta)
        assert isinstance(now, RegisteredStateMeta)
        convert = state_migration(was, now, self.clock).convert
        values = decode_column(was.stored_type, column)
        return encode_column(now.stored_type, list(map(convert, values)))

    def _newest(self, name: str, pieces: list[pa.RecordBatch]) -> pa.RecordBatch:
        """Return the last row of each key and namespace, unless it marks the entry as removed."""
        if len(pieces) == 1 and "removed" not in pieces[0].schema.names:
            return pieces[0]
        schema, meta = self.schema(name), self.metas[name]
        rows = pa.record_batch(
            [pa.concat_arrays([piece.column(field.name) for piece in pieces]) for field in schema],
            schema=schema,
        )
        # A timer is all of its entry.
        names = [field for field in schema.names if field != "value" or isinstance(meta, RegisteredQueueMeta)]
        types = {"key": self.key_type, "namespace": meta.namespace_type, "value": meta.stored_type}
        codes = self.keys.codes((types[field], rows.column(field)) for field in names)
        kept = last_of_each(codes)
        removed = np.concatenate([_removed(piece) for piece in pieces])
        return rows.take(pa.array(kept[~removed[kept]]))

    @cached_property
    def keys(self) -> KeySpace:
        """The operator's keys."""
        operator = self.operator
        return KeySpace(operator.operator_id, self.key_type, operator.max_parallelism, self.allow_pickle)

    # --- keys whose hash has changed -----------------------------------------------------------------

    @cached_property
    def is_spread_anew(self) -> bool:
        """Whether keys may have been in other key groups when a file was written."""
        return any(hash_has_changed(self.key_type, file.handle.key_hash_version) for file in self.files)

    def _spread_anew(self, name: str, wanted: Collection[int] | None) -> Iterator[Group]:
        """Yield the key groups to which keys belong now; the whole state is in memory meanwhile."""
        written = (batch for file in self.files for _, batch in self._of_file(file, name, None))
        for key_group, pieces in self.keys.spread(written).items():
            if wanted is None or key_group in wanted:
                batch = self._newest(name, pieces)
                if batch.num_rows:
                    yield key_group, batch


def state_schema(meta: StateMeta, key_type: TypeInformation) -> pa.Schema:
    """Return the columns of a state: ``key``, ``namespace`` if there is one, and ``value``."""
    columns = [("key", arrow_type(key_type))]
    if meta.is_namespaced:
        columns.append(("namespace", arrow_type(meta.namespace_type)))
    return pa.schema([*columns, ("value", arrow_type(meta.stored_type))])


def _sealed(meta: StateMeta) -> StateMeta:
    if isinstance(meta, RegisteredQueueMeta):
        return meta
    return attrs.evolve(meta, stored_type=sealed(meta.stored_type))


def _cast(column: pa.Array, arrow: pa.DataType) -> pa.Array:
    return column if column.type == arrow else column.cast(arrow)


def _removed(piece: pa.RecordBatch) -> object:
    if "removed" not in piece.schema.names:
        return np.zeros(piece.num_rows, np.bool_)
    return piece.column("removed").to_numpy(zero_copy_only=False).astype(np.bool_)


def _not_one(one: StateMeta, other: StateMeta) -> IncompatibleCheckpointError:
    return IncompatibleCheckpointError(
        f"state {one.name!r} is {one} in one file of the operator and {other} in another's", state=one.name
    )


def together(streams: list[Iterator[Group]]) -> Iterator[tuple[int, dict[int, pa.RecordBatch]]]:
    """Yield each key group with the batches of the streams that have rows in it, by their index."""
    numbered = [_numbered(index, stream) for index, stream in enumerate(streams)]
    merged = heapq.merge(*numbered, key=itemgetter(0, 1))
    for key_group, parts in groupby(merged, itemgetter(0)):
        yield key_group, {index: batch for _, index, batch in parts}


def _numbered(index: int, stream: Iterator[Group]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    return ((key_group, index, batch) for key_group, batch in stream if batch.num_rows)
