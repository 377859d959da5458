"""Looks at the processes of the machine, as a user would with ``ps``."""

from __future__ import annotations

import os
import subprocess


def slot_pids() -> set[int]:
    """The state slots that this process's Spark application has running."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], check=True, capture_output=True, text=True)
    rows = [line.split(None, 2) for line in listing.stdout.splitlines()]
    family = {os.getpid()}
    while more := {int(pid) for pid, parent, *_ in rows if int(parent) in family} - family:
        family |= more
    return {
        int(row[0])
        for row in rows
        if int(row[0]) in family and len(row) == 3 and "pyflinkstate.runtime.slot" in row[2]
    }
