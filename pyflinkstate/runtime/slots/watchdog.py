"""Ends this process when it has not been fed for a while, no matter what its threads are doing.

A thread cannot do that: a function that never releases the interpreter lock (a regular expression that
backtracks for ever) blocks every other thread, and a stopped process runs none. So on Linux the kernel does
it, with a timer of this process (``timer_create``) that is reset by each feeding and whose signal is
``SIGKILL``. It needs no interpreter, fires even in a stopped process, takes no signal away from user code
(``setitimer`` would take ``SIGALRM``), and is not inherited by processes that user code forks.

On other systems a thread does what a thread can.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol


class Watchdog(Protocol):
    """Ends the process if it is not fed again in time."""

    def feed(self, timeout_ms: int) -> None:
        """Let the process live for ``timeout_ms`` from now on."""


class _Value(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("pointer", ctypes.c_void_p))


class _SignalEvent(ctypes.Structure):
    _fields_ = (
        ("value", _Value),
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
        self._set_time, self._timer = _make_timer()

    def feed(self, timeout_ms: int) -> None:
        """See :class:`Watchdog`."""
        seconds, milliseconds = divmod(max(1, timeout_ms), 1000)
        spec = _TimerSpec(0, 0, seconds, milliseconds * 1_000_000)
        if self._set_time(self._timer, 0, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timer_settime failed")


def _make_timer() -> tuple[Callable[..., int], Any]:
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "timer_create"):  # glibc before 2.34
        library = ctypes.CDLL("librt.so.1", use_errno=True)
    event = _SignalEvent(signal=signal.SIGKILL, notify=_SEND_SIGNAL)
    timer = ctypes.c_void_p()
    if library.timer_create(time.CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(timer)) != 0:
        raise OSError(ctypes.get_errno(), "timer_create failed")
    return library.timer_settime, timer


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
        """See :class:`Watchdog`."""
        with self._fed:
            self._until_s = self._now_s() + timeout_ms / 1000
            self._fed.notify()

    def _watch(self) -> None:
        with self._fed:
            while (left_s := self._until_s - self._now_s()) > 0:
                self._fed.wait(min(left_s, threading.TIMEOUT_MAX))
        self._end()


def watchdog() -> Watchdog:
    """Return the best watchdog that this system offers."""
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:
        try:
            return KernelWatchdog()
        except (OSError, AttributeError):
            pass  # a sandbox without timers
    return ThreadWatchdog()
