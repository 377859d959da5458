"""Ctrl-C and SIGTERM while jobs run: the jobs end, and then the program ends as it does by default.

SIGTERM stops each job as its settings say, by default at its next checkpoint. What has not stopped in time is
cancelled. Ctrl-C cancels. A second signal takes effect at once.

Handlers are set in the main thread only, as Python demands, and only where a signal would do what it does by
default: a program's own handler stays, and decides itself. Spark's handler raises ``KeyboardInterrupt`` in
the middle of whatever the driver does, so its call is put off until the jobs have ended. A process that the
program has forked ends as if there were no handler.

In an interactive session, such as a notebook, SIGTERM cancels, and Ctrl-C cancels only the job for which the
session waits. A script shows no traceback of a ``KeyboardInterrupt`` that follows a Ctrl-C which has
cancelled jobs: the log says how they ended.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from types import FrameType, TracebackType

from pyflinkstate.runtime.master import Job

#: How long jobs that were cancelled may take to end before the process ends nevertheless.
GRACE_S = 5.0
#: How long to wait for the output of the program to be written: if nobody reads it, it never is.
_FLUSH_S = 1
#: Where Spark's own handler of SIGINT is defined.
_OF_SPARK = "pyspark.core.context"

_log = logging.getLogger("pyflinkstate.job")

_Handler = Callable[[int, FrameType | None], object]

#: The jobs that run, and the process that runs them.
_running: set[Job] = set()
_pid = 0
_none_runs = threading.Event()
#: The job that the main thread runs, if it runs one.
_awaited: Job | None = None
#: The handler of SIGINT in the place of which there is ours, if there is.
_before: _Handler | None = None
#: Whether Ctrl-C has come while the main thread ran a job.
_is_interrupted = False
#: Ends the process; None until a signal comes.
_ender: threading.Thread | None = None


def watch(job: Job) -> None:
    """Let signals end a job that begins."""
    global _pid
    _pid = os.getpid()
    _running.add(job)
    _none_runs.clear()
    if _ender is not None and _ender.is_alive():
        job.cancel(by=_ender.name)
    elif _is_main():
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _terminate)
        if not _is_interactive():
            _take_interrupts()


def forget(job: Job) -> None:
    """Note that a job has ended. Only the main thread can take handlers back, if it was the last one."""
    _running.discard(job)
    if _running:
        return
    _none_runs.set()
    if _is_main():
        _give_interrupts_back()
        if signal.getsignal(signal.SIGTERM) is _terminate:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def await_end() -> None:
    """Wait for the end of the program, if a signal has asked for it: its jobs have ended."""
    while _ender is not None and _ender.is_alive() and _is_main():
        _ender.join(GRACE_S)


class EndedBySignals:
    """While a job is run in the main thread, Ctrl-C and SIGTERM end it.

    When the job has ended, the previous handler is called, or the process ends.
    """

    def __init__(self, job: Job) -> None:
        self._job = job

    def __enter__(self) -> None:
        global _awaited
        watch(self._job)
        if _is_main():
            _awaited = self._job
            _take_interrupts()

    def __exit__(self, *raised: type[BaseException] | BaseException | TracebackType | None) -> None:
        global _awaited
        if _is_main():
            _awaited = None
        forget(self._job)
        try:
            await_end()
            _raise_interrupt()
        except BaseException as error:  # noqa: BLE001 - what a handler raises goes on, without its frames
            raise error.with_traceback(None) from None


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def _is_interactive() -> bool:
    """Return whether somebody types commands: Python's prompt, IPython or a notebook."""
    return hasattr(sys, "ps1") or bool(sys.flags.interactive)


# --- SIGTERM -----------------------------------------------------------------------------------------------


def _terminate(number: int, _: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    if os.getpid() != _pid or not _running:
        signal.raise_signal(number)
    jobs, by = tuple(_running), signal.Signals(number).name
    for job in jobs:
        job.cancel(by) if _is_interactive() else job.stop(by)
    _end_later(_end_process, number, jobs)


def _end_process(number: int, timeout_s: float) -> None:
    """Wait for the jobs, and end as if the signal had not been caught."""
    if not _none_runs.wait(timeout_s):
        _log.warning("the program ends, as its jobs have not stopped within %g s", timeout_s)
        for job in tuple(_running):
            job.cancel(by=signal.Signals(number).name)
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


def _end_later(end: Callable[[int, float], None], number: int, jobs: Collection[Job]) -> None:
    global _ender
    timeout_s = max(job.stop_timeout_ms for job in jobs) / 1000
    _ender = threading.Thread(target=end, args=(number, timeout_s), name=signal.Signals(number).name)
    _ender.start()


# --- Ctrl-C ------------------------------------------------------------------------------------------------


def _take_interrupts() -> None:
    """Handle Ctrl-C, if it would do what it does by default."""
    global _before
    before = signal.getsignal(signal.SIGINT)
    is_default = before is signal.default_int_handler or getattr(before, "__module__", "") == _OF_SPARK
    if is_default and callable(before):
        _before = before
        signal.signal(signal.SIGINT, _interrupt)


def _give_interrupts_back() -> None:
    if _before is not None and signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, _before)


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _is_interrupted
    _give_interrupts_back()
    jobs = {*filter(None, [_awaited])} if _is_interactive() else _running.copy()
    if os.getpid() != _pid or not jobs:
        _call_before(frame)
    for job in jobs:
        job.cancel(by=signal.Signals(number).name)
    _is_interrupted = _awaited is not None
    if not _is_interrupted:
        _end_later(_interrupt_main, number, jobs)


def _call_before(frame: FrameType | None = None) -> None:
    """Do what Ctrl-C did before: that raises ``KeyboardInterrupt``."""
    assert _before is not None
    _before(signal.SIGINT, frame)


def _interrupt_main(number: int, timeout_s: float) -> None:
    """Interrupt the main thread when the jobs in the background have ended."""
    _none_runs.wait(timeout_s)
    _hide_interrupts()
    signal.pthread_kill(threading.main_thread().ident or 0, number)


def _raise_interrupt() -> None:
    """Interrupt the program, if that was asked for while the main thread ran a job, which has ended."""
    global _is_interrupted
    if _is_interrupted and _is_main():
        _is_interrupted = False
        if not _is_interactive():
            _hide_interrupts()
            _none_runs.wait(GRACE_S)
        _call_before()


def _hide_interrupts() -> None:
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _without_interrupts


def _without_interrupts(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
