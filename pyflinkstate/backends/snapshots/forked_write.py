"""Writes a large snapshot in a forked process, so that the owner of the state keeps the interpreter lock.

A thread that writes a snapshot shares the lock with the owner: what one of them has, the other lacks. A
forked process has a lock of its own, and sees the frozen state as it was when it was forked. It writes the
bytes to memory that it shares with its parent, which copies them to the checkpoint's stream.

A forked process must touch nothing that other threads may have held at that moment. So the child only reads
the state and calls Arrow; it closes all other files and connections first, and it is killed with its parent.
If it fails, or makes no progress, it is killed and the caller writes the snapshot itself.

The price is memory: reading an object changes its reference count, so the child gets a copy of each page that
it reads, up to the size of the state.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import NoReturn

from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    CheckpointStreamFactory,
    KeyGroupsStateHandle,
    Section,
    SectionWriter,
    StreamStateHandle,
    write_file,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import SnapshotCancelledError

#: Whether this system can do it.
CAN_FORK = sys.platform == "linux" and hasattr(os, "memfd_create")
#: A child that writes nothing for so long is stuck.
STALL_S = 30.0
#: How often the parent looks whether the checkpoint was aborted.
_POLL_S = 0.1
#: What is copied at once: each copy gives the interpreter lock away and has to wait for it again.
_COPY_BYTES = 16 << 20
#: ``PR_SET_PDEATHSIG`` of Linux: a signal for this process when its parent ends.
_SIGNAL_OF_PARENTS_DEATH = 1

#: Writes a snapshot and returns its handle.
Write = Callable[[SectionWriter], KeyGroupsStateHandle]


def write_forked(
    write: Write,
    streams: CheckpointStreamFactory,
    cancelled: threading.Event,
    clock: Callable[[], float] = time.monotonic,
) -> KeyGroupsStateHandle | None:
    """Call ``write`` in a forked process, and copy what it has written to a new file.

    Args:
        write: writes the snapshot; it must not need any lock that another thread may hold.
        streams: makes the file.
        cancelled: is set when the checkpoint is aborted.
        clock: returns the time in seconds, for the time without progress.

    Returns:
        the handle; None if the child failed, or the system refused it: the caller has to write then.

    Raises:
        SnapshotCancelledError: ``cancelled`` was set.
        CheckpointStorageError: the file could not be written.
    """
    try:
        child = ForkedWrite(write)
    except OSError:  # too little memory, or too many processes
        return None
    with child:
        handle = child.wait(cancelled, clock)
        if handle is None:
            return None
        return write_file(streams, cancelled, lambda writer: child.copied(handle, writer))


class ForkedWrite:
    """A child process that writes a snapshot; leaving the ``with`` block ends it."""

    def __init__(self, write: Write) -> None:
        parent = os.getpid()
        with ExitStack() as opened:
            self._bytes = os.memfd_create("snapshot")
            opened.callback(os.close, self._bytes)
            self._result, result = os.pipe()
            opened.callback(os.close, self._result)
            opened.callback(os.close, result)
            self._pid = os.fork()
            opened.pop_all()  # all went well: nothing is closed here
        if self._pid == 0:
            _run(write, parent, self._bytes, result)
        os.close(result)

    def wait(self, cancelled: threading.Event, clock: Callable[[], float]) -> KeyGroupsStateHandle | None:
        """Wait for the child; return the handle without its stream, or None if the child failed.

        Raises:
            SnapshotCancelledError: ``cancelled`` was set meanwhile.
        """
        told, size, since = b"", 0, clock()
        while True:
            if cancelled.is_set():
                raise SnapshotCancelledError("the checkpoint was aborted")
            if select.select([self._result], [], [], _POLL_S)[0]:
                part = os.read(self._result, 1 << 20)
                if not part:
                    return _handle_of(told)
                told += part
            written = os.fstat(self._bytes).st_size + len(told)
            if written > size:
                size, since = written, clock()
            elif clock() - since > STALL_S:
                return None

    def copied(self, handle: KeyGroupsStateHandle, writer: SectionWriter) -> KeyGroupsStateHandle:
        """Copy what the child has written, and return the handle with its stream."""
        size = os.fstat(self._bytes).st_size
        for offset in range(0, size, _COPY_BYTES):
            writer.append(os.pread(self._bytes, _COPY_BYTES, offset))
        return KeyGroupsStateHandle(handle.key_group_range, writer.close(), handle.sections)

    def __enter__(self) -> ForkedWrite:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)
        os.close(self._bytes)
        os.close(self._result)


def _handle_of(told: bytes) -> KeyGroupsStateHandle | None:
    """Return the handle that a child has told, or None if it ended before it had told all of it."""
    try:
        content = json.loads(told)
    except ValueError:
        return None
    sections = {
        name: {int(key_group): Section(*section) for key_group, section in found.items()}
        for name, found in content["sections"].items()
    }
    return KeyGroupsStateHandle(KeyGroupRange(*content["key_groups"]), _NOTHING, sections)


# --- in the child ------------------------------------------------------------------------------------------


def _run(write: Write, parent: int, memory: int, result: int) -> NoReturn:
    """Write the snapshot, tell where its sections are, and end without any clean-up."""
    try:
        _end_with(parent)
        gc.disable()
        _close_all_but({memory, result})
        handle = write(SectionWriter(_SharedMemory(memory), threading.Event()))
        _tell(handle, result)
    except BaseException:  # noqa: BLE001 - the parent writes the snapshot itself, and meets the error
        os._exit(1)
    os._exit(0)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends; end now if that has happened already."""
    ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    """Close what was inherited: a connection must end with the process that it belongs to."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2 and descriptor not in kept:
            with suppress(OSError):
                os.close(descriptor)


def _tell(handle: KeyGroupsStateHandle, result: int) -> None:
    owned = handle.key_group_range
    sections = {
        name: {
            str(key_group): [section.offset, section.length, section.checksum]
            for key_group, section in found.items()
        }
        for name, found in handle.sections.items()
    }
    told = json.dumps({"key_groups": [owned.start, owned.end], "sections": sections}).encode()
    while told:
        told = told[os.write(result, told) :]


_NOTHING = ByteStreamStateHandle(b"")


class _SharedMemory:
    """The stream of the child."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        """Append ``data``."""
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close_and_get_handle(self) -> StreamStateHandle:
        """Do nothing: the parent makes the handle."""
        return _NOTHING

    def abort(self) -> None:
        """Do nothing: the parent closes the memory."""
