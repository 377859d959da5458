"""The operator state backend: the operator states of one subtask, their migration, snapshot and restore."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator
from typing import cast

import attrs

from pyflinkstate.api import (
    BroadcastState,
    ListState,
    ListStateDescriptor,
    MapStateDescriptor,
    OperatorStateStore,
    StateDescriptor,
    StateValue,
    safe_repr,
)
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    OPERATOR_FILE_MAGIC,
    CheckpointStreamFactory,
    OperatorStateCodec,
    OperatorStateEntry,
    OperatorStateHandle,
    SectionWriter,
    StateReader,
    decode_metas,
    encode_metas,
    float_type_of,
    read_head,
    write_file,
)
from pyflinkstate.backends.operator_state.states import HeapOperatorState, create_operator_state
from pyflinkstate.backends.snapshots import RunningSnapshots
from pyflinkstate.backends.types import (
    MISFITS,
    Migration,
    OperatorStateMode,
    RegisteredOperatorStateMeta,
    common_type,
    sealed,
    type_migration,
    unchanged,
)
from pyflinkstate.errors import (
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    StateMigrationError,
    StateRegistrationError,
    StateValueError,
    UnsupportedFeatureError,
)

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
    try:
        return codec.encode(columns)
    except StateValueError as error:
        name = codec.meta.name
        raise StateValueError(f"operator state {name!r}: {error}", state=name) from error
    except MISFITS as error:
        raise _misfit(codec.meta, columns) or error from error


def _misfit(
    meta: RegisteredOperatorStateMeta, columns: tuple[list[StateValue], ...]
) -> StateValueError | None:
    """Return the error of the first value that does not fit, or None if all do.

    A state checks each value that it is given, but a value can be changed in place afterwards.
    """
    check = meta.columns[-1][1].check
    for number, (*key, value) in enumerate(zip(*columns, strict=True)):
        try:
            if value is not None:
                check(value)
        except ValueError as error:
            where = f"entry {safe_repr(key[0])}" if key else f"element {number}"
            return StateValueError(
                f"operator state {meta.name!r}, {where}: {error}; it was changed in place after it was "
                f"checked: call update(), or put(), after changing a value",
                state=meta.name,
            )
    return None


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
            codecs = self._codecs(handle)
            for name, entry in handle.states.items():
                if name not in codecs:
                    what = self.reader.describe(handle.stream)
                    raise CorruptCheckpointError(
                        f"{what} is damaged: it lacks operator state {name!r}", file=what
                    )
                self._restore_state(handle, codecs[name], entry)

    def _codecs(self, handle: OperatorStateHandle) -> dict[str, OperatorStateCodec]:
        head = read_head(self.reader, handle.stream, OPERATOR_FILE_MAGIC)
        metas = decode_metas(head, self.reader.describe(handle.stream))
        float_type = float_type_of(head)
        return {
            meta.name: OperatorStateCodec(
                attrs.evolve(meta, stored_type=sealed(meta.stored_type)), float_type=float_type
            )
            for meta in metas
        }

    def _restore_state(
        self, handle: OperatorStateHandle, codec: OperatorStateCodec, entry: OperatorStateEntry
    ) -> None:
        meta = codec.meta
        what = f"{self.reader.describe(handle.stream)}, operator state {meta.name!r}"
        data = self.reader.read(handle.stream, entry.section.offset, entry.section.length)
        columns = codec.decode(data, entry.section.checksum, what)
        self._load(meta, tuple(column[entry.start : entry.stop] for column in columns))

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
