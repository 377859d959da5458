"""What the backend tests share: checkpoint streams in memory, and backends made, written and restored.

Only storage is faked. A fault is an input: a stream is told at which call it fails, and what happens
while a piece is being written is a function that the test hands in.

What the tests of increments share: both parts of a snapshot of changes, chains, and what is in them.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import attrs
from slot_functions import Mean
from tiered_support import IS_NATIVE, ON_DISK, evicting_backend

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
    TypeInformation,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    KeyGroupsStateHandle,
    StateCodec,
    StateFileHead,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend, Timer
from pyflinkstate.backends.heap.backend import HeapSnapshotResources, HeapSnapshotStrategy
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.rocksdb import KeyedRestoreOperation
from pyflinkstate.backends.types import VOID_NAMESPACE, type_from_json, type_to_json
from pyflinkstate.errors import CheckpointStorageError, CorruptCheckpointError

PICKLED = Types.PICKLED_BYTE_ARRAY()
ALL_KEY_GROUPS = KeyGroupRange(0, 127)


class MemoryStream:
    """Collects what is written; ``events`` tells what was called, in order."""

    def __init__(self, streams: "MemoryStreams") -> None:
        self._streams = streams
        self.events: list[str] = []
        self.chunks: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.events.append("write")
        self._streams.on_write()
        if self.events.count("write") == self._streams.fail_at_write:
            raise CheckpointStorageError("no space left")
        self.chunks.append(data)

    def close_and_get_handle(self) -> ByteStreamStateHandle:
        self.events.append("close")
        if self._streams.fail_at_close:
            raise CheckpointStorageError("no space left")
        return ByteStreamStateHandle(b"".join(self.chunks))

    def abort(self) -> None:
        self.events.append("abort")


@attrs.define
class MemoryStreams:
    """Makes :class:`MemoryStream` s, and says where they fail."""

    fail_at_create: bool = False
    fail_at_write: int | None = None
    fail_at_close: bool = False
    on_write: Callable[[], None] = lambda: None
    created: list[MemoryStream] = attrs.field(factory=list)
    discarded: list[ByteStreamStateHandle] = attrs.field(factory=list)

    def describe(self, handle: ByteStreamStateHandle) -> str:
        return "chk-2/memory"

    def discard(self, handle: ByteStreamStateHandle) -> None:
        self.discarded.append(handle)

    def create(self) -> MemoryStream:
        if self.fail_at_create:
            raise CheckpointStorageError("no such directory")
        self.created.append(MemoryStream(self))
        return self.created[-1]


class MemoryReader:
    """Reads from the bytes that a handle carries."""

    def read(self, handle: ByteStreamStateHandle, offset: int, length: int) -> bytes:
        data = handle.data[offset : offset + length]
        if len(data) != length:
            raise CorruptCheckpointError(f"{self.describe(handle)} is truncated")
        return data

    def describe(self, handle: ByteStreamStateHandle) -> str:
        return "chk-1/memory"

    def local_path(self, handle: ByteStreamStateHandle) -> None:
        """There are no files."""


def at_zero() -> int:
    """A clock that stands still."""
    return 0


def make_backend(
    key_type: TypeInformation = PICKLED,
    own: KeyGroupRange = ALL_KEY_GROUPS,
    max_parallelism: int = 128,
    *,
    async_snapshots: bool = True,
    clock: Callable[[], int] = at_zero,
) -> HeapKeyedStateBackend:
    """Return an empty backend: on the heap, or the one whose state goes to disk all the time."""
    if ON_DISK and async_snapshots:
        return evicting_backend(key_type, own, max_parallelism, clock)
    return HeapKeyedStateBackend(key_type, own, max_parallelism, async_snapshots=async_snapshots, clock=clock)


def prepare(backend: HeapKeyedStateBackend) -> HeapSnapshotResources:
    """The synchronous part of a snapshot."""
    return HeapSnapshotStrategy(backend).sync_prepare_resources()


def write(
    backend: HeapKeyedStateBackend,
    resources: HeapSnapshotResources,
    streams: MemoryStreams | None = None,
    cancelled: threading.Event | None = None,
    *,
    compression: str | None = "zstd",
) -> KeyGroupsStateHandle | None:
    """The asynchronous part, in this thread."""
    return HeapSnapshotStrategy(backend, compression).async_snapshot(
        resources, streams or MemoryStreams(), cancelled or threading.Event()
    )


def take_snapshot(
    backend: HeapKeyedStateBackend, *, compression: str | None = "zstd"
) -> KeyGroupsStateHandle | None:
    """Both parts of a snapshot; None where no state is registered."""
    if IS_NATIVE:
        return backend.base_snapshot(MemoryStreams(), compression, is_later=False).finish()
    return write(backend, prepare(backend), compression=compression)


def restore(
    handles: Iterable[KeyGroupsStateHandle | None],
    key_type: TypeInformation = PICKLED,
    own: KeyGroupRange = ALL_KEY_GROUPS,
    max_parallelism: int = 128,
    *,
    async_snapshots: bool = True,
    clock: Callable[[], int] = at_zero,
) -> HeapKeyedStateBackend:
    """Return a new backend with what ``handles`` hold of its key groups."""
    backend = make_backend(key_type, own, max_parallelism, async_snapshots=async_snapshots, clock=clock)
    KeyedRestoreOperation(backend, MemoryReader()).restore(handles)
    return backend


def rescale(
    handles: Iterable[KeyGroupsStateHandle | None],
    parallelism: int,
    key_type: TypeInformation = PICKLED,
    max_parallelism: int = 128,
    *,
    async_snapshots: bool = True,
    clock: Callable[[], int] = at_zero,
) -> list[HeapKeyedStateBackend]:
    """Return the backends of all subtasks after a restore at ``parallelism``."""
    handles = list(handles)
    owns = [key_group_range(max_parallelism, parallelism, index) for index in range(parallelism)]
    return [
        restore(handles, key_type, own, max_parallelism, async_snapshots=async_snapshots, clock=clock)
        for own in owns
    ]


def state_of(backend: HeapKeyedStateBackend, descriptor: StateDescriptor, key: Any) -> Any:
    """Return the state of ``descriptor``, bound to ``key``."""
    backend.set_current_key(key)
    return backend.get_partitioned_state(descriptor)


def altered(handle: KeyGroupsStateHandle, data: bytes) -> KeyGroupsStateHandle:
    """Return ``handle`` pointing at other bytes."""
    return attrs.evolve(handle, stream=ByteStreamStateHandle(data))


def ask_for_all(backend: HeapKeyedStateBackend) -> None:
    """Ask for all restored states by what their file calls them, so that pickles are loaded."""
    for table in backend.registered_kv_states.values():
        declared = type_from_json(type_to_json(table.meta.stored_type))
        backend._migrate(table, attrs.evolve(table.meta, stored_type=declared))


def entries(backend: HeapKeyedStateBackend, name: str) -> list[tuple[Any, Any]]:
    """Return all that state ``name`` holds."""
    ask_for_all(backend)
    table = backend.registered_kv_states.get(name)
    return [] if table is None else list(table.items())


def one_of_each_kind(declared: Callable[[TypeInformation], TypeInformation]) -> dict[str, StateDescriptor]:
    """Return a descriptor of each kind, by the name of its kind."""
    long, string = declared(Types.LONG()), declared(Types.STRING())
    return {
        "value": ValueStateDescriptor("value", long),
        "list": ListStateDescriptor("list", string),
        "map": MapStateDescriptor("map", string, long),
        "reducing": ReducingStateDescriptor("reducing", lambda old, new: old + new, long),
        "aggregating": AggregatingStateDescriptor("aggregating", Mean(), declared(Types.LIST(Types.LONG()))),
    }


def fill(
    backend: HeapKeyedStateBackend, descriptors: dict[str, StateDescriptor], key: Any, number: int
) -> None:
    """Put something that depends on ``number`` under ``key`` of the five states."""
    states = {kind: state_of(backend, descriptor, key) for kind, descriptor in descriptors.items()}
    states["value"].update(number)
    states["list"].add_all([f"é{number}", "", "\U0001f600"])
    states["map"].put_all({"n": number, "nothing": None, "": -number})
    for state in (states["reducing"], states["aggregating"]):
        state.add(number)
        state.add(number + 2)


def read(
    backend: HeapKeyedStateBackend, descriptors: dict[str, StateDescriptor], key: Any
) -> tuple[Any, ...]:
    """Return copies of all that the five states hold under ``key``."""
    states = {kind: state_of(backend, descriptor, key) for kind, descriptor in descriptors.items()}
    return (
        states["value"].value(),
        list(states["list"].get()),
        dict(states["map"].items()),
        states["reducing"].get(),
        states["aggregating"].get(),
    )


# --- increments ------------------------------------------------------------------------------------


@attrs.frozen
class Snapshot:
    """The synchronous part of a snapshot, taken: all of a backend, or what changed."""

    strategy: HeapSnapshotStrategy
    resources: object

    @classmethod
    def of(cls, backend, changes=None):
        strategy = HeapSnapshotStrategy(backend, changes=changes)
        return cls(strategy, strategy.sync_prepare_resources())

    def write(self, streams=None, cancelled=None):
        """The asynchronous part, in this thread."""
        return self.strategy.async_snapshot(
            self.resources, streams or MemoryStreams(), cancelled or threading.Event()
        )


def chained(full, *increments):
    """Return the handle of a chain; its first part may be missing, as may any."""
    parts = [part for part in (full, *increments) if part is not None]
    return attrs.evolve(parts[0], increments=tuple(parts[1:])) if parts else None


def rows_of(handle):
    """Return the rows of a file by state: for each entry key whether it is gone, or None in a full file."""
    head = StateFileHead.decode(handle.stream.data, "file")
    rows = {}
    for meta in head.states:
        codec = StateCodec(head.key_type, meta, is_increment=head.is_increment)
        rows[meta.name] = found = {}
        for key_group, section in handle.sections[meta.name].items():
            data = MemoryReader().read(handle.stream, section.offset, section.length)
            entries = codec.decode(key_group, data, section.checksum, "file")
            names = entries.entry_keys()
            if meta.name.startswith("_timer_state"):
                names = [Timer(*row) for row in zip(entries.values, *_columns(entries), strict=True)]
            assert not found.keys() & set(names)
            found.update(zip(names, entries.removed or [None] * len(entries), strict=True))
    return rows


def _columns(entries):
    return entries.keys, entries.namespaces or [VOID_NAMESPACE] * len(entries)


def contents(*backends):
    """Return all that backends have together, by state and entry key; of timers a set."""
    found = {}
    for backend in backends:
        ask_for_all(backend)
        for name, table in backend.registered_kv_states.items():
            entries = dict(table.items())
            assert len(entries) == len(table)
            found.setdefault(name, {}).update(entries)
        for name, queue in backend.registered_queues.items():
            queue._check()
            timers = found.setdefault(name, set())
            assert timers.isdisjoint(queue.timers())
            timers.update(queue.timers())
    return {name: entries for name, entries in found.items() if entries}
