"""Snapshots that a forked process writes: the same bytes, nothing shared, nothing left, and a way without."""

import gc
import itertools
import os
import signal
import socket
import subprocess
import sys
import threading

import attrs
import psutil
import pytest
from backend_support import MemoryReader, MemoryStreams, fill, one_of_each_kind, restore, state_of
from increment_support import contents

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.format import KeyGroupsStateHandle
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.heap import snapshot, snapshot_runner
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.snapshots import ChangeHistory, forked_write, write_forked
from pyflinkstate.backends.snapshots.forked_write import ForkedWrite
from pyflinkstate.backends.types import VOID_NAMESPACE
from pyflinkstate.errors import ConfigurationError, SnapshotCancelledError, StateValueError

pytestmark = pytest.mark.skipif(not forked_write.CAN_FORK, reason="this system cannot do it")

ALL = KeyGroupRange(0, 127)
DESCRIPTORS = one_of_each_kind(lambda declared: declared)


@pytest.fixture(autouse=True)
def forks_always(monkeypatch):
    monkeypatch.setattr(snapshot, "MIN_ENTRIES_TO_FORK", 0)


@pytest.fixture
def forked(monkeypatch):
    """Return the pids of the children that were forked."""
    pids, fork = [], os.fork

    def noted():
        pid = fork()
        if pid:
            pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    return pids


def backend_that_forks():
    made = HashMapStateBackend(snapshot_process=True)
    return made.create_keyed_state_backend(Types.STRING(), ALL, 128, lambda: 0)


def filled(count=50):
    backend = backend_that_forks()
    for number in range(count):
        fill(backend, DESCRIPTORS, f"k{number}", number)
    queue = backend.create_timer_queue("event_user-timers")
    queue.add(Timer(7, "k1", VOID_NAMESPACE), backend.key_group_of("k1"))
    return backend


def written(backend, changes=None):
    task = snapshot_runner(backend, changes=changes).snapshot(MemoryStreams())
    task.run()
    return task.result()


def gone(pid):
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_child_writes_the_same_as_a_thread(forked):
    backend = filled()
    handle = written(backend)
    assert len(forked) == 1
    assert gone(forked[0])
    assert contents(restore([handle], Types.STRING())) == contents(backend)


def test_increments_as_well(forked):
    backend, parts = filled(), []
    history = ChangeHistory(backend)
    parts.append(written(backend, history.cut(1, None)))
    state_of(backend, DESCRIPTORS["value"], "k1").update(-1)
    state_of(backend, DESCRIPTORS["list"], "k2").clear()
    increment = written(backend, history.cut(2, 1))
    assert len(forked) == 2
    handle = attrs.evolve(parts[0], increments=(increment,))
    assert contents(restore([handle], Types.STRING())) == contents(backend)


def test_the_child_sees_the_state_as_it_was_at_the_barrier(forked):
    backend = filled()
    expected = contents(backend)
    task = snapshot_runner(backend).snapshot(MemoryStreams())
    state_of(backend, DESCRIPTORS["value"], "k1").update(-1)
    state_of(backend, DESCRIPTORS["list"], "k1").add("later")
    task.run()
    assert contents(restore([task.result()], Types.STRING())) == expected


def test_few_entries_are_not_worth_a_process(forked, monkeypatch):
    monkeypatch.setattr(snapshot, "MIN_ENTRIES_TO_FORK", 1000)
    assert contents(restore([written(filled())], Types.STRING()))
    assert forked == []


def test_a_value_that_does_not_fit_is_the_same_error(forked):
    backend = filled()
    changeable = ValueStateDescriptor("list value", Types.LIST(Types.LONG()))
    state_of(backend, changeable, "k1").update([1])
    state_of(backend, changeable, "k1").value().append("text")
    with pytest.raises(StateValueError, match=r"key 'k1'.*changed in place"):
        written(backend)
    assert len(forked) == 1


def nothing_written(writer):
    return KeyGroupsStateHandle(ALL, writer.close(), {})


def killed_while_it_tells(writer):
    """Patches the child alone."""
    handle, write = nothing_written(writer), os.write

    def write_a_part(descriptor, data):
        write(descriptor, data[:10])
        os.kill(os.getpid(), signal.SIGKILL)

    os.write = write_a_part
    return handle


@pytest.mark.parametrize(
    "write",
    [
        lambda _: 1 / 0,
        lambda _: os.kill(os.getpid(), signal.SIGKILL),
        lambda _: sys.exit(3),
        killed_while_it_tells,
    ],
    ids=["raises", "is killed", "exits", "is killed while it tells its result"],
)
def test_a_child_that_fails_leaves_the_work_to_its_parent(write, forked):
    assert write_forked(write, MemoryStreams(), threading.Event()) is None
    assert gone(forked[0])


def test_a_child_that_is_stuck_is_killed(forked):
    ticks = itertools.count(step=10.0)
    assert (
        write_forked(lambda _: signal.pause(), MemoryStreams(), threading.Event(), lambda: next(ticks))
        is None
    )
    assert gone(forked[0])


def test_an_aborted_checkpoint_ends_the_child(forked):
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(SnapshotCancelledError):
        write_forked(lambda _: signal.pause(), MemoryStreams(), cancelled)
    assert gone(forked[0])


@pytest.mark.parametrize("refused", ["memfd_create", "pipe", "fork"])
def test_where_the_system_refuses_it_the_parent_writes(monkeypatch, refused):
    def refuse(*_):
        raise OSError("too many processes or files")

    monkeypatch.setattr(os, refused, refuse)
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    backend = filled()
    assert contents(restore([written(backend)], Types.STRING())) == contents(backend)
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_child_holds_no_connection_of_its_parent():
    ours, theirs = socket.socketpair()

    with ours, theirs, ForkedWrite(listing) as child:
        assert child.wait(threading.Event(), lambda: 0.0) is not None
        streams = MemoryStreams()
        handle = forked_write.write_file(
            streams,
            threading.Event(),
            lambda writer: child.copied(KeyGroupsStateHandle(ALL, forked_write._NOTHING, {}), writer),
        )
    names = MemoryReader().read(handle.stream, 0, handle.stream.size_bytes).decode()
    assert "socket" not in names
    assert names.count("/dev/null") >= 3


def listing(writer):
    names = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            names.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:  # that of the listing itself
            continue
    writer.append("\n".join(names).encode())
    return nothing_written(writer)


ORPHAN = """
import os, signal, sys, threading
from pyflinkstate.backends.snapshots.forked_write import ForkedWrite

child = ForkedWrite(lambda _: signal.pause())
print(child._pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_child_ends_with_its_parent():
    killed = subprocess.run([sys.executable, "-c", ORPHAN], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    psutil.wait_procs(
        [psutil.Process(int(killed.stdout))] if psutil.pid_exists(int(killed.stdout)) else [], 60
    )
    assert gone(int(killed.stdout))


def test_the_setting_is_checked():
    with pytest.raises(ConfigurationError, match="snapshot_process must be True or False"):
        HashMapStateBackend(snapshot_process="yes")
    with pytest.raises(ConfigurationError, match="needs async_snapshots"):
        HashMapStateBackend(snapshot_process=True, async_snapshots=False)
