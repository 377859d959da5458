"""Stops the context of a running job inside a JVM that goes on, and says how the job ended.

    python stop_program.py DIRECTORY CASE [CASE ...]

A case is the number of a line in ``injections.UP_TO_THE_END``, at which the context is stopped, or ``epoch``
or ``ahead``: then Spark drops what the job submits for an epoch, or ahead of one, and the context is stopped
afterwards. That happens by chance if both come in one moment. Each case is a line of JSON.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from injections import UP_TO_THE_END, Injection, lines_of
from kill_program import build, parsed, session_of
from processes import QUICK, slots_left

from pyflinkstate import StreamExecutionEnvironment
from pyflinkstate.runtime.spark.epoch_rdds import SparkGraph
from pyflinkstate.runtime.spark.epoch_runner import Ahead

LINES = lines_of(UP_TO_THE_END)
#: A job that has not ended after so long hangs.
PATIENCE_S = 300
#: The method after which Spark is to drop what it submits, and how often it is passed before.
DROPPED: dict[str, tuple[type, str]] = {"ahead": (Ahead, "_submitted"), "epoch": (SparkGraph, "run")}


class Stop:
    """Stops a context inside its JVM, once."""

    def __init__(self, context: Any) -> None:
        self._java = context._jsc.sc()
        self.at_s: float | None = None

    def __call__(self) -> None:
        self.at_s = time.monotonic()
        self._java.stop()

    def drop(self) -> None:
        """Have Spark take what is submitted and do nothing with it; a moment later the context is stopped."""
        self._java.dagScheduler().stop(0)
        threading.Timer(1, self).start()


def dropping(stop: Stop, kind: str) -> Callable[[], None]:
    """Drop what is submitted by the second call of a method; return what puts the method back."""
    owner, name = DROPPED[kind]
    method, calls = getattr(owner, name), [0]

    def call(*args: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            stop.drop()
        return method(*args)

    setattr(owner, name, call)
    return lambda: setattr(owner, name, method)


def watching(stop: Stop, case: str) -> Callable[[], None]:
    """Stop the context in a case; return what watches no longer."""
    if case in DROPPED:
        return dropping(stop, case)
    injection = Injection(*LINES[int(case)], passages=1, act=stop)
    injection.install()
    return injection.uninstall


def run(directory: Path, case: str) -> dict[str, Any]:
    """Run a job in a case, and return how it ended."""
    session = session_of("local[2]", QUICK)
    before = set(threading.enumerate())
    stop = Stop(session.sparkContext)
    environment = StreamExecutionEnvironment(session)
    args = parsed([str(directory / case), "--heartbeat-timeout-ms", "5000"])
    build(environment, args)
    forget = watching(stop, case)
    faulthandler.dump_traceback_later(PATIENCE_S - 1)
    try:
        client = environment.execute_async(f"stopped at {case}")
        error = client.get_job_execution_result().exception(PATIENCE_S)
    finally:
        forget()
        faulthandler.cancel_dump_traceback_later()
    ended_s = time.monotonic()
    left = [thread for thread in set(threading.enumerate()) - before if not has_ended(thread)]
    session.stop()
    return {
        "case": case if case in DROPPED else "{.co_name}:{}".format(*LINES[int(case)]),
        "error": None if error is None else type(error).__name__,
        "seconds": None if stop.at_s is None else round(ended_s - stop.at_s, 1),
        "left": [thread.name for thread in left] + [str(slot) for slot in slots_left()],
    }


def has_ended(thread: threading.Thread) -> bool:
    """Return whether a thread ends within seconds."""
    thread.join(10)
    return not thread.is_alive()


if __name__ == "__main__":
    folder, *wanted = sys.argv[1:]
    for one in wanted:
        print(json.dumps(run(Path(folder), one)), flush=True)
