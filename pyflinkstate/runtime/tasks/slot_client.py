"""The task's side of a state slot: find it, start it if there is none, feed it an epoch."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import IO, ClassVar

import attrs

from pyflinkstate.errors import PyFlinkStateError, SlotBusyError, SlotLostError
from pyflinkstate.runtime.slots import SlotBootstrap, lack_of_space, path_without_brought
from pyflinkstate.runtime.wire import (
    DRIVER,
    AcquireSlot,
    Address,
    BeginEpoch,
    Channel,
    EpochAccepted,
    EpochDone,
    EpochFailed,
    EpochRefused,
    ServerName,
    SlotAvailable,
    SlotFailed,
    SlotId,
    SlotUnavailable,
    StartSlot,
    TaskReport,
    connect,
    dumps,
)

#: The command that a slot's process runs.
SLOT_MODULE = "pyflinkstate.runtime.slots.slot_process"
_POLL_S = 0.2
#: How long to wait for the driver's answer after the process that it is about has ended, for the end of that
#: process's output, and for a thread whose work is done.
_GRACE_S = 5
#: Maximum number and length of the lines in the error of a slot that dies while it starts.
_LAST_LINES = 20
_LONGEST_LINE = 1000
#: How long a task that has found its slot busy waits before it asks again.
ASK_AGAIN_S = 1.0
#: How often such a task still asks after the other one has ended the epoch in the slot. The other one has yet
#: to hand its last results to Spark, and Spark then takes some seconds to end this one. If the other one is
#: lost in this time, the restart is delayed by as much, hence the low number.
ASKS_AFTER_THE_END = 10


@attrs.frozen
class DriverLink:
    """How a task reaches the driver of its job."""

    address: Address
    secret: bytes = attrs.field(repr=False)
    attempt: int
    #: What the job's functions are given by name.
    job_parameters: dict[str, str] = attrs.field(factory=dict, hash=False)
    #: Whether the functions of tasks stay open for the next epoch.
    keeps_functions: ClassVar[bool] = False

    def report(self, report: TaskReport) -> None:
        """Send a report to the driver; return when it has arrived."""
        with connect(self.address, DRIVER, self.secret) as driver:
            driver.send(report)
            driver.recv()

    def acquire_slot(self, slot: SlotId) -> Address:
        """Return the address of ``slot``, after starting it on this host if it does not run anywhere."""
        with connect(self.address, DRIVER, self.secret) as driver, contextlib.ExitStack() as stack:
            driver.send(AcquireSlot(self.attempt, slot))
            answer = _receive(driver, slot)
            if isinstance(answer, StartSlot):
                error = lack_of_space(slot) or self._failure_to_start(slot, driver, stack)
                if error is not None:
                    driver.send(SlotFailed(error))
                answer = _receive(driver, slot)
            if isinstance(answer, SlotUnavailable):
                raise answer.error
            assert isinstance(answer, SlotAvailable)
            return answer.address

    def _failure_to_start(
        self, slot: SlotId, driver: Channel, stack: contextlib.ExitStack
    ) -> SlotLostError | None:
        """Start the slot; return the error if it ends before the driver has answered."""
        process, output = self._start(slot)

        def leave(failed: type[BaseException] | None, *_: object) -> None:
            if failed is not None:
                process.kill()  # nobody needs it, and it may be stopped
            # A thread waits for the process, so that it does not become a zombie of a living worker.
            threading.Thread(target=process.wait, daemon=True).start()

        stack.push(leave)
        while not driver.poll(_POLL_S):
            if process.poll() is not None:
                return _ended(slot, process.returncode, output)
        return None

    def _start(self, slot: SlotId) -> tuple[subprocess.Popen[bytes], _StartOutput]:
        command = [sys.executable, "-m", SLOT_MODULE, str(slot)]
        # The slot can import the same modules as this worker, including packages that Spark has shipped. It
        # puts the program's own files on its path when it has started.
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(path_without_brought())}
        streams = (os.dup(1), os.dup(2))
        try:
            bootstrap = SlotBootstrap(self.address, self.secret, self.attempt, slot, streams)
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=streams,
                start_new_session=True,
                env=env,
            )
        finally:
            for stream in streams:
                os.close(stream)
        assert process.stdin is not None
        assert process.stdout is not None
        output = _StartOutput(process.stdout)
        # Who waits for the slot sees that it has ended, and tells with which exit code.
        with contextlib.suppress(BrokenPipeError), process.stdin as stdin:
            stdin.write(dumps(bootstrap))
        return process, output


class _StartOutput:
    """The output of a slot while it starts: it goes to the executor's log, and the last lines are kept."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque(maxlen=_LAST_LINES)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            while line := self._stream.readline(_LONGEST_LINE):
                self._lines.append(line)
                with contextlib.suppress(OSError):
                    os.write(2, line)

    def last_lines(self) -> str:
        """Return the last lines of a slot that has ended; a child of its own may still hold the stream."""
        self._thread.join(_GRACE_S)
        return b"".join(list(self._lines)).decode(errors="replace").strip()


def _ended(slot: SlotId, code: int, output: _StartOutput) -> SlotLostError:
    lines = output.last_lines()
    said = f"its last lines are:\n{lines}" if lines else "it has printed nothing"
    return SlotLostError(f"slot {slot} ended with exit code {code} while it was starting; {said}")


def _receive(driver: Channel, slot: SlotId) -> object:
    try:
        return driver.recv()
    except (EOFError, OSError) as error:
        raise SlotLostError(f"slot {slot}: the driver has ended this attempt of the job") from error


@attrs.define(eq=False)
class Admission:
    """Decides whether a task that a slot refuses asks again.

    If Spark runs two copies of a task (``spark.speculation``), the second one finds the slot busy. It must
    not fail: Spark would count that towards ``spark.task.maxFailures``, start one more copy, and soon give up
    the job, although the first copy is well. So it asks again until the slot is free. By then the first copy
    has ended the epoch, or was lost. If it has ended the epoch, Spark is about to end the second copy.

    A task that has not found the slot busy never asks again, so that a restart that is needed comes at once.
    """

    _was_busy: bool = False
    _asks_left: int = ASKS_AFTER_THE_END

    def asks_again(self, refused: EpochRefused) -> bool:
        """Return whether the task asks again after a refusal; if not, it raises the error of the refusal."""
        if isinstance(refused.error, SlotBusyError):
            self._was_busy = True
            return True
        if not (self._was_busy and refused.is_applied and self._asks_left):
            return False
        self._asks_left -= 1
        return True


def run_epoch(
    address: Address,
    secret: bytes,
    slot: SlotId,
    begin: BeginEpoch,
    frames: Iterable[bytes],
    wait: Callable[[float], object] = time.sleep,
) -> Iterator[bytes | EpochDone]:
    """Feed ``frames`` to a slot, yield its output frames as they come, and finally its ``EpochDone``.

    While another task is feeding the slot, this one waits for its turn: see :class:`Admission`.

    A separate thread writes the frames: if one thread both wrote and read, both ends could block on full
    buffers, each waiting for the other to read.

    Args:
        address: the address of the slot.
        secret: the secret of the job.
        slot: the slot.
        begin: the epoch.
        frames: the frames of the epoch.
        wait: waits for a number of seconds.

    Raises:
        SlotLostError: the slot died.
        PyFlinkStateError: the error with which the slot refused or failed.
    """
    writer: _FrameWriter | None = None
    connection: Channel | None = None
    try:
        connection = _admitted(address, secret, slot, begin, wait)
        writer = _FrameWriter(connection, frames)
        writer.start()
        while data := connection.recv_bytes():
            yield data
        outcome = connection.recv()
        if isinstance(outcome, EpochFailed):
            raise outcome.error
        writer.join(_GRACE_S)  # the slot has read all of its frames
    except (EOFError, OSError) as error:
        if isinstance(error, PyFlinkStateError):
            raise
        if writer is not None and writer.input_error is not None:
            raise writer.input_error from None
        raise SlotLostError(f"slot {slot} died or was cut off in epoch {begin.epoch}: {error!r}") from error
    finally:
        if connection is not None:
            _leave(connection, writer)
    assert isinstance(outcome, EpochDone)
    yield outcome


def _admitted(
    address: Address, secret: bytes, slot: SlotId, begin: BeginEpoch, wait: Callable[[float], object]
) -> Channel:
    """Return a connection on which the slot has accepted the epoch."""
    admission = Admission()
    while True:
        with contextlib.ExitStack() as refused:
            connection = connect(address, ServerName.of_slot(slot, begin.attempt), secret)
            refused.callback(_leave, connection, None)
            connection.send(begin)
            answer = connection.recv()
            if isinstance(answer, EpochAccepted):
                refused.pop_all()
                return connection
        assert isinstance(answer, EpochRefused)
        if not admission.asks_again(answer):
            raise answer.error
        wait(ASK_AGAIN_S)


def _leave(connection: Channel, writer: _FrameWriter | None) -> None:
    """End a connection; the last of reader and writer to leave closes it."""
    connection.shut_down()
    if writer is None or writer.leave():
        connection.close()


class _FrameWriter(threading.Thread):
    """Writes all frames, then the empty one. ``input_error`` is the error that reading them raised."""

    def __init__(self, connection: Channel, frames: Iterable[bytes]) -> None:
        super().__init__(daemon=True)
        self._connection = connection
        self._frames = iter(frames)
        self._users = 2
        self._leaving = threading.Lock()
        self.input_error: BaseException | None = None

    def leave(self) -> bool:
        """Record that reader or writer no longer needs the connection; return whether neither does."""
        with self._leaving:
            self._users -= 1
            return self._users == 0

    def run(self) -> None:
        """Write the frames; close the connection at the end if the reader has already left it."""
        try:
            self._write()
        except OSError:
            pass  # the reader finds out why the slot is gone
        except BaseException as error:  # noqa: BLE001 - otherwise the reader would wait for ever
            self.input_error = error
        finally:
            if self.input_error is not None:
                self._connection.shut_down()
            if self.leave():
                self._connection.close()

    def _write(self) -> None:
        while (frame := self._next_frame()) is not None:
            self._connection.send_bytes(frame)
        if self.input_error is None:
            self._connection.send_bytes(b"")

    def _next_frame(self) -> bytes | None:
        try:
            return next(self._frames, None)
        except BaseException as error:  # noqa: BLE001 - Spark's upstream may raise anything
            self.input_error = error
            return None
