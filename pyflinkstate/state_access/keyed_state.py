"""The keyed state of one operator, read from all files of all its subtasks as if it were in one.

A restore puts the same files together entry by entry. Here whole columns are put together: of the batches of
a key group, the oldest full one and the increments on top of it, the last row of each key and namespace
counts. A key group that no increment touches is passed on as it was read.

Key groups are read in order, so memory holds one key group and what is read ahead of it.

Arrow can only look up simple columns. So a key, or a key with its window, is taken apart into simple columns
that are equal exactly if the keys are, and each distinct combination gets a number: its code.
"""

from __future__ import annotations

import decimal
import heapq
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, groupby, repeat
from operator import itemgetter

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import (
    ArrowObject,
    ExternalTypeInfo,
    Key,
    PickledBytesTypeInfo,
    TypeInformation,
    check_list,
)
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
from pyflinkstate.backends.heap import to_batch
from pyflinkstate.backends.keys import (
    KeyGroupRange,
    KeyHasher,
    hash_has_changed,
    key_group_range,
)
from pyflinkstate.backends.rocksdb import native_entries, native_state, native_store
from pyflinkstate.backends.types import (
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    arrow_type,
    common_meta,
    decode_column,
    encode_column,
    has_pickles,
    keys_may_become,
    sealed,
    state_migration,
)
from pyflinkstate.errors import (
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    InvalidKeyError,
    PickledStateError,
    StateMigrationError,
)
from pyflinkstate.state_access.tables import Load, loader

#: A number for each row; equal rows have equal numbers.
Codes = npt.NDArray[np.int64]
#: A column and the type of its values; None for a plain part of a type that is written as several columns.
Typed = tuple[TypeInformation | None, pa.Array]


def row_codes(columns: Sequence[Typed], load: Load) -> Codes:
    """Return a code for each row; two rows have the same code if they are equal in all columns.

    Args:
        columns: one or more columns of the same length.
        load: loads pickled keys, which may be equal though their bytes differ.

    Raises:
        PickledStateError: a pickled key cannot be loaded, or must not be.

    >>> row_codes([(None, pa.array(["a", "b", "a"])), (None, pa.array([1, 1, 1]))], bytes).tolist()
    [0, 1, 0]
    """
    codes: Codes | None = None
    for leaf in chain.from_iterable(_leaves(type_info, array, load) for type_info, array in columns):
        found, count = _numbered(leaf)
        codes = found if codes is None else _dense(codes * count + found)
    assert codes is not None
    return codes


def last_of_each(codes: Codes) -> Codes:
    """Return the position of the last row of each code, in order.

    >>> last_of_each(np.array([5, 6, 5])).tolist()
    [1, 2]
    """
    _, from_end = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_end)


def distinct(codes: Codes, sizes: Iterable[int]) -> tuple[Codes, list[Codes]]:
    """Return the first row of each code, and for each of several tables where it is among its rows, or -1.

    Args:
        codes: the codes of the rows of all tables, one table after the other.
        sizes: the numbers of rows of the tables.

    >>> first, places = distinct(np.array([5, 6, 6, 7]), [2, 2])
    >>> first.tolist(), [place.tolist() for place in places]
    ([0, 1, 3], [[0, 1, -1], [-1, 0, 1]])
    """
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    places: list[Codes] = []
    start = 0
    for size in sizes:
        found = np.full(len(first), -1)
        found[numbers.reshape(-1)[start : start + size]] = np.arange(size)
        places.append(found)
        start += size
    return first, places


def values_at(values: pa.Array, rows: Codes) -> pa.Array:
    """Return the values of some rows; null for -1."""
    return values.take(pa.array(rows, mask=rows < 0))


def _dense(codes: Codes) -> Codes:
    """Return smaller codes that tell the same rows apart, so that codes of many columns do not overflow."""
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _numbered(leaf: pa.Array) -> tuple[Codes, int]:
    encoded = leaf.dictionary_encode()
    nulls = len(encoded.dictionary)
    return pc.fill_null(encoded.indices, nulls).to_numpy(zero_copy_only=False).astype(np.int64), nulls + 1


def _leaves(type_info: TypeInformation | None, array: pa.Array, load: Load) -> Iterator[pa.Array]:
    """Yield simple columns that are equal together exactly if the values of ``array`` are."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    arrow = array.type
    if isinstance(type_info, PickledBytesTypeInfo):
        yield _by_value(array, load)
    elif type_info is not None and type_info.kind == "BIG_DEC":
        yield _by_value(array, decimal.Decimal)
    elif pa.types.is_struct(arrow):
        yield array.is_null()
        yield from chain.from_iterable(_leaves(*field, load) for field in _fields(type_info, array))
    elif pa.types.is_floating(arrow):
        yield pc.add(array, 0.0)  # makes one zero of both
    elif pa.types.is_nested(arrow):
        yield pa.array([repr(value) for value in array.to_pylist()], pa.large_string())
    else:
        yield array


def _fields(type_info: TypeInformation | None, array: pa.StructArray) -> Iterable[Typed]:
    """Return the fields of a struct with their types; what a type writes besides its parts comes first."""
    fields = array.flatten()
    parts = () if type_info is None else type_info.parts()
    return zip(chain(repeat(None, len(fields) - len(parts)), parts), fields, strict=True)


def _by_value(array: pa.Array, convert: Callable[..., Hashable]) -> pa.Array:
    """Return a number for each distinct value that ``convert`` makes; equal ones may differ as bytes."""
    encoded = array.dictionary_encode()
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(convert(written), len(numbers)) for written in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int64()).take(encoded.indices)


#: The key group, and its rows: ``key``, ``namespace`` if there is one, and ``value``.
Group = tuple[int, pa.RecordBatch]


def by_group(groups: Codes, batch: pa.RecordBatch) -> Iterator[Group]:
    """Yield the rows of a batch by key group, in order, given the key group of each row."""
    order = np.argsort(groups, kind="stable")
    found, begins = np.unique(groups[order], return_index=True)
    for key_group, rows in zip(found.tolist(), np.split(order, begins[1:]), strict=False):
        yield key_group, batch.take(pa.array(rows))


@attrs.frozen
class KeySpace:
    """The keys of an operator.

    Attributes:
        uid: the operator.
        key_type: the declared type of its keys.
        max_parallelism: the number of key groups.
        allow_pickle: whether pickled keys may be loaded that are not plain values.
    """

    uid: str
    key_type: TypeInformation
    max_parallelism: int
    allow_pickle: bool = False

    def checked(self, keys: Iterable[Key]) -> list[Key]:
        """Return keys as their type keeps them; raise ``InvalidKeyError`` if one does not fit."""
        hasher = KeyHasher(self.key_type)
        try:
            return [hasher.check(key) for key in keys]
        except InvalidKeyError as error:
            raise InvalidKeyError(
                f"operator {self.uid!r} has keys of {self.key_type}: {error.message}", operator=self.uid
            ) from error

    def written(self, keys: Sequence[Key]) -> pa.Array:
        """Return keys as a column of a state file."""
        return encode_column(self.key_type, keys)

    def groups_of_keys(self, keys: Sequence[Key]) -> ArrowObject:
        """Return the key group of each key, which must be valid."""
        return np.array(KeyHasher(self.key_type).key_groups(keys, self.max_parallelism), np.int64)

    def mask(self, column: pa.Array, wanted: pa.Array) -> ArrowObject:
        """Return which rows of a column have one of the keys of another column."""
        codes = self.codes([(self.key_type, pa.concat_arrays([column, wanted.cast(column.type)]))])
        return np.isin(codes[: len(column)], codes[len(column) :])

    def decoded(self, column: pa.Array) -> list[Key]:
        """Return the keys of a column as the program knows them.

        Raises:
            PickledStateError: they are pickled, not plain, and must not be loaded.
        """
        if isinstance(self.key_type, PickledBytesTypeInfo):
            return [self.load(data) for data in column.to_pylist()]
        if has_pickles(self.key_type) and not self.allow_pickle:
            raise PickledStateError(
                f"operator {self.uid!r}: keys of {self.key_type} are pickled in part, and loading them runs "
                f"code: pass allow_pickle=True if you trust whoever wrote the checkpoint"
            )
        return decode_column(self.key_type, column)

    def split(self, batch: pa.RecordBatch) -> Iterator[Group]:
        """Yield the rows of a batch by key group, in order."""
        return by_group(self.groups_of_keys(self.decoded(batch.column("key"))), batch)

    def spread(self, batches: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
        """Return the rows of batches by key group, in order."""
        pieces: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for key_group, rows in self.split(batch):
                pieces.setdefault(key_group, []).append(rows)
        return dict(sorted(pieces.items()))

    def codes(self, columns: Iterable[tuple[TypeInformation | None, pa.Array]]) -> ArrowObject:
        """Return a number for each row, equal for equal rows; see ``identity.row_codes``."""
        return row_codes(list(columns), self.load)

    def head_codes(
        self, namespace_type: TypeInformation, heads: Iterable[pa.Array], *more: Typed
    ) -> ArrowObject:
        """Return the codes of rows by their key, by their namespace if there is one, and by more columns."""
        return self.codes([*zip([self.key_type, namespace_type], heads, strict=False), *more])

    def load(self, data: bytes) -> Key:
        """Return the key of a pickle; raise ``PickledStateError`` if it must not be loaded."""
        try:
            key: Key = loader(self.allow_pickle)(data)
            return key
        except PickledStateError as error:
            raise PickledStateError(f"operator {self.uid!r}: {error.message}", operator=self.uid) from error


@attrs.frozen
class KeyFilter:
    """Selects the rows of some keys.

    Attributes:
        written: the wanted keys, as a column of a state file.
        key_groups: the key groups in which they are.
    """

    written: pa.Array
    key_groups: frozenset[int]


def key_filter(space: KeySpace, keys: Iterable[Key] | None) -> KeyFilter | None:
    """Return the filter of some keys; None if all keys are wanted.

    Raises:
        ConfigurationError: a single key is given, and the letters of a string would be the keys.
        InvalidKeyError: a key does not fit the declared type.
    """
    if keys is None:
        return None
    check_list("keys", keys)
    checked = space.checked(keys)
    groups = space.groups_of_keys(checked).tolist() if checked else ()
    return KeyFilter(space.written(checked), frozenset(groups))


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
        return None if found is None else sealed_meta(found)


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
            for meta in map(sealed_meta, file.head.states):
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
        parts = [part for file in chain for part in self._parts(file, name, wanted)]
        for key_group, pieces in groupby(heapq.merge(*parts, key=itemgetter(0)), itemgetter(0)):
            batch = self._newest(name, [piece for _, piece in pieces])
            if batch.num_rows:
                yield key_group, batch

    def _parts(
        self, file: StateFile, name: str, wanted: Collection[int] | None
    ) -> tuple[Iterator[Group], Iterator[Group]]:
        """Return what a file has: the content of files of RocksDB, if any, and what comes over it."""
        return self._of_native(file, name, wanted), self._of_file(file, name, wanted)

    def _of_native(self, file: StateFile, name: str, wanted: Collection[int] | None) -> Iterator[Group]:
        meta, native, key_type = file.meta_of(name), file.handle.native, sealed(file.head.key_type)
        if native is None or not isinstance(meta, RegisteredStateMeta):
            return
        codec = StateCodec(key_type, meta)
        groups = [group for group in file.handle.key_group_range if wanted is None or group in wanted]
        with native_store(native, self.reader) as store:
            state = native_state(native, name, file.what)
            for entries in native_entries(store, (key_type, meta), state, groups):
                if entries:
                    yield entries.key_group, self._in_common_types(codec, to_batch(codec, entries))

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
        meta = self.metas[codec.meta.name]
        schema = state_schema(meta, self.key_type)
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
        meta = self.metas[name]
        schema = state_schema(meta, self.key_type)
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
        parts = chain.from_iterable(self._parts(file, name, None) for file in self.files)
        written = (batch for part in parts for _, batch in part)
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


def sealed_meta(meta: StateMeta) -> StateMeta:
    """Return a state with its pickles sealed."""
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
    numbered = [_with_index(index, stream) for index, stream in enumerate(streams)]
    merged = heapq.merge(*numbered, key=itemgetter(0, 1))
    for key_group, parts in groupby(merged, itemgetter(0)):
        yield key_group, {index: batch for _, index, batch in parts}


def _with_index(index: int, stream: Iterator[Group]) -> Iterator[tuple[int, int, pa.RecordBatch]]:
    return ((key_group, index, batch) for key_group, batch in stream if batch.num_rows)
