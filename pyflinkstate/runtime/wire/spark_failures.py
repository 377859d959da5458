"""The messages of Spark's errors, in a few lines.

The text of an error that went through the JVM has the same thing up to three times: what a Python worker
raised, with the worker's frames around the user's; the failure of the stage, with the JVM's frames; and the
same once more as the cause of that.
"""

from __future__ import annotations

import re
from itertools import takewhile

from pyflinkstate.runtime.wire.failures import is_inner

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+')
#: What py4j and the scheduler write before the failure itself.
_PREAMBLE = re.compile(
    r"^An error occurred while calling [^\n]*\n: |^(?:[\w.]+(?:Exception|Error): )?Job aborted due to stage "
    r"failure: .*?most recent failure: Lost task [^:]*: ",
    re.DOTALL,
)
#: What follows is there once more, or is a plan.
_REST = ("Driver stacktrace:", "=== Streaming Query ===")
#: So many lines of a user's frames are shown, and of an error that has none.
_MAX_LINES = 6


def told_by_spark(error: BaseException) -> str:
    """Return the failure: the error of a Python worker with the user's frames, or Spark's first lines."""
    text = str(error)
    head = text.partition("\n\tat ")[0]
    if _TRACEBACK in head:
        return _of_worker(head.rpartition(_TRACEBACK)[2])  # the last of those that led to each other
    while (shorter := _PREAMBLE.sub("", text, count=1)) != text:
        text = shorter
    return "\n".join(_without_jvm(text)[:_MAX_LINES])


def spark_cause(error: BaseException) -> BaseException:
    """Return what to give as the cause: what Spark says once, without the JVM's frames.

    All of it, as it came, is the context of that. An error that did not go through the JVM is its own cause.
    """
    if "\n\tat " not in str(error):
        return error
    cause = RuntimeError("\n".join(_without_jvm(str(error))))
    cause.__context__, cause.__suppress_context__ = error, True
    return cause


def _without_jvm(text: str) -> list[str]:
    lines = takewhile(lambda line: line.strip() not in _REST, text.splitlines())
    return [line.rstrip() for line in lines if line.strip() and not _is_of_jvm(line)]


def _is_of_jvm(line: str) -> bool:
    return line.startswith(("\tat ", "\t... ", "JVM stacktrace:"))


def _of_worker(traceback: str) -> str:
    """Return the error of a traceback, and the user's frames in it."""
    lines = _without_jvm(traceback)
    frames = list(takewhile(lambda line: line.startswith(" "), lines))
    raised = list(takewhile(lambda line: not line.startswith(" "), lines[len(frames) :]))
    return "\n".join([*raised[:_MAX_LINES], *_of_user(frames)[-_MAX_LINES:]])


def _of_user(frames: list[str]) -> list[str]:
    kept: list[str] = []
    is_kept = False
    for line in frames:
        frame = _FRAME.match(line)
        if frame is not None:
            is_kept = not is_inner(frame["file"])
        if is_kept:
            kept.append(line)
    return kept
