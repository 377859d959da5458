"""The process of a slot: the path that it imports from, its output, and its end if the driver is silent.

*Path.* The folders of a program's files and requirements come before all others, as they do in Flink. The
packages that this package needs are imported before: a module of the same name among the files must not
replace one of them, or the slot would not start.

*Output.* What user code prints and logs goes to the driver, line by line. The streams that a slot inherits
lead to the executor that started it, and a slot may outlive its executor. So a line is handed over for the
driver first, and what an inherited stream raises is ignored.

*Watchdog.* It ends the process when it has not been fed for a while, no matter what its threads are doing. A
thread cannot do that: a function that never releases the interpreter lock (a regular expression that
backtracks for ever) blocks every other thread, and a stopped process runs none. So on Linux the kernel does
it, with a timer of this process (``timer_create``) that is reset by each feeding and whose signal is
``SIGKILL``. It needs no interpreter, fires even in a stopped process, takes no signal away from user code
(``setitimer`` would take ``SIGALRM``), and is not inherited by processes that user code forks. On other
systems a thread does what a thread can.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TextIO

#: Where a worker leaves the folders for the slots that it starts.
_VARIABLE = "PYFLINKSTATE_PATH"
#: The modules of other packages that this package imports, some of them only when they are used.
NEEDED = ("attrs", "cloudpickle", "numpy", "pyarrow")


def put_on_path(folders: Sequence[str]) -> None:
    """Put folders first on the path of this process, and of the slots that it starts."""
    if not folders or _brought() == [*folders]:
        return
    for name in NEEDED:
        import_module(name)
    sys.path[:] = [*folders, *(folder for folder in sys.path if folder not in folders)]
    os.environ[_VARIABLE] = os.pathsep.join(folders)


def path_without_brought() -> list[str]:
    """Return the path on which a slot finds this package and what it needs."""
    brought = _brought()
    return [folder for folder in sys.path if folder and folder not in brought]


def put_on_path_of_slot() -> None:
    """Put the folders that the worker has left first on the path of this slot, and of its own children."""
    folders = _brought()
    if folders:
        del os.environ[_VARIABLE]
        put_on_path(folders)
        os.environ["PYTHONPATH"] = os.pathsep.join([*folders, os.environ["PYTHONPATH"]])


def _brought() -> list[str]:
    return list(filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep)))


#: How long lines wait so that others can be sent with them.
INTERVAL_S = 0.2
#: Maximum number of waiting lines; if the driver is too slow, the oldest are dropped and counted.
MAX_WAITING = 10_000
#: Longer lines are sent in pieces of this many characters: a progress bar may never end its line.
MAX_LINE = 10_000
#: The errors of a stream if nobody reads it, if it was closed, if it cannot encode a character, or if a
#: signal handler writes in the middle of a write.
STREAM_ERRORS = (OSError, ValueError, RuntimeError)

Lines = tuple[tuple[int, str], ...]


def stacks() -> tuple[tuple[int, str], ...]:
    """Return the stacks of all threads of this process as lines to log, the innermost call of each first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():
        lines.append(f'Thread {ident}: "{names.get(ident, "not of Python")}"')
        calls = ((one.f_code, number) for one, number in traceback.walk_stack(frame))
        lines += [f"    {code.co_name} ({code.co_filename}:{number})" for code, number in calls]
    return tuple((logging.INFO, line) for line in lines)


class OutputForwarder:
    """Sends lines in the background, in order.

    ``send`` takes lines with their levels, and raises ``OSError`` if the driver is gone.
    """

    def __init__(self, send: Callable[[Lines], None]) -> None:
        self._send = send
        self._lines: deque[tuple[int, str]] = deque()
        self._dropped = 0
        #: Reentrant, because a signal handler or a ``__del__`` may print in the middle of ``add``.
        self._lock = threading.RLock()
        self._sending = threading.Lock()
        #: Has an item if something waits; unlike an event, it may be told of that by a signal handler.
        self._something: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._tees: tuple[_Tee, ...] = ()

    def install(self) -> None:
        """Forward ``sys.stdout``, ``sys.stderr`` and the root logger, which go on writing where they can."""
        stderr = sys.stderr
        sys.stdout = out = _Tee(sys.stdout, lambda line: self.add(logging.INFO, line))
        sys.stderr = err = _Tee(stderr, lambda line: self.add(logging.WARNING, line))
        self._tees = (out, err)
        handler = _Handler(self, stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        logging.getLogger().addHandler(handler)
        logging.getLogger().setLevel(logging.INFO)
        self.start()

    def start(self) -> None:
        """Start to send."""
        threading.Thread(target=self._run, daemon=True).start()

    def add(self, level: int, line: str) -> None:
        """Queue a line to be sent soon."""
        with self._lock:
            if len(self._lines) >= MAX_WAITING:
                self._lines.popleft()
                self._dropped += 1
            self._lines.append((level, line))
        if self._something.empty():
            self._something.put(None)

    def flush(self) -> None:
        """Send all lines, including one without an end."""
        for tee in self._tees:
            tee.end_line()
        self._send_waiting()

    def _send_waiting(self) -> None:
        with self._sending:
            with self._lock:
                lines, self._lines = self._lines, deque()
                dropped, self._dropped = self._dropped, 0
            lost = dropped + len(lines)
            if dropped:
                lines.appendleft((logging.WARNING, f"(lines that were dropped: {dropped})"))
            try:
                if lines:
                    self._send(tuple(lines))
            except BaseException:
                with self._lock:
                    self._dropped += lost
                raise

    def _run(self) -> None:
        pause = threading.Event()
        try:
            while True:
                self._something.get()
                pause.wait(INTERVAL_S)
                self._send_and_go_on()
        except OSError:
            return  # the driver is gone, and the slot is about to hear of it

    def _send_and_go_on(self) -> None:
        """Send what waits; lines that cannot be sent are dropped, and later ones may be sent."""
        try:
            self._send_waiting()
        except OSError:
            raise
        except Exception:  # noqa: BLE001 - no error may end the output
            pass


class _Tee(io.TextIOBase):
    """Passes on each line, or pieces of an endless line, and writes it to a stream. Thread-safe."""

    def __init__(self, stream: TextIO, add: Callable[[str], None]) -> None:
        self._stream = stream
        self._add = add
        self._rest = ""
        #: Reentrant, because a signal handler may print in the middle of a print.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
            for line in lines:
                self._add_in_pieces(line)
            if len(self._rest) > MAX_LINE:
                whole = len(self._rest) // MAX_LINE * MAX_LINE
                pieces, self._rest = self._rest[:whole], self._rest[whole:]
                self._add_in_pieces(pieces)
            with contextlib.suppress(*STREAM_ERRORS):
                self._stream.write(text)
        return len(text)

    def _add_in_pieces(self, line: str) -> None:
        for start in range(0, max(1, len(line)), MAX_LINE):
            self._add(line[start : start + MAX_LINE])

    def flush(self) -> None:
        with contextlib.suppress(*STREAM_ERRORS):
            self._stream.flush()

    @property
    def buffer(self) -> object:
        """The stream of bytes, which are not passed on as lines."""
        return self._stream.buffer

    def end_line(self) -> None:
        """Pass on an incomplete line."""
        with self._lock:
            rest, self._rest = self._rest, ""
            if rest:
                self._add(rest)

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a stream's own is read-only too
        return self._stream.encoding

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._stream.fileno()


class _Handler(logging.Handler):
    def __init__(self, forwarder: OutputForwarder, stream: TextIO) -> None:
        super().__init__()
        self._forwarder = forwarder
        self._stream = stream

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - like the handlers of ``logging``
            self.handleError(record)
            return
        self._forwarder.add(record.levelno, line)
        with contextlib.suppress(*STREAM_ERRORS):
            self._stream.write(line + "\n")


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_byte * 64),
    )


class _TimerSpec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


#: ``SIGEV_SIGNAL`` of Linux: the timer sends the process a signal.
_SEND_SIGNAL = 0


class KernelWatchdog:
    """A timer of the kernel. Raises ``OSError`` or ``AttributeError`` if the system has no such timer."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(library, "timer_create"):  # glibc before 2.34
            library = ctypes.CDLL("librt.so.1", use_errno=True)
        event = _SignalEvent(signal=signal.SIGKILL, notify=_SEND_SIGNAL)
        self._timer = ctypes.c_void_p()
        if library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(self._timer)) != 0:
            raise OSError(ctypes.get_errno(), "timer_create failed")
        self._set_time = library.timer_settime

    def feed(self, timeout_ms: int) -> None:
        """Let the process live for ``timeout_ms`` from now on."""
        seconds, milliseconds = divmod(max(1, timeout_ms), 1000)
        spec = _TimerSpec(0, 0, seconds, milliseconds * 1_000_000)
        if self._set_time(self._timer, 0, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timer_settime failed")


class ThreadWatchdog:
    """A thread, which cannot end a process that is stopped or whose interpreter lock is never released."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        end: Callable[[], object] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        self._now_s = now_s
        self._end = end
        self._until_s = float("inf")
        self._fed = threading.Condition()
        threading.Thread(target=self._watch, daemon=True).start()

    def feed(self, timeout_ms: int) -> None:
        """Let the process live for ``timeout_ms`` from now on."""
        with self._fed:
            self._until_s = self._now_s() + timeout_ms / 1000
            self._fed.notify()

    def _watch(self) -> None:
        with self._fed:
            while (left_s := self._until_s - self._now_s()) > 0:
                self._fed.wait(min(left_s, threading.TIMEOUT_MAX))
        self._end()


def watchdog() -> KernelWatchdog | ThreadWatchdog:
    """Return the best watchdog that this system offers."""
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:
        try:
            return KernelWatchdog()
        except (OSError, AttributeError):
            pass  # a sandbox without timers
    return ThreadWatchdog()
