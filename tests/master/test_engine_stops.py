"""The engine stops at any line between "epoch asked for" and "attempt ended", with an epoch ahead.

What it runs then never ends and nobody is told of it, as Spark does with what is submitted while its context
is being stopped. The same on Spark itself is in ``tests/spark/test_kill_rounds.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from types import CodeType
from typing import Any

import pytest
from injections import OF_THE_JOB, Injection, lines_of
from slot_functions import Count
from support_job import EVERY_EPOCH, JobRun, LocalRunner, numbers
from support_runtime import PATIENCE_S, PICKLED
from tiers import cases

from pyflinkstate.errors import PyFlinkStateError, SparkUnavailableError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest
from pyflinkstate.runtime.master import loop as loop_module
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.program.job_client import JobClient
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)

LINES = lines_of(OF_THE_JOB)
#: One of so many lines is in the quick tier.
EVERY = 12


class Stops(LocalRunner):
    """An engine that runs nothing any more, and tells nobody, once it has stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.has_stopped = threading.Event()

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        super().start(request, lambda ended: self._tell(lambda: done(ended)))

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        super().shuffle_ahead(request, lambda: self._tell(done))

    def _tell(self, done: Callable[[], None]) -> None:
        if not self.has_stopped.is_set():
            done()

    def lost(self) -> PyFlinkStateError | None:
        return self.gone()

    def gone(self) -> PyFlinkStateError | None:
        return SparkUnavailableError("the Spark application ended") if self.has_stopped.is_set() else None


def named(line: tuple[CodeType, int]) -> str:
    return f"{line[0].co_name}:{line[1]}"


@pytest.mark.parametrize(("code", "line"), cases(LINES, quick=LINES[::EVERY]), ids=map(named, LINES))
def test_the_job_ends_wherever_its_engine_stops(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch, code: CodeType, line: int
) -> None:
    monkeypatch.setattr(loop_module, "TICK_S", 0.01)
    before = set(threading.enumerate())
    runner = Stops()
    end = StatefulNode(numbers(), lambda number: 0, PICKLED, Count(), "count")
    sink, restart = DriverSink(lambda *_: None), FixedDelayRestart(5, 0)
    run = JobRun(end, sink, storage, runner=runner, restart=restart, checkpoints=EVERY_EPOCH)
    injection = Injection(code, line, passages=1, act=runner.has_stopped.set)
    injection.install()
    try:
        client = JobClient(run.job(), None)
    finally:
        injection.uninstall()
    error = client.get_job_execution_result().exception(PATIENCE_S)
    is_late = not injection.has_happened or error is None  # after the last epoch, or not passed twice
    assert is_late or isinstance(error, SparkUnavailableError), error
    for thread in set(threading.enumerate()) - before:
        with suppress(RuntimeError):  # it has yet to begin, and reaps a slot that has ended
            thread.join(PATIENCE_S)
        assert not thread.is_alive(), thread


def test_most_lines_are_passed_while_the_job_runs(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the test above would show nothing."""
    passed: set[Any] = set()
    end = StatefulNode(numbers(), lambda number: 0, PICKLED, Count(), "count")
    run = JobRun(end, DriverSink(lambda *_: None), storage, checkpoints=EVERY_EPOCH)

    def watch(frame: Any, event: str, _: Any) -> Any:
        if event == "line":
            passed.add((frame.f_code, frame.f_lineno))
        return watch

    threading.settrace(watch)
    try:
        client = JobClient(run.job(), None)
    finally:
        threading.settrace(None)  # type: ignore[arg-type]
    client.get_job_execution_result().result(PATIENCE_S)
    assert len(passed.intersection(LINES)) > len(LINES) // 2
