"""Operator state: lists and maps of a subtask, not of a key, and their redistribution on a restore.

The backend has the operator states of one subtask, their migration, snapshot and restore. Which subtask
restores which state is Flink's: ``StateAssignmentOperation`` and ``RoundRobinOperatorStateRepartitioner``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import cast

import attrs

from pyflinkstate.api import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    ListTypeInfo,
    MapStateDescriptor,
    MapTypeInfo,
    OperatorStateStore,
    StateDescriptor,
    StateValue,
    TypeInformation,
    safe_repr,
)
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    OperatorStateCodec,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    SectionWriter,
    StateAssignment,
    StateReader,
    decode_metas,
    encode_metas,
    float_type_of,
    read_head,
    write_file,
)
from pyflinkstate.backends.keys import KeyGroupRange, hash_has_changed, key_group_range
from pyflinkstate.backends.snapshots import Placed, RunningSnapshots, naming_misfits
from pyflinkstate.backends.types import (
    Migration,
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    common_type,
    may_hold_nan,
    rebuilds,
    recheck_of_part,
    rechecker,
    sealed,
    type_migration,
    unchanged,
    value_copier,
)
from pyflinkstate.backends.values import (
    StateList,
    changed_meanwhile,
    isolated,
    isolated_elements,
    isolated_from,
    refuse_nan,
)
from pyflinkstate.errors import (
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateMigrationError,
    StateRegistrationError,
    StateValueError,
    UnsupportedFeatureError,
)


class _Elements(StateList):
    """The live list of an operator state, whose iterators also fail once its elements have been replaced."""

    replacements = 0

    def __iter__(self) -> Iterator[StateValue]:  # type: ignore[override]
        size, replacements, given = len(self), self.replacements, 0
        while given != len(self):
            if (size, replacements) != (len(self), self.replacements):
                raise changed_meanwhile(self.name)
            given += 1
            yield self[given - 1]

    def replace(self, elements: list[StateValue]) -> None:
        """Replace the elements, which makes open iterators fail, as ``clear`` and ``addAll`` do in Java."""
        self[:] = elements
        self.replacements += 1


class _Refusing:
    """A state that names itself in errors."""

    meta: RegisteredOperatorStateMeta

    def _refusal(self, reason: object) -> StateValueError:
        return StateValueError(f"operator state {self.meta.name!r}: {reason}", state=self.meta.name)


class PartitionableListState(_Refusing, ListState):
    """A list of one subtask (Flink: ``PartitionableListState``)."""

    def __init__(self, meta: RegisteredOperatorStateMeta) -> None:
        assert isinstance(meta.stored_type, ListTypeInfo)
        self.meta = meta
        self._check = meta.stored_type.element_type.check
        self._isolates = not rebuilds(meta.stored_type.element_type)
        self._copy: Callable[[StateValue], StateValue] = (
            value_copier(meta.stored_type.element_type) or unchanged
        )
        self._elements = _Elements([], meta.name)

    def get(self) -> Iterable[StateValue]:
        return self._elements

    def add(self, value: StateValue) -> None:
        self._elements.append(self._isolated(self._checked(value)))

    def add_all(self, values: list[StateValue]) -> None:
        self._elements.extend([self._isolated(value) for value in self._all_checked(values)])

    def update(self, values: list[StateValue]) -> None:
        checked = self._all_checked(values)
        self._elements.replace(isolated_elements(checked, self._elements) if self._isolates else checked)

    def clear(self) -> None:
        self._elements.replace([])

    def columns(self) -> tuple[list[StateValue], ...]:
        """Return copies of the columns that a snapshot writes."""
        return ([self._copy(element) for element in self._elements],)

    def load(self, columns: tuple[list[StateValue], ...]) -> None:
        """Add restored elements."""
        self._elements.extend(columns[0])

    def _isolated(self, value: StateValue) -> StateValue:
        return isolated(value) if self._isolates else value

    def _all_checked(self, values: StateValue) -> list[StateValue]:
        if values is None or isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise self._refusal(f"a ListState takes a list of values, not {safe_repr(values)}")
        return [self._checked(value) for value in values]

    def _checked(self, value: StateValue) -> StateValue:
        if value is None:
            raise self._refusal("None cannot be added to a ListState")
        try:
            return self._check(value)
        except ValueError as error:
            raise self._refusal(error) from None


class HeapBroadcastState(_Refusing, BroadcastState):
    """A map of one subtask (Flink: ``HeapBroadcastState``)."""

    def __init__(self, meta: RegisteredOperatorStateMeta) -> None:
        assert isinstance(meta.stored_type, MapTypeInfo)
        self.meta = meta
        self._check_key = meta.stored_type.key_type_info.check_key
        self._may_hold_nan = may_hold_nan(meta.stored_type.key_type_info)
        self._recheck = recheck_of_part(
            meta.stored_type.value_type_info, rechecker(meta.stored_type.value_type_info)
        )
        self._isolates = not rebuilds(meta.stored_type.value_type_info)
        self._copy: Callable[[StateValue], StateValue] = (
            value_copier(meta.stored_type.value_type_info) or unchanged
        )
        self._entries: dict[StateValue, StateValue] = {}

    def get(self, key: StateValue) -> StateValue:
        return self._entries.get(self._checked_key(key))

    def contains(self, key: StateValue) -> bool:
        return self._checked_key(key) in self._entries

    def put(self, key: StateValue, value: StateValue) -> None:
        self.put_all({self._checked_key(key): value})

    def put_all(self, dict_value: dict[StateValue, StateValue]) -> None:
        if not isinstance(dict_value, dict):
            raise self._refusal(f"put_all takes a dict, not {safe_repr(dict_value)}")
        checked = {self._checked_key(key): self._checked(key, value) for key, value in dict_value.items()}
        if self._isolates:
            known = self._entries.get
            checked = {key: isolated_from(value, known(key)) for key, value in checked.items()}
        self._entries.update(checked)

    def remove(self, key: StateValue) -> None:
        self._entries.pop(self._checked_key(key), None)

    def items(self) -> Iterable[tuple[StateValue, StateValue]]:
        return self._entries.items()

    def keys(self) -> Iterable[StateValue]:
        return self._entries.keys()

    def values(self) -> Iterable[StateValue]:
        return self._entries.values()

    def is_empty(self) -> bool:
        return not self._entries

    def clear(self) -> None:
        self._entries.clear()

    def columns(self) -> tuple[list[StateValue], ...]:
        """Return copies of the columns that a snapshot writes."""
        values = [None if value is None else self._copy(value) for value in self._entries.values()]
        return list(self._entries), values

    def load(self, columns: tuple[list[StateValue], ...]) -> None:
        """Add restored elements."""
        self._entries.update(zip(*columns, strict=True))

    def _checked_key(self, key: StateValue) -> StateValue:
        try:
            checked = self._check_key(key)
            hash(checked)
            if self._may_hold_nan:
                refuse_nan(checked)
            return checked
        except (ValueError, TypeError) as error:
            raise self._refusal(f"key: {error}") from None

    def _checked(self, key: StateValue, value: StateValue) -> StateValue:
        try:
            return self._recheck(value, self._entries.get(key))
        except ValueError as error:
            raise self._refusal(f"entry {safe_repr(key)}: {error}") from None


HeapOperatorState = PartitionableListState | HeapBroadcastState


def create_operator_state(meta: RegisteredOperatorStateMeta) -> HeapOperatorState:
    """Return a new, empty state."""
    if meta.mode is OperatorStateMode.BROADCAST:
        return HeapBroadcastState(meta)
    return PartitionableListState(meta)


_log = logging.getLogger("pyflinkstate.state")


class DefaultOperatorStateBackend(OperatorStateStore):
    """Keeps operator state in lists and dicts (Flink: ``DefaultOperatorStateBackend``)."""

    def __init__(self) -> None:
        self.registered_states: dict[str, HeapOperatorState] = {}
        #: The snapshots that are being written; closing the backend cancels them.
        self.snapshots = RunningSnapshots()
        self._requested: set[str] = set()

    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return self._list_state(state_descriptor, OperatorStateMode.SPLIT_DISTRIBUTE)

    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState:
        return self._list_state(state_descriptor, OperatorStateMode.UNION)

    def _list_state(self, descriptor: ListStateDescriptor, mode: OperatorStateMode) -> ListState:
        return cast("ListState", self._state(descriptor, ListStateDescriptor, mode))

    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState:
        state = self._state(state_descriptor, MapStateDescriptor, OperatorStateMode.BROADCAST)
        return cast("BroadcastState", state)

    def create_state(self, meta: RegisteredOperatorStateMeta) -> HeapOperatorState:
        """Register a new, empty state."""
        state = create_operator_state(meta)
        self.registered_states[meta.name] = state
        return state

    def dispose(self) -> None:
        """Cancel the snapshots that are being written, and refuse new ones."""
        self.snapshots.close()

    def _state(
        self, descriptor: StateDescriptor, expected: type[StateDescriptor], mode: OperatorStateMode
    ) -> HeapOperatorState:
        if not isinstance(descriptor, expected):
            raise StateRegistrationError(f"a {expected.__name__} is needed here, not {descriptor!r}")
        if descriptor.is_ttl_enabled:
            raise UnsupportedFeatureError(
                f"operator state {descriptor.name!r} cannot have time to live; only keyed state can",
                state=descriptor.name,
            )
        meta = RegisteredOperatorStateMeta(descriptor.name, mode, descriptor.stored_type)
        state = self.registered_states.get(meta.name)
        if state is None:
            state = self.create_state(meta)
        elif state.meta != meta:
            state = self._migrated(state, meta, descriptor.allows_pickled_restore)
        self._requested.add(meta.name)
        return state

    def _migrated(
        self, state: HeapOperatorState, meta: RegisteredOperatorStateMeta, loads_pickles: bool
    ) -> HeapOperatorState:
        """Give restored state its requested type, once all of its values are known to fit."""
        if meta.name in self._requested:
            raise self._refusal(
                state, meta, "it is in use, so neither its redistribution mode nor its type can change"
            )
        try:
            migration = OperatorStateMigration.of(state.meta, meta, loads_pickles)
        except ValueError as error:
            raise self._refusal(state, meta, str(error)) from error
        made = migration.moved(state)
        for field in [field for column in migration.columns for field in column.dropped]:
            _log.warning(
                "operator state %r: the field %s is dropped: the program asks for %s", meta.name, field, meta
            )
        self.registered_states[meta.name] = made
        return made

    def _refusal(
        self, state: HeapOperatorState, meta: RegisteredOperatorStateMeta, rule: str
    ) -> StateRegistrationError:
        error = StateRegistrationError if meta.name in self._requested else StateMigrationError
        return error(
            f"operator state {meta.name!r} is {state.meta}, and is requested as {meta}: {rule}",
            state=meta.name,
        )


Columns = tuple[list[StateValue], ...]


@attrs.frozen
class OperatorStateMigration:
    """How the columns of a state become those of another type. Their number stays the same."""

    was: RegisteredOperatorStateMeta
    now: RegisteredOperatorStateMeta
    columns: tuple[Migration, ...]

    @classmethod
    def of(
        cls, was: RegisteredOperatorStateMeta, now: RegisteredOperatorStateMeta, loads_pickles: bool = False
    ) -> OperatorStateMigration:
        """Return the migration; raise ``ValueError``, with the reason, if the state cannot change so."""
        if was.mode is not now.mode:
            raise ValueError("the way of redistribution cannot change")
        pairs = zip(was.columns, now.columns, strict=True)
        columns = [
            # Operator state has no time to live, so the clock is never read for a value.
            type_migration(before, after, lambda: 0, loads_pickles, is_key=name == "key")
            for (name, before), (_, after) in pairs
        ]
        return cls(was, now, tuple(columns))

    def converted(self, columns: Columns) -> Columns:
        """Return the converted columns; raise ``StateMigrationError`` if a value does not fit."""
        converted = tuple(
            list(column) if migration.convert is unchanged else list(self._values(migration, column, columns))
            for migration, column in zip(self.columns, columns, strict=True)
        )
        if len(columns) > 1 and len(set(converted[0])) != len(columns[0]):
            raise self._misfit("two of its keys would be one")
        return converted

    def moved(self, state: HeapOperatorState) -> HeapOperatorState:
        """Return a new state with the converted content of ``state``, which stays as it is."""
        made = create_operator_state(self.now)
        made.load(self.converted(state.columns()))
        return made

    def _values(
        self, migration: Migration, column: list[StateValue], columns: Columns
    ) -> Iterator[StateValue]:
        for index, value in enumerate(column):
            try:
                yield migration.convert(value)
            except ValueError as error:
                where = f"key {safe_repr(columns[0][index])}" if len(columns) > 1 else f"element {index}"
                raise self._misfit(f"{where}: {error}") from error

    def _misfit(self, reason: str) -> StateMigrationError:
        name = self.was.name
        return StateMigrationError(f"operator state {name!r}: {reason}; nothing has been changed", state=name)


@attrs.frozen
class OperatorStateResources:
    """Copies of all operator state, which is small enough to copy in the synchronous part, as in Flink."""

    states: tuple[tuple[RegisteredOperatorStateMeta, tuple[list[StateValue], ...]], ...]

    def release(self) -> None:
        """Do nothing: the copies need no release."""


@attrs.frozen
class OperatorStateSnapshotStrategy:
    """Takes and writes snapshots of operator state."""

    backend: DefaultOperatorStateBackend
    compression: str | None = "zstd"

    def sync_prepare_resources(self) -> OperatorStateResources:
        """Run the synchronous part: copy all state."""
        states = self.backend.registered_states.values()
        return OperatorStateResources(tuple((state.meta, state.columns()) for state in states))

    def async_snapshot(
        self,
        resources: OperatorStateResources,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
    ) -> OperatorStateHandle | None:
        """Run the asynchronous part: write the copies. Return None if there is no operator state."""
        if not resources.states:
            return None
        return write_file(streams, cancelled, lambda writer: self._write(writer, resources))

    def _write(self, writer: SectionWriter, resources: OperatorStateResources) -> OperatorStateHandle:
        writer.append(encode_metas([meta for meta, _ in resources.states]))
        entries: dict[str, OperatorStateEntry] = {}
        for meta, columns in resources.states:
            codec = OperatorStateCodec(meta, self.compression)
            writer.append(codec.schema_message)
            section = writer.append_section(_encoded(codec, columns))
            entries[meta.name] = OperatorStateEntry(meta.mode, section, len(columns[0]))
            writer.append(END_OF_STREAM)
        return OperatorStateHandle(writer.close(), entries)


def _encoded(codec: OperatorStateCodec, columns: tuple[list[StateValue], ...]) -> bytes:
    name, check = codec.meta.name, codec.meta.columns[-1][1].check
    values: Iterator[Placed] = (
        (f"entry {safe_repr(key[0])}" if key else f"element {number}", {}, value)
        for number, (*key, value) in enumerate(zip(*columns, strict=True))
    )
    with naming_misfits(f"operator state {name!r}", name, check, values):
        return codec.encode(columns)


def operator_codecs(handle: OperatorStateHandle, reader: StateReader) -> dict[str, OperatorStateCodec]:
    """Return the codec of each state in a file, which leaves pickles as they are.

    Raises:
        CorruptCheckpointError: the file lacks one of the handle's states.
    """
    what, head = reader.describe(handle.stream), read_head(reader, handle.stream, OPERATOR_FILE_MAGIC)
    codecs = {
        meta.name: OperatorStateCodec(
            attrs.evolve(meta, stored_type=sealed(meta.stored_type)), float_type=float_type_of(head)
        )
        for meta in decode_metas(head, what)
    }
    missing = next((name for name in handle.states if name not in codecs), None)
    if missing is not None:
        raise CorruptCheckpointError(f"{what} is damaged: it lacks operator state {missing!r}", file=what)
    return codecs


@attrs.frozen
class OperatorStateRestoreOperation:
    """Fills a new backend with a subtask's assigned state (Flink: ``OperatorStateRestoreOperation``)."""

    backend: DefaultOperatorStateBackend
    reader: StateReader

    def restore(self, handles: Iterable[OperatorStateHandle]) -> None:
        """Load the elements that ``handles`` select.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
            IncompatibleCheckpointError: two files do not agree on a state.
        """
        for handle in handles:
            codecs = operator_codecs(handle, self.reader)
            for name, entry in handle.states.items():
                what = f"{self.reader.describe(handle.stream)}, operator state {name!r}"
                data = self.reader.read(handle.stream, entry.section.offset, entry.section.length)
                columns = codecs[name].decode(data, entry.section.checksum, what)
                self._load(codecs[name].meta, tuple(column[entry.start : entry.stop] for column in columns))

    def _load(self, meta: RegisteredOperatorStateMeta, columns: Columns) -> None:
        """Add restored columns. Subtasks may have migrated the state at different times."""
        state = self.backend.registered_states.get(meta.name)
        if state is None:
            state = self.backend.create_state(meta)
        elif state.meta != meta:
            state, columns = _united(state, meta, columns)
            self.backend.registered_states[meta.name] = state
        state.load(columns)


def _united(
    state: HeapOperatorState, meta: RegisteredOperatorStateMeta, columns: Columns
) -> tuple[HeapOperatorState, Columns]:
    """Return the restored state and the columns to be added to it, both converted to their common type."""
    try:
        stored_type = common_type(state.meta.stored_type, meta.stored_type)
        if stored_type is None or state.meta.mode is not meta.mode:
            raise ValueError("they have nothing in common")
        both = attrs.evolve(meta, stored_type=stored_type)
        of_state, of_columns = (OperatorStateMigration.of(was, both) for was in (state.meta, meta))
        return of_state.moved(state), of_columns.converted(columns)
    except ValueError as error:
        raise IncompatibleCheckpointError(
            f"operator state {meta.name!r} is {meta} in one subtask's file and {state.meta} in another's",
            state=meta.name,
        ) from error


def assign_state(
    subtasks: Sequence[OperatorSubtaskState],
    parallelism: int,
    max_parallelism: int,
    key_type: TypeInformation | None = None,
) -> list[StateAssignment]:
    """Return the part that each of ``parallelism`` subtasks restores of the state that ``subtasks`` wrote.

    Keyed state is assigned by key group. If keys of ``key_type`` had another hash when it was written, every
    subtask gets all of it and keeps its own keys. List state stays where it is if the parallelism is the
    same; otherwise its elements are distributed evenly. Every subtask gets all union list state, and one copy
    of broadcast state.
    """
    managed = _repartition([subtask.managed_operator for subtask in subtasks], parallelism)
    raw = _repartition_raw([subtask.raw_operator for subtask in subtasks], parallelism)
    ranges = [key_group_range(max_parallelism, parallelism, index) for index in range(parallelism)]
    return [
        StateAssignment(
            _intersecting((subtask.managed_keyed for subtask in subtasks), owned, key_type),
            _intersecting((subtask.raw_keyed for subtask in subtasks), owned),
            tuple(managed[index]),
            tuple(raw[index]),
        )
        for index, owned in enumerate(ranges)
    ]


def deal_out(counts: Sequence[int], parallelism: int, first: int = 0) -> tuple[list[list[slice]], int]:
    """Distribute elements evenly in contiguous slices; the remainder goes to ``first`` and those after it.

    Args:
        counts: how many elements each old subtask has.
        parallelism: the number of new subtasks.
        first: the new subtask that gets the first element of the remainder.

    Returns:
        for each new subtask one slice of each old one's elements; and the value of ``first`` for the next
        state, so that the remainders of several states do not all go to the same subtasks.

    >>> deal_out([3, 2], 2)[0]
    [[slice(0, 3, None), slice(0, 0, None)], [slice(3, 3, None), slice(0, 2, None)]]
    """
    base, left_over = divmod(sum(counts), parallelism)
    starts = [sum(counts[:index]) for index in range(len(counts))]
    shares: list[list[slice]] = [[] for _ in range(parallelism)]
    begin = 0
    for step in range(parallelism):
        end = begin + base + (step < left_over)
        shares[(first + step) % parallelism] = [
            slice(_within(begin - start, count), _within(end - start, count))
            for start, count in zip(starts, counts, strict=True)
        ]
        begin = end
    return shares, (first + left_over) % parallelism


def _within(position: int, count: int) -> int:
    return max(0, min(position, count))


def _intersecting(
    handles: Iterator[KeyGroupsStateHandle | None],
    owned: KeyGroupRange,
    key_type: TypeInformation | None = None,
) -> tuple[KeyGroupsStateHandle, ...]:
    return tuple(
        handle
        for handle in handles
        if handle is not None
        and (
            len(handle.key_group_range.intersection(owned))
            or (key_type is not None and hash_has_changed(key_type, handle.key_hash_version))
        )
    )


def _repartition(
    handles: Sequence[OperatorStateHandle | None], parallelism: int
) -> list[list[OperatorStateHandle]]:
    picked: list[list[OperatorStateHandle]] = [[] for _ in range(parallelism)]
    first = 0
    names = dict.fromkeys(name for handle in handles if handle is not None for name in handle.states)
    for name in names:
        holders = [handle for handle in handles if handle is not None and name in handle.states]
        mode = holders[0].states[name].mode
        if mode is OperatorStateMode.SPLIT_DISTRIBUTE and parallelism != len(handles):
            counts = [holder.states[name].count for holder in holders]
            shares, first = deal_out(counts, parallelism, first)
            for index, share in enumerate(shares):
                for holder, part in zip(holders, share, strict=True):
                    entry = attrs.evolve(holder.states[name], start=part.start, stop=part.stop)
                    if part.start < part.stop:
                        picked[index].append(OperatorStateHandle(holder.stream, {name: entry}))
            continue
        for index in range(parallelism):
            for holder in _whole(handles, holders, mode, index):
                picked[index].append(OperatorStateHandle(holder.stream, {name: holder.states[name]}))
    return picked


def _whole(
    handles: Sequence[OperatorStateHandle | None],
    holders: list[OperatorStateHandle],
    mode: OperatorStateMode,
    index: int,
) -> list[OperatorStateHandle]:
    """Return the handles from which subtask ``index`` restores the whole state."""
    if mode is OperatorStateMode.UNION:
        return holders
    if mode is OperatorStateMode.BROADCAST:
        return [holders[index % len(holders)]]
    return [holder for holder in holders if holder is handles[index]]


def _repartition_raw(
    handles: Sequence[RawOperatorStateHandle | None], parallelism: int
) -> list[list[RawOperatorStateHandle]]:
    if parallelism == len(handles):
        return [[] if handle is None else [handle] for handle in handles]
    holders = [handle for handle in handles if handle is not None]
    shares, _ = deal_out([len(holder.partitions) for holder in holders], parallelism)
    return [
        [
            RawOperatorStateHandle(holder.stream, holder.partitions[part])
            for holder, part in zip(holders, share, strict=True)
            if part.start < part.stop
        ]
        for share in shares
    ]
