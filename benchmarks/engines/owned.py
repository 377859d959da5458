"""Programs that end when whoever started them ends, also when that one is killed.

Only the standard library is imported, because this module is read by each engine's own Python.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

#: ``PR_SET_PDEATHSIG`` of Linux: a signal for this process when its parent ends.
_SIGNAL_OF_PARENTS_DEATH = 1


def run(command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program as ``subprocess.run`` does with text; on Linux the kernel kills it when this one ends."""
    owner = os.getpid()
    return subprocess.run(command, text=True, preexec_fn=lambda: end_with(owner), **options)


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[str]:
    """Start a program in the same way, and do not wait for it."""
    owner = os.getpid()
    return subprocess.Popen(command, text=True, preexec_fn=lambda: end_with(owner), **options)


def end_with(owner: int) -> None:
    """Let the kernel kill this process when its parent, ``owner``, ends; only on Linux."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != owner:
        os._exit(1)
