"""The backend on disk against the heap backend: the same operations, snapshots, restores and rescalings."""

import random
from copy import deepcopy

import attrs
import pytest
from backend_support import (
    PICKLED,
    MemoryReader,
    MemoryStreams,
    Snapshot,
    chained,
    contents,
    one_of_each_kind,
    state_of,
)
from tiered_support import evicting_backend
from tiers import cases
from ttl_contract import with_ttl

from pyflinkstate import ListStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.backends.heap import HeapKeyedStateBackend
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.rocksdb import KeyedRestoreOperation

pytest.importorskip("rocksdict")

MAX_PARALLELISM = 8
STEPS, OPERATIONS = 6, 150
#: Some stay in memory, and most do not.
OBJECTS_BYTES = 8_000
MAKERS = {
    "heap": lambda own, clock: HeapKeyedStateBackend(PICKLED, own, MAX_PARALLELISM, clock=clock),
    "disk": lambda own, clock: evicting_backend(PICKLED, own, MAX_PARALLELISM, clock, OBJECTS_BYTES, True),
}
#: Of all classes whose bytes differ from those of others that they equal.
ODD_KEYS = [True, 2.0, 2.5, -0.0, (1, "a"), (True, "a"), b"k", ("x", ("y",)), 2**70]
KEYS = [*range(25), *map(str, range(25)), *ODD_KEYS]


@attrs.define
class Clock:
    """Stands still until it is moved."""

    now_ms: int = 0

    def __call__(self):
        return self.now_ms


def descriptors():
    return {
        **one_of_each_kind(lambda _: PICKLED),
        "declared": ValueStateDescriptor("declared", Types.LONG()),
        "ttl": with_ttl(ValueStateDescriptor("ttl", Types.STRING())),
        "windowed": ListStateDescriptor("windowed", PICKLED),
    }


@attrs.define
class Job:
    """The subtasks of one job on one kind of backend."""

    make: object
    clock: Clock
    backends: list = attrs.field(factory=list)

    def timers(self, key):
        """Return the timers of the subtask that has the key, and the index of the key's group."""
        for backend in self.backends:
            try:
                backend.set_current_key(key)
            except ValueError:
                continue
            queue = backend.create_timer_queue("event_timers", Types.STRING())
            return queue, backend.key_context.map_index
        raise AssertionError(f"no subtask has {key}")

    def restart(self, handles, parallelism, is_tracked):
        """Begin again with what was written."""
        self.backends = []
        for index in range(parallelism):
            backend = self.make(key_group_range(MAX_PARALLELISM, parallelism, index), self.clock)
            KeyedRestoreOperation(backend, MemoryReader()).restore(handles)
            if is_tracked:
                backend.track_changes()
            for descriptor in descriptors().values():
                if descriptor.name == "windowed":
                    backend.get_or_create_keyed_state(descriptor, Types.STRING())
                else:
                    backend.get_partitioned_state(descriptor)
            self.backends.append(backend)

    def state(self, name, key, namespace):
        """Return a state of the subtask that has the key."""
        descriptor = descriptors()[name]
        for backend in self.backends:
            try:
                if name != "windowed":
                    return state_of(backend, descriptor, key)
                backend.set_current_key(key)
                return backend.get_partitioned_state(descriptor, namespace, Types.STRING())
            except ValueError:
                continue
        raise AssertionError(f"no subtask has {key}")


def operate(state, name, draw):
    """Do something to a state; return what came of it."""
    number = draw.randrange(100)
    if draw.random() < 0.15:
        return state.clear()
    if name in ("value", "ttl", "declared"):
        value = {"value": [number], "ttl": str(number), "declared": number}[name]
        if draw.random() < 0.3:  # without looking first
            return state.update(value)
        found = state.value()
        if isinstance(found, list) and draw.random() < 0.5:
            found.append(number)
        else:
            state.update(value)
        return repr(found)
    if name in ("list", "windowed"):
        state.add(str(number))
        return list(state.get())
    if name == "map":
        state.put(str(number % 5), number)
        return sorted(state.items())
    state.add(number)
    return state.get()


def set_timers(queue, map_index, key, draw):
    """Add or delete timers, or fire some; return what came of it."""
    timer = draw.randrange(-5, 30), key, draw.choice("xy"), map_index
    what = draw.random()
    if what < 0.5:
        return queue.register(*timer)
    if what < 0.8:
        return queue.delete(*timer)
    return [queue.poll(timer[0]) for _ in range(draw.randrange(4))], queue.first_timestamp(), len(queue)


@pytest.mark.parametrize("seed", cases(range(40), range(4)))
def test_both_backends_answer_and_restore_alike(seed):
    draw, clock = random.Random(seed), Clock()
    jobs = [Job(make, clock) for make in MAKERS.values()]
    is_tracked = draw.random() < 0.5
    for job in jobs:
        job.restart([], 1, is_tracked)
    written = [[None], [None]]
    for _ in range(STEPS):
        run(jobs, draw, clock)
        is_base = draw.random() < 0.4
        snapshots = [
            [
                snapshot_of(backend, base, is_tracked, is_base)
                for backend, base in zip(job.backends, of, strict=True)
            ]
            for job, of in zip(jobs, written, strict=True)
        ]
        at_barrier = [deepcopy(contents(*job.backends)) for job in jobs]
        assert at_barrier[0] == at_barrier[1]
        run(jobs, draw, clock)  # what is written does not see it
        written = [
            [
                on_top_of(base, write(), is_tracked and not is_base)
                for write, base in zip(of, before, strict=True)
            ]
            for of, before in zip(snapshots, written, strict=True)
        ]
        assert all(handle.native for handle in written[1] if is_base and handle is not None)
        if draw.random() < 0.5:
            parallelism = draw.choice([1, 2, 3])
            handles = draw.sample(written, 2)  # each may be given what the other has written
            for job, given in zip(jobs, handles, strict=True):
                job.restart(given, parallelism, is_tracked)
                assert contents(*job.backends) == at_barrier[0]
            written = [[None] * parallelism for _ in jobs]


def run(jobs, draw, clock):
    """Do the same to all jobs."""
    for _ in range(OPERATIONS):
        clock.now_ms += draw.randrange(3)
        name, key, namespace = draw.choice([*descriptors()]), draw.choice(KEYS), draw.choice("xy")
        seed = draw.random()
        if draw.random() < 0.4:
            first, second = (set_timers(*job.timers(key), key, random.Random(seed)) for job in jobs)
            assert first == second
        first, second = (operate(job.state(name, key, namespace), name, random.Random(seed)) for job in jobs)
        assert first == second


def snapshot_of(backend, base, is_tracked, is_base):
    """Take the synchronous part of a snapshot; return the other part.

    It is of all state, native on disk or a savepoint, or of what changed since the base.
    """
    changes = backend.take_changes() if is_tracked else None
    if is_base:
        return backend.base_snapshot(MemoryStreams(), "zstd", is_later=base is not None).finish
    return Snapshot.of(backend, None if base is None else changes).write


def on_top_of(base, handle, is_tracked):
    """Return the handle of what was written, with all that it is an increment of."""
    return chained(base, *base.increments, handle) if is_tracked and base is not None else handle
