"""Failures at each line of the code between "epoch asked for" and "epoch running"."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from pyflinkstate.runtime.job.job import Job
from pyflinkstate.runtime.spark import spark as on_spark


class GatewayGone(OSError):
    """What a broken gateway raises."""


def codes_within(code: CodeType) -> list[CodeType]:
    """Return a function's code, and that of the functions that it makes."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [code, *(found for each in inner for found in codes_within(each))]


#: What runs from the request for an epoch to its word, in the order in which it is called.
ON_THE_WAY: list[Callable[..., Any]] = [
    Job._run_epoch,
    Job._start,
    on_spark._local_properties,
    on_spark.SparkRunner.start,
    on_spark.SparkRunner._begin,
    on_spark.SparkRunner._run_and_tell,
    on_spark.SparkRunner._run,
    on_spark.SparkRunner._results,
]
LINES = [
    (code, line)
    for function in ON_THE_WAY
    for code in codes_within(function.__code__)
    for line in sorted({line for *_, line in code.co_lines() if line and line > code.co_firstlineno})
]


class Injection:
    """Raises once, where a line of the code begins, on whatever thread that is.

    Args:
        code: of one of the functions.
        line: of the file.
        passages: so often the line is passed before.
        tell: is called when it raises.
    """

    def __init__(
        self, code: CodeType, line: int, passages: int = 0, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        self._code = code
        self._line = line
        self._passages = passages
        self._tell = tell
        self.has_happened = False

    def install(self) -> None:
        """Watch this thread, and all that begin from now on."""
        threading.settrace(self)
        sys.settrace(self)

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code is not self._code:
            return None
        if event == "line" and frame.f_lineno == self._line and not self.has_happened:
            self._passages -= 1
            self.has_happened = self._passages < 0
            if self.has_happened:
                self._tell(f"injected {self}")
                raise GatewayGone(f"the gateway is gone at {self}")
        return self

    def __str__(self) -> str:
        return f"{self._code.co_name}:{self._line}"
