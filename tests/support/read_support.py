"""Checkpoints that tests read as tables, and savepoints that they write from changed ones and restore."""

from collections.abc import Iterable
from pathlib import Path

from backend_support import fill, make_backend, one_of_each_kind, read, state_of, take_snapshot

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.format import (
    CheckpointMetadata,
    KeyGroupsStateHandle,
    MemoryCheckpoint,
    OperatorState,
    OperatorSubtaskState,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend, HeapRestoreOperation, snapshot_runner
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage, open_folder
from pyflinkstate.state_access.checkpoint import Checkpoint, CountingReader

JOB_ID = "0123456789abcdef" * 2
UID = "op"
COUNT = ValueStateDescriptor("count", Types.LONG())


def metadata_of(operators, checkpoint_id=1, job_id=JOB_ID, runs=(), epoch=None):
    """Return metadata around the state of operators."""
    epoch = checkpoint_id if epoch is None else epoch
    at_ms = 1_000 * checkpoint_id
    return CheckpointMetadata(
        checkpoint_id,
        job_id,
        "job",
        epoch,
        {"offset": 7},
        {"records": 3},
        at_ms,
        tuple(operators),
        {"a": 5},
        runs,
    )


def operator_of(states: Iterable[OperatorSubtaskState], uid="op", max_parallelism=128):
    """Return the state of an operator from that of its subtasks."""
    states = tuple(states)
    return OperatorState(uid, len(states), max_parallelism, states)


def checkpoint_of(*handles, uid="op", clock=lambda: 0, max_parallelism=128):
    """Return a checkpoint of one operator whose subtasks have these handles of keyed state, or states."""
    states = [
        OperatorSubtaskState(handle) if isinstance(handle, KeyGroupsStateHandle) else handle
        for handle in handles
    ]
    return in_memory(metadata_of([operator_of(states, uid, max_parallelism)]), clock)


def in_memory(metadata, clock=lambda: 0):
    """Return a checkpoint whose handles hold their bytes."""
    return Checkpoint(metadata, "memory", CountingReader(MemoryCheckpoint()), clock)


def write_checkpoint(root, operators, checkpoint_id=1, job_id=JOB_ID, **details):
    """Write a checkpoint of operators whose handles are in memory; return the path of its folder."""
    storage = CheckpointFolders(str(root))
    folder = storage.begin(job_id, checkpoint_id, shared=True)
    storage.complete(metadata_of(operators, checkpoint_id, job_id, **details))
    return folder


def write(
    root, counts, checkpoint_id=1, uid=UID, job_id=JOB_ID, key_type=None, max_parallelism=128, **details
):
    """Write a checkpoint with a file, in which keys have these counts; return its folder."""
    own = KeyGroupRange(0, max_parallelism - 1)
    backend = make_backend(key_type or Types.STRING(), own, max_parallelism)
    for key, count in counts.items():
        state_of(backend, COUNT, key).update(count)
    return write_backends(root, [backend], checkpoint_id, uid, job_id, **details)


def write_backends(root, backends, checkpoint_id=1, uid=UID, job_id=JOB_ID, **details):
    """Write a checkpoint with a file of each subtask's backend; return its folder."""
    storage = CheckpointFolders(FileSystemCheckpointStorage(str(root), file_state_size_threshold=0))
    folder = storage.begin(job_id, checkpoint_id)
    states = []
    for backend in backends:
        task = snapshot_runner(backend).snapshot(storage.streams(folder))
        task.run()
        states.append(OperatorSubtaskState(task.result()))
    operator = operator_of(states, uid, backends[0].max_parallelism)
    storage.complete(metadata_of([operator], checkpoint_id, job_id, **details))
    return folder


def state_file(folder):
    """Return the path of the one state file of a checkpoint."""
    (found,) = (path for path in Path(folder).iterdir() if path.name != "_metadata")
    return found


# --- savepoints that are written -------------------------------------------------------------------

DESCRIPTORS = one_of_each_kind(lambda declared: declared)


def filled(numbers, key_type=None, descriptors=DESCRIPTORS, max_parallelism=128, clock=lambda: 0):
    """Return a checkpoint in which five states have something under each of these string keys."""
    backend = make_backend(
        key_type or Types.STRING(),
        key_group_range(max_parallelism, 1, 0),
        max_parallelism,
        clock=clock,
    )
    for number in numbers:
        fill(backend, descriptors, f"k{number}", number)
    return checkpoint_with(backend, clock)


def checkpoint_with(backend, clock=lambda: 0, uid=UID):
    """Return a checkpoint of one operator with the state of a backend."""
    state = OperatorSubtaskState(take_snapshot(backend))
    operator = operator_of([state], uid, backend.max_parallelism)
    return in_memory(metadata_of([operator]), clock)


def restored(checkpoint, uid=UID, parallelism=1, key_type=None, clock=lambda: 0):
    """Return the backends of all subtasks that restore an operator of a written savepoint."""
    operator = checkpoint.operator(uid)
    backends = []
    for subtask in range(parallelism):
        most = operator.max_parallelism
        owned = key_group_range(most, parallelism, subtask)
        backend = HeapKeyedStateBackend(key_type or Types.STRING(), owned, most, clock=clock)
        handles = [sub.managed_keyed for sub in operator.subtasks]
        HeapRestoreOperation(backend, open_folder(checkpoint.uri)).restore(handles)
        backends.append(backend)
    return backends


def content(backends, key, descriptors=DESCRIPTORS):
    """Return what the five states have under a key, in the one subtask that owns it."""
    for backend in backends:
        try:
            return read(backend, descriptors, key)
        except Exception as error:
            if type(error).__name__ != "KeyGroupRangeError":
                raise
    raise AssertionError(f"no subtask owns {key!r}")
