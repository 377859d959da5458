"""Ctrl-C and SIGTERM cancel the jobs of a program, and then end the program as they do by default.

Handlers are set in the main thread only, as Python demands, and only where a signal would do what it does by
default: a program's own handler stays, and decides itself. Of Spark's handler, which raises
``KeyboardInterrupt`` in the middle of whatever the driver does, the call is put off until the job has ended.
A second signal is not waited for. A process that the program has forked ends as if there were no handler.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType

from pyflinkstate.runtime.master import Job

#: How long jobs may take to end before a process that was sent SIGTERM ends nevertheless.
GRACE_S = 20
#: How long to wait for the output of the program to be written: if nobody reads it, it never is.
_FLUSH_S = 1
#: Where Spark's own handler of SIGINT is defined.
_OF_SPARK = "pyspark.core.context"

#: The jobs that run, and the process that runs them.
_running: set[Job] = set()
_pid = 0
_none_runs = threading.Event()
#: Ends the process; None until SIGTERM comes.
_ender: threading.Thread | None = None


def watch(job: Job) -> None:
    """Let SIGTERM cancel a job that begins."""
    global _pid
    _pid = os.getpid()
    _running.add(job)
    _none_runs.clear()
    if _is_main() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _terminate)


def forget(job: Job) -> None:
    """Note that a job has ended. Only the main thread can take the handler back, if it was the last one."""
    _running.discard(job)
    if _running:
        return
    _none_runs.set()
    if _is_main() and signal.getsignal(signal.SIGTERM) is _terminate:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _terminate(number: int, _: FrameType | None) -> None:
    global _ender
    signal.signal(number, signal.SIG_DFL)
    if os.getpid() != _pid or not _running:
        signal.raise_signal(number)
    for job in tuple(_running):
        job.cancel(by=signal.Signals(number).name)
    _ender = threading.Thread(target=_end_process, args=(number,), name="SIGTERM")
    _ender.start()


def _end_process(number: int) -> None:
    """Wait for the jobs, and end as if the signal had not been caught."""
    _none_runs.wait(GRACE_S)
    flushing = threading.Thread(target=_flush, daemon=True)
    flushing.start()
    flushing.join(_FLUSH_S)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # the first process of a container ignores the signals that it does not handle


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()


class EndedBySignals:
    """While a job is run in the main thread, Ctrl-C and SIGTERM cancel it.

    When it has ended, the handler of before is called, or the process ends.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pid = os.getpid()
        self._before: Callable[[int, FrameType | None], object] | None = None
        self._came = False

    def __enter__(self) -> None:
        watch(self._job)
        before = signal.getsignal(signal.SIGINT)
        is_default = before is signal.default_int_handler or getattr(before, "__module__", "") == _OF_SPARK
        if _is_main() and is_default and callable(before):
            self._before = before
            signal.signal(signal.SIGINT, self._interrupt)

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        forget(self._job)
        self._give_back()
        if _ender is not None and _is_main():
            _ender.join(GRACE_S)
        if self._came and self._before is not None:
            try:
                self._before(signal.SIGINT, None)
            except BaseException as error:  # noqa: BLE001 - what it raises goes on, without its frames
                raise error.with_traceback(None) from None

    def _give_back(self) -> None:
        if self._before is not None and signal.getsignal(signal.SIGINT) == self._interrupt:
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._came or os.getpid() != self._pid:
            assert self._before is not None
            self._give_back()
            self._before(number, frame)
        self._came = True
        self._job.cancel(by="SIGINT")
