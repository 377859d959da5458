"""Which processes there are: those of this program, and those that have a mark in their environment."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TypeVar

import psutil

T = TypeVar("T")

#: Is in the environment of all that a run of the tests on Spark starts, also of who has lost its parent.
MARK = "PYFLINKSTATE_TESTS"


def command_of(process: psutil.Process) -> str:
    """Return the command line; nothing of a process that has ended."""
    return " ".join(_asked(process.cmdline) or [])


def is_running(process: psutil.Process) -> bool:
    """Return whether the process has not ended; one that nobody has waited for yet has ended."""
    return process.is_running() and _asked(process.status) not in (None, psutil.STATUS_ZOMBIE)


def family() -> list[tuple[int, str]]:
    """Return ``(pid, command)`` of this process and all that it started, directly or not."""
    this = psutil.Process()
    everyone = [this, *this.children(recursive=True)]
    return [(process.pid, command_of(process)) for process in everyone if is_running(process)]


def slot_pids() -> set[int]:
    """Return the state slots that this run of the tests has running, also those whose worker has ended."""
    return {process.pid for process in _slots()}


def slots_left(patience_s: float = 30) -> list[str]:
    """Return the commands of the slots that have not ended in time; those that are just ending may finish."""
    deadline = time.monotonic() + patience_s
    for pid in slot_pids():
        with suppress(ProcessLookupError):
            handle = os.pidfd_open(pid)
            select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            os.close(handle)
    return [command_of(process) for process in _slots()]


def _slots() -> list[psutil.Process]:
    mine = marked(MARK, os.environ[MARK])
    return [process for process in mine if "pyflinkstate.runtime.slots.slot" in command_of(process)]


def marked(name: str, value: str) -> list[psutil.Process]:
    """Return all processes but this one that have a variable in their environment, whoever started them."""
    this = psutil.Process()
    return [process for process in _with(name, value) if process != this and is_running(process)]


def _with(name: str, value: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if (_asked(process.environ) or {}).get(name) == value:
            yield process


def _asked(question: Callable[[], T]) -> T | None:
    try:
        return question()
    except psutil.Error:
        return None  # it has ended meanwhile, or is another user's
