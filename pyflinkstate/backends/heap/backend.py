"""The heap keyed state backend: the state tables and timer queues of one subtask, their snapshot and restore.

A snapshot is a short synchronous prepare and a detached asynchronous write. A restore reads the backend's own
key groups from any number of state handles.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api import AnyState, Key, StateDescriptor, TypeInformation, safe_repr
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.format import (
    END_OF_STREAM,
    STATE_FILE_MAGIC,
    CheckpointStreamFactory,
    KeyedStateSnapshot,
    KeyGroupEntries,
    KeyGroupsStateHandle,
    Section,
    SectionWriter,
    StateCodec,
    StateFileHead,
    StateReader,
    read_head,
    read_sections,
    write_file,
)
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.heap.states import HEAP_STATES
from pyflinkstate.backends.heap.timer_queue import TIMER_STATE_PREFIX, Timer, TimerQueue
from pyflinkstate.backends.keys import (
    KeyGroupRange,
    KeyHasher,
    hash_has_changed,
)
from pyflinkstate.backends.snapshots import (
    Changes,
    Placed,
    RunningSnapshots,
    SnapshotStrategyRunner,
    SnapshotTask,
    naming_misfits,
)
from pyflinkstate.backends.ttl import create_ttl_state, rules_of, with_timestamps
from pyflinkstate.backends.types import (
    VOID_NAMESPACE,
    VOID_NAMESPACE_TYPE,
    Convert,
    RegisteredQueueMeta,
    RegisteredStateMeta,
    StateMeta,
    common_meta,
    has_pickles,
    keys_may_become,
    sealed,
    state_migration,
    unchanged,
)
from pyflinkstate.backends.wall_clock import wall_clock_ms
from pyflinkstate.errors import (
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    KeyGroupRangeError,
    NoCurrentKeyError,
    StateMigrationError,
    StateRegistrationError,
)

#: Number of key groups that may wait for the compressor.
MAX_COMPRESSING = 2
#: A key group with fewer entries is compressed where it is: the way to another thread and back costs more.
MIN_ENTRIES_TO_HAND_OVER = 2_000


@attrs.frozen
class HeapSnapshotResources:
    """The resources of the asynchronous part (Flink: ``HeapSnapshotResources``)."""

    head: StateFileHead
    states: tuple[KeyedStateSnapshot, ...]

    def release(self) -> None:
        """Make the backend forget the snapshot. Idempotent."""
        for state in self.states:
            state.release()


@attrs.frozen
class HeapSnapshotStrategy:
    """Takes and writes snapshots of tables and timer queues (Flink: ``HeapSnapshotStrategy``).

    ``compression`` is the codec of Arrow's buffers: ``"zstd"``, ``"lz4"`` or None. With ``changes`` only
    those are written.
    """

    backend: HeapKeyedStateBackend
    compression: str | None = "zstd"
    changes: Changes | None = None

    def sync_prepare_resources(self) -> HeapSnapshotResources:
        """Run the synchronous part: freeze every state. Nothing is serialized or copied deep."""
        backend = self.backend
        states: list[KeyedStateSnapshot] = []
        try:
            states.extend(map(self.frozen, backend.registered().values()))
        except BaseException:
            for state in states:
                state.release()
            raise
        metas = tuple(state.meta for state in states)
        head = StateFileHead(
            backend.key_type,
            backend.key_group_range,
            backend.max_parallelism,
            metas,
            is_increment=self.changes is not None,
        )
        return HeapSnapshotResources(head, tuple(states))

    def frozen(self, state: StateTable | TimerQueue) -> KeyedStateSnapshot:
        """Return what is to be written of a state."""
        return state.snapshot() if self.changes is None else state.increment(self.changes[state.meta.name])

    def async_snapshot(
        self,
        resources: HeapSnapshotResources,
        streams: CheckpointStreamFactory,
        cancelled: threading.Event,
    ) -> KeyGroupsStateHandle | None:
        """Run the asynchronous part: write and release one key group after another.

        Returns:
            the handle, or None if no state is registered or none has changed; then no file is written.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set.
            CheckpointStorageError: the storage failed.
        """
        try:
            nothing_changed = self.changes is not None and not any(map(any, self.changes.values()))
            if not resources.states or nothing_changed:
                return None
            return write_file(streams, cancelled, lambda writer: self.write(writer, resources))
        finally:
            resources.release()

    def write(self, writer: SectionWriter, resources: HeapSnapshotResources) -> KeyGroupsStateHandle:
        """Write the whole file, and return its handle."""
        head = resources.head
        writer.append(head.encode())
        # Arrow releases the interpreter lock while it compresses, so the next columns are gathered meanwhile.
        with ThreadPoolExecutor(max_workers=1) as compressor:
            sections = {
                state.meta.name: self._write_state(writer, head, state, compressor)
                for state in resources.states
            }
        return KeyGroupsStateHandle(head.key_group_range, writer.close(), sections)

    def _write_state(
        self,
        writer: SectionWriter,
        head: StateFileHead,
        state: KeyedStateSnapshot,
        compressor: ThreadPoolExecutor,
    ) -> dict[int, Section]:
        codec = StateCodec(head.key_type, state.meta, self.compression, head.is_increment)
        writer.append(codec.schema_message)
        sections: dict[int, Section] = {}
        compressing: deque[tuple[int, Future[bytes]]] = deque()
        for entries in state.key_groups():
            writer.check_cancelled()
            if len(entries):
                message = _compressed(compressor, codec, to_batch(codec, entries))
                compressing.append((entries.key_group, message))
            if len(compressing) > MAX_COMPRESSING:
                key_group, message = compressing.popleft()
                sections[key_group] = writer.append_section(message.result())
        for key_group, message in compressing:
            sections[key_group] = writer.append_section(message.result())
        writer.append(END_OF_STREAM)
        return sections


def _compressed(compressor: ThreadPoolExecutor, codec: StateCodec, batch: pa.RecordBatch) -> Future[bytes]:
    if batch.num_rows >= MIN_ENTRIES_TO_HAND_OVER:
        return compressor.submit(codec.message, batch)
    message: Future[bytes] = Future()
    message.set_result(codec.message(batch))
    return message


def to_batch(codec: StateCodec, entries: KeyGroupEntries) -> pa.RecordBatch:
    """Return the entries as Arrow columns; raise ``StateValueError`` if a value does not fit its type."""
    meta = codec.meta
    values: Iterator[Placed] = (
        (f"key {safe_repr(key)}", {"key": safe_repr(key)}, value)
        for key, value in zip(entries.keys, entries.values, strict=True)
    )
    with naming_misfits(f"state {meta.name!r}", meta.name, meta.stored_type.check, values):
        return codec.to_batch(entries)


def snapshot_runner(
    backend: HeapKeyedStateBackend, compression: str | None = "zstd", changes: Changes | None = None
) -> SnapshotStrategyRunner[KeyGroupsStateHandle, HeapSnapshotResources]:
    """Return the runner for snapshots of ``backend``, which is asynchronous if its tables allow it."""
    return SnapshotStrategyRunner(
        HeapSnapshotStrategy(backend, compression, changes),
        backend.snapshots,
        backend.async_snapshots,
    )


@attrs.frozen
class HeapRestoreOperation:
    """Fills a new backend with state (Flink: ``HeapRestoreOperation``).

    Attributes:
        backend: is filled.
        reader: reads the files.
    """

    backend: HeapKeyedStateBackend
    reader: StateReader

    def restore(self, handles: Iterable[KeyGroupsStateHandle | None]) -> None:
        """Load the backend's own key groups from ``handles``, which may have any ranges.

        A handle that is None stands for the snapshot of a subtask without state.

        Raises:
            CorruptCheckpointError: a file is missing, truncated or altered.
            IncompatibleCheckpointError: key type, max parallelism or a state's type differ.
        """
        for handle in handles:
            if handle is not None and self._is_needed(handle):
                for written in (handle, *handle.increments):
                    self.restore_handle(written)

    def _is_needed(self, handle: KeyGroupsStateHandle) -> bool:
        owned = handle.key_group_range.intersection(self.backend.key_group_range)
        return len(owned) > 0 or self.is_spread_anew(handle)

    def is_spread_anew(self, handle: KeyGroupsStateHandle) -> bool:
        """Return whether keys may have been in other key groups when the handle was written."""
        return hash_has_changed(self.backend.key_type, handle.key_hash_version)

    def restore_handle(self, handle: KeyGroupsStateHandle) -> None:
        """Load the backend's own key groups from one file, whose increments are loaded after it."""
        what = self.reader.describe(handle.stream)
        head = StateFileHead.decode(read_head(self.reader, handle.stream, STATE_FILE_MAGIC), what)
        self._check_head(head, what)
        spread_anew = self.is_spread_anew(handle)
        if handle.native is not None:
            self.restore_native(handle, head)
        for meta in (self.sealed(meta, what) for meta in head.states):
            if meta.name not in handle.sections:
                raise CorruptCheckpointError(
                    f"{what} is damaged: it does not say where its state {meta.name!r} is", file=what
                )
            codec = head.codec(meta)
            owned = {
                key_group: section
                for key_group, section in handle.sections[meta.name].items()
                if spread_anew or key_group in self.backend.key_group_range
            }
            decoded = (
                codec.decode(key_group, data, owned[key_group].checksum, f"{what}, state {codec.meta.name!r}")
                for key_group, data in read_sections(self.reader, handle.stream, owned)
            )
            entries = self.own(decoded) if spread_anew else decoded
            if isinstance(meta, RegisteredQueueMeta):
                self._load_queue(meta, entries)
            else:
                self.load_table(meta, entries)

    def restore_native(self, handle: KeyGroupsStateHandle, head: StateFileHead) -> None:
        """Load what a handle has in files of RocksDB; ``head`` is that of the file with the later changes.

        Raises:
            IncompatibleCheckpointError: this operation does not read such files.
        """
        raise IncompatibleCheckpointError("the checkpoint has files of RocksDB, which are not read here")

    def _check_head(self, head: StateFileHead, what: str) -> None:
        backend = self.backend
        if not keys_may_become(head.key_type, backend.key_type):
            raise IncompatibleCheckpointError(
                f"{what} has keys of {head.key_type}, and the program declares {backend.key_type}: the type "
                f"of keys decides where their state lies, so it cannot change, but BYTE to SHORT to INT",
                file=what,
            )
        if head.max_parallelism != backend.max_parallelism:
            raise IncompatibleCheckpointError(
                f"{what} has max parallelism {head.max_parallelism}, and the program declares "
                f"{backend.max_parallelism}: it cannot change once there is state",
                file=what,
            )

    def sealed(self, meta: StateMeta, what: str) -> StateMeta:
        """Return ``meta`` with its pickles sealed, except namespaces, by which entries are looked up."""
        if has_pickles(meta.namespace_type) and not has_pickles(self.backend.key_type):
            raise IncompatibleCheckpointError(
                f"{what}: state {meta.name!r} has pickled namespaces, and the program declares its keys, "
                f"{self.backend.key_type}: the file does not belong to this program",
                file=what,
            )
        if isinstance(meta, RegisteredQueueMeta):
            return meta
        return attrs.evolve(meta, stored_type=sealed(meta.stored_type))

    def own(self, entries: Iterable[KeyGroupEntries]) -> Iterator[KeyGroupEntries]:
        """Regroup entries by the key groups that their keys have now, and yield those of this subtask."""
        hasher = KeyHasher(self.backend.key_type)
        for group in entries:
            rows: dict[int, list[int]] = {}
            for row, key_group in enumerate(hasher.key_groups(group.keys, self.backend.max_parallelism)):
                if key_group in self.backend.key_group_range:
                    rows.setdefault(key_group, []).append(row)
            for key_group, picked in rows.items():
                yield group.picked(key_group, picked)

    def load_table(self, meta: RegisteredStateMeta, entries: Iterable[KeyGroupEntries]) -> None:
        """Load entries into the table of a state; a full key group comes before its increments."""
        table = self.backend.registered_kv_states.get(meta.name)
        if table is None:
            table = self.backend.create_table(meta)
        convert = self._conversion(table, meta)
        for group in entries:
            state_map = table.map_of(group.key_group)
            if group.removed is None:
                values = group.values if convert is unchanged else list(map(convert, group.values))
                state_map.load(group.entry_keys(), values)
            else:
                for key, value, gone in zip(group.entry_keys(), group.values, group.removed, strict=True):
                    if gone:
                        state_map.remove(key)
                    else:
                        state_map.put(key, convert(value))
            self.backend.make_room()

    def _conversion(self, table: StateTable, meta: RegisteredStateMeta) -> Convert:
        """Return the conversion if one subtask migrated the state before the checkpoint and another did not.

        Both get the type that loses nothing, which then becomes the type that the program asks for.
        """
        if table.meta == meta:
            return unchanged
        try:
            both = common_meta(table.meta, meta)
            table.set_meta(both, state_migration(table.meta, both, self.backend.clock).convert)
            return state_migration(meta, both, self.backend.clock).convert
        except StateMigrationError as error:
            raise IncompatibleCheckpointError(
                f"state {meta.name!r} is {meta} in one subtask's file and {table.meta} in another's",
                state=meta.name,
            ) from error

    def _load_queue(self, meta: RegisteredQueueMeta, entries: Iterator[KeyGroupEntries]) -> None:
        try:
            queue = self.backend.queue_of(meta)
        except StateMigrationError as error:
            raise IncompatibleCheckpointError(
                f"{error.message} in another subtask's file", state=meta.name
            ) from error
        for group in entries:
            namespaces = group.namespaces or [VOID_NAMESPACE] * len(group)
            timers = map(Timer, group.values, group.keys, namespaces)
            if group.removed is None:
                queue.load(group.key_group, timers)
                continue
            for timer, gone in zip(timers, group.removed, strict=True):
                if gone or not queue.add(timer, group.key_group):
                    queue.remove(timer, group.key_group)
                    if not gone:  # a timer that was added again has a new place
                        queue.add(timer, group.key_group)


_log = logging.getLogger("pyflinkstate.state")


@attrs.frozen
class DiskStatus:
    """What a backend that keeps a part of its state on disk measures of itself.

    Attributes:
        properties: properties of RocksDB, by their names.
        memory_bytes: by state, the approximate size of what is in memory.
        hit_rates: by state, the share of the keys since the last report whose entries were in memory; None if
            there were no keys.
    """

    properties: dict[str, int]
    memory_bytes: dict[str, int]
    hit_rates: dict[str, float | None]


class HeapKeyedStateBackend:
    """Keeps keyed state on the heap of one process (Flink: ``HeapKeyedStateBackend``).

    Args:
        key_type: the declared type of keys, or ``Types.PICKLED_BYTE_ARRAY()``.
        key_group_range: the key groups that this subtask owns.
        max_parallelism: the number of key groups in all.
        async_snapshots: whether snapshots are written while state goes on changing.
        clock: returns the time in ms by which state expires.
    """

    def __init__(
        self,
        key_type: TypeInformation,
        key_group_range: KeyGroupRange,
        max_parallelism: int,
        *,
        async_snapshots: bool = True,
        clock: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self.key_type = key_type
        self.key_group_range = key_group_range
        self.max_parallelism = max_parallelism
        self.async_snapshots = async_snapshots
        self.clock = clock
        self.key_context = KeyContext()
        self.registered_kv_states: dict[str, StateTable] = {}
        self.registered_queues: dict[str, TimerQueue] = {}
        #: Makes an empty queue.
        self.new_queue: Callable[[RegisteredQueueMeta, KeyGroupRange], TimerQueue] = TimerQueue
        #: The snapshots that are being written; closing the backend cancels them.
        self.snapshots = RunningSnapshots()
        self._tracks_changes = False
        self._hasher = KeyHasher(key_type)
        self._states: dict[str, object] = {}
        #: The wrappers around the states that expire.
        self._ttl_states: dict[str, object] = {}

    # --- the current key -------------------------------------------------------------------------

    def set_current_key(self, key: Key) -> None:
        """Bind all states to ``key``.

        Raises:
            InvalidKeyError: the value cannot be a key.
            KeyGroupRangeError: the key belongs to another subtask.
        """
        key = self._hasher.check(key)
        self.key_context.select(key, self.key_group_of(key) - self.key_group_range.start)

    def key_group_of(self, key: Hashable) -> int:
        """Return the key group of ``key``; raise ``KeyGroupRangeError`` if it belongs to another subtask."""
        [key_group] = self._hasher.key_groups([key], self.max_parallelism)
        if key_group not in self.key_group_range:
            raise KeyGroupRangeError(
                f"key {safe_repr(key)} is in key group {key_group}, which is not in the range "
                f"{self.key_group_range} of this subtask",
                key=safe_repr(key),
            )
        return key_group

    def get_current_key(self) -> Hashable:
        """Return the key that states are bound to; raise ``NoCurrentKeyError`` if there is none."""
        if self.key_context.map_index < 0:
            raise NoCurrentKeyError("no key is set")
        return self.key_context.key

    def clear_current_key(self) -> None:
        """Bind states to no key: using them raises ``NoCurrentKeyError``."""
        self.key_context.clear()

    # --- states ------------------------------------------------------------------------------------

    def get_partitioned_state(
        self,
        descriptor: StateDescriptor,
        namespace: Hashable = VOID_NAMESPACE,
        namespace_type: TypeInformation = VOID_NAMESPACE_TYPE,
    ) -> AnyState:
        """Return the state of ``descriptor``, bound to ``namespace``; every call returns the same object.

        Raises:
            StateRegistrationError: the name is in use with another kind or type.
            StateMigrationError: the restored checkpoint has it with another kind or type.
            StateValueError: ``namespace`` does not fit ``namespace_type``.
        """
        state = self.get_or_create_keyed_state(descriptor, namespace_type)
        state.set_current_namespace(namespace)
        return state

    def get_or_create_keyed_state(
        self, descriptor: StateDescriptor, namespace_type: TypeInformation = VOID_NAMESPACE_TYPE
    ) -> AnyState:
        """Return the state of ``descriptor``; its namespace stays as it was."""
        if not isinstance(descriptor, StateDescriptor):
            raise StateRegistrationError(f"a state descriptor is needed, not {descriptor!r}")
        if descriptor.name.startswith(TIMER_STATE_PREFIX):
            raise StateRegistrationError(
                f"state {descriptor.name!r}: names with prefix {TIMER_STATE_PREFIX!r} belong to timers",
                state=descriptor.name,
            )

        if not descriptor.is_ttl_enabled:
            return self._state_of(descriptor, namespace_type, descriptor.allows_pickled_restore, None)
        assert descriptor.ttl_config is not None
        rules = rules_of(descriptor.ttl_config, self.clock)
        inner = self._state_of(
            with_timestamps(descriptor, rules),
            namespace_type,
            descriptor.allows_pickled_restore,
            rules.ttl_ms,
        )
        if descriptor.name not in self._ttl_states:
            self._ttl_states[descriptor.name] = create_ttl_state(
                descriptor, rules, inner, self.key_context.add_listener
            )
        return self._ttl_states[descriptor.name]

    def _state_of(
        self,
        descriptor: StateDescriptor,
        namespace_type: TypeInformation,
        loads_pickles: bool,
        ttl_ms: int | None,
    ) -> object:
        meta = RegisteredStateMeta(
            descriptor.name, descriptor.kind, descriptor.stored_type, namespace_type, ttl_ms
        )
        table = self.registered_kv_states.get(meta.name)
        if meta.name not in self._states:
            if table is None:
                table = self.create_table(meta)
            else:
                self._migrate(table, meta, loads_pickles)
            self._states[meta.name] = HEAP_STATES[meta.kind](table, self.key_context, descriptor)
        elif table is not None and table.meta != meta:
            raise StateRegistrationError(
                f"state {meta.name!r} is in use as {table.meta}, and is requested as {meta}: choose another "
                f"name, or the same kind and type",
                state=meta.name,
            )
        return self._states[meta.name]

    def _migrate(self, table: StateTable, meta: RegisteredStateMeta, loads_pickles: bool = False) -> None:
        """Give a restored table the type that the program asks for."""
        if table.meta == meta:
            table.meta = meta  # its time to live may be another
            return
        migration = state_migration(table.meta, meta, self.clock, loads_pickles)
        for field in migration.dropped:
            _log.warning("state %r: the field %s is dropped: the program asks for %s", meta.name, field, meta)
        table.set_meta(meta, migration.convert, migration.changes_values)

    def create_table(self, meta: RegisteredStateMeta) -> StateTable:
        """Register a new, empty table."""
        table = self.new_table(meta)
        if self._tracks_changes:
            table.track_changes()
        self.registered_kv_states[meta.name] = table
        return table

    def new_table(self, meta: RegisteredStateMeta) -> StateTable:
        """Return a table with the maps of this backend."""
        return StateTable(meta, self.key_group_range)

    def before_frame(self, indexes: list[int], keys: Sequence[Hashable]) -> None:
        """Prepare for records of these keys, whose maps have these indexes."""

    def base_snapshot(
        self, streams: CheckpointStreamFactory, compression: str | None, is_later: bool
    ) -> SnapshotTask[KeyGroupsStateHandle]:
        """Run the synchronous part of a snapshot of all state that increments extend.

        Args:
            streams: makes the streams for it.
            compression: as for :func:`snapshot_runner`.
            is_later: whether it replaces the base and the increments of a completed checkpoint.
        """
        return snapshot_runner(self, compression).snapshot(streams)

    def make_room(self) -> None:
        """Let go of memory if the backend uses too much; only between frames, when no state is in use."""

    def discard(self) -> None:
        """Delete what is on disk, as the process ends: another thread may still use the backend."""

    def disk_status(self) -> DiskStatus | None:
        """Return what the backend measures of state on disk; None if it keeps none there."""

    # --- timers ------------------------------------------------------------------------------------

    def create_timer_queue(
        self, name: str, namespace_type: TypeInformation = VOID_NAMESPACE_TYPE
    ) -> TimerQueue:
        """Return the queue of timers called ``name``, restored or new (Flink: ``create``).

        Flink's names are ``event_<service>`` and ``processing_<service>``.

        Raises:
            StateMigrationError: the restored queue has another type of namespaces.
        """
        return self.queue_of(RegisteredQueueMeta(f"{TIMER_STATE_PREFIX}/{name}", namespace_type))

    def queue_of(self, meta: RegisteredQueueMeta) -> TimerQueue:
        """Return the queue of ``meta``; raise ``StateMigrationError`` if it has other namespaces."""
        queue = self.registered_queues.get(meta.name)
        if queue is None:
            queue = self.registered_queues[meta.name] = self.new_queue(meta, self.key_group_range)
            if self._tracks_changes:
                queue.track_changes()
        elif queue.meta != meta:
            name = meta.name.removeprefix(f"{TIMER_STATE_PREFIX}/")
            raise StateMigrationError(
                f"the timers {name!r} have namespaces of {queue.meta.namespace_type}, and are requested "
                f"with {meta.namespace_type}",
                state=meta.name,
            )
        return queue

    # --- changes -----------------------------------------------------------------------------------

    def track_changes(self) -> None:
        """From now on, record what changes, for incremental checkpoints."""
        assert self.async_snapshots
        self._tracks_changes = True
        for state in self.registered().values():
            state.track_changes()

    def take_changes(self) -> dict[str, list[Any]]:
        """Return, for each state and key group, what changed since the last call, and start again."""
        return {name: state.take_changes() for name, state in self.registered().items()}

    def registered(self) -> dict[str, StateTable | TimerQueue]:
        """Return all states and timers by their names."""
        return {**self.registered_kv_states, **self.registered_queues}

    # --- over all keys -------------------------------------------------------------------------------

    def get_keys(self, name: str, namespace: Hashable = VOID_NAMESPACE) -> Iterator[Hashable]:
        """Iterate over the keys that have an entry of state ``name`` in ``namespace``, each once.

        There are no keys if there is no such state. State may be changed meanwhile; it is undefined whether
        keys that are added or removed then are seen.
        """
        table = self.registered_kv_states.get(name)
        return iter(()) if table is None else table.keys(namespace)

    def apply_to_all_keys(
        self,
        namespace: Hashable,
        namespace_type: TypeInformation,
        descriptor: StateDescriptor,
        function: Callable[[Hashable, object], None],
    ) -> None:
        """Call ``function(key, state)`` for every key that has an entry of the state in ``namespace``.

        The function may change and clear the state. The current key is restored at the end, even if the
        function raises.
        """
        context = self.key_context
        key, map_index = context.key, context.map_index
        state = self.get_partitioned_state(descriptor, namespace, namespace_type)
        try:
            for visited in list(self.get_keys(descriptor.name, namespace)):
                self.set_current_key(visited)
                function(visited, state)
        finally:
            context.key, context.map_index = key, map_index

    def num_key_value_state_entries(self) -> int:
        """Return the number of entries over all states, one for each key and namespace."""
        return sum(map(len, self.registered_kv_states.values()))

    def dispose(self) -> None:
        """Cancel the snapshots that are being written, and refuse new ones (Flink: ``dispose``)."""
        self.snapshots.close()
