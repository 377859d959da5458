"""Failures at each line of the code between "epoch asked for" and "epoch running", or "attempt ended"."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from pyflinkstate.runtime.master.actions import Actions, EngineRequests
from pyflinkstate.runtime.master.deployment import JobSlots
from pyflinkstate.runtime.master.loop import Inbox, Job
from pyflinkstate.runtime.master.machine import Attempt, JobMachine
from pyflinkstate.runtime.spark import epoch_rdds, epoch_runner
from pyflinkstate.runtime.spark.epoch_runner import Ahead


class GatewayGone(OSError):
    """What a broken gateway raises."""


def codes_within(code: CodeType) -> list[CodeType]:
    """Return a function's code, and that of the functions that it makes."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(found for each in inner for found in codes_within(each))]


#: What runs from the request for an epoch to its word, in the order in which it is called.
ON_THE_WAY: list[Callable[..., Any]] = [
    EngineRequests.run_epoch,
    EngineRequests._start,
    epoch_runner._local_properties,
    epoch_runner.SparkRunner.start,
    epoch_runner.SparkRunner._begin,
    epoch_runner.SparkRunner._run_and_tell,
    epoch_runner.SparkRunner._run,
    epoch_runner.SparkRunner._results,
]


def lines_of(functions: list[Callable[..., Any]]) -> list[tuple[CodeType, int]]:
    """Return the lines of functions, each with the code that it is in."""
    return [
        (code, line)
        for function in functions
        for code in codes_within(function.__code__)
        for line in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno})
    ]


LINES = lines_of(ON_THE_WAY)
#: What the job's own thread runs from the request for an epoch to the end of the attempt.
OF_THE_JOB: list[Callable[..., Any]] = [
    Job._follow,
    Inbox.next_event,
    Inbox._turn,
    Inbox._receive,
    Inbox._sort,
    Inbox._look,
    Inbox._gone,
    Attempt._next_step,
    Attempt._set_barrier,
    Attempt._run,
    Attempt._finish,
    JobMachine._fail,
    JobMachine._stop,
    Actions.ask_source,
    Actions.set_barrier,
    EngineRequests.run_epoch,
    EngineRequests._request,
    EngineRequests._start,
    EngineRequests.shuffle_ahead,
    Actions.prepare,
    Actions.commit,
    EngineRequests.cancel,
    JobSlots.cut_off,
    Actions.end_attempt,
    Actions._reason_of,
]
#: The same, and what the engine's threads run.
UP_TO_THE_END = [
    *OF_THE_JOB,
    *ON_THE_WAY[2:],
    epoch_runner.SparkRunner.shuffle_ahead,
    epoch_runner.SparkRunner._enter,
    epoch_runner.SparkRunner._graph,
    epoch_rdds.SparkGraph.run,
    Ahead.run,
    Ahead._submitted,
    Ahead._wait,
    Ahead._ended,
    Ahead.graph_for,
    epoch_runner.SparkRunner.cancel,
]


class Injection:
    """Acts once, where a line of the code begins, on whatever thread that is.

    Args:
        code: of one of the functions.
        line: of the file.
        passages: so often the line is passed before.
        tell: is called when it acts.
        act: what it does; without, it raises.
    """

    def __init__(
        self,
        code: CodeType,
        line: int,
        passages: int = 0,
        tell: Callable[[str], None] = lambda _: None,
        act: Callable[[], None] | None = None,
    ) -> None:
        self._code = code
        self._line = line
        self._passages = passages
        self._tell = tell
        self._act = self._raise if act is None else act
        self.has_happened = False

    def install(self) -> None:
        """Watch this thread, and all that begin from now on."""
        threading.settrace(self)
        sys.settrace(self)

    def uninstall(self) -> None:
        """Watch nothing any more."""
        threading.settrace(None)  # type: ignore[arg-type]
        sys.settrace(None)

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not self._code:
            return None
        if event == "line" and frame.f_lineno == self._line and not self.has_happened:
            self._passages -= 1
            self.has_happened = self._passages < 0
            if self.has_happened:
                self._tell(f"injected {self}")
                self._act()
        return self

    def _raise(self) -> None:
        raise GatewayGone(f"the gateway is gone at {self}")

    def __str__(self) -> str:
        return f"{self._code.co_name}:{self._line}"
