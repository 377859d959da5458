"""Runs the example with a sink of its own, and kills its driver with ``kill -9`` at one step of the sink.

    python killed_sink.py STEP EPOCH ARGUMENTS...

STEP is ``before``, ``in`` or ``after`` and the name of a method; ``in write`` is just before its transaction
is committed. EPOCH is the first epoch to which this happens. With ``never`` the program runs to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import example_programs  # noqa: F401 - puts the examples on the path
import sqlite_sink


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killing(name: str, step: str, wanted: int, method: Callable[..., None]) -> Callable[..., None]:
    """Return a method of the sink that does not survive a step."""
    when, _, where = step.partition(" ")

    def run(sink: Any, epoch: int, *rest: Any) -> None:
        is_here = where == name and epoch >= wanted
        if is_here and when == "before":
            kill()
        if is_here and when == "in":
            sink.database.set_trace_callback(lambda statement: kill() if statement == "COMMIT" else None)
        method(sink, epoch, *rest)
        if is_here and when == "after":
            kill()

    return run


def main() -> None:
    _, step, epoch, *arguments = sys.argv
    for name in ("prepare", "write", "commit", "rewind"):
        method = getattr(sqlite_sink.SqliteSink, name)
        setattr(sqlite_sink.SqliteSink, name, killing(name, step, int(epoch), method))
    sys.argv = [sqlite_sink.__file__, *arguments]
    sqlite_sink.main()


if __name__ == "__main__":
    main()
