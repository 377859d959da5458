"""Savepoints that tests write from changed checkpoints, and restore with a real backend."""

from backend_support import fill, make_backend, one_of_each_kind, read, take_snapshot
from read_support import UID, in_memory, metadata_of, operator_of

from pyflinkstate import Types
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.heap import HeapKeyedStateBackend, HeapRestoreOperation
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.runtime.storage import open_folder

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
