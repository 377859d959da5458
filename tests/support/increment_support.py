"""What the tests of increments share: both parts of a snapshot of changes, chains, and what is in them."""

import threading

import attrs
from backend_support import MemoryReader, MemoryStreams, ask_for_all

from pyflinkstate.backends.format.state_file import StateCodec, StateFileHead
from pyflinkstate.backends.heap.snapshot import HeapSnapshotStrategy
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE


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
