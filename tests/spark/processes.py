"""Looks at the processes of the machine, as a user would with ``ps``."""

from __future__ import annotations

import os
import subprocess


def family() -> list[tuple[int, str]]:
    """Return ``(pid, command)`` of this process and all that it started, directly or not."""
    listing = subprocess.run(
        ["ps", "-ww", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True
    )
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    pids = {os.getpid()}
    while more := {int(pid) for pid, parent, *_ in rows if int(parent) in pids} - pids:
        pids |= more
    return [(int(row[0]), row[2]) for row in rows if int(row[0]) in pids and len(row) == 3]


def slot_pids() -> set[int]:
    """Return the state slots that this process's Spark application has running."""
    return {pid for pid, args in family() if "pyflinkstate.runtime.slots.slot" in args}
