"""Turns what a user's code raises into errors that travel: text only, so they always can be pickled.

Errors of Spark are shortened. The text of one that went through the JVM has the same thing up to three times:
what a Python worker raised, with the worker's frames around the user's; the failure of the stage, with the
JVM's frames; and the same once more as the cause of that.
"""

from __future__ import annotations

import re
import resource
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path

import attrs

from pyflinkstate.api import safe_repr
from pyflinkstate.errors import PyFlinkStateError, UserFunctionError

#: Compiled code has paths from the package on.
_OWN_CODE = (str(Path(__file__).parents[2]) + "/", "pyflinkstate/")
_PYSPARK = re.compile(
    r"/(site-packages|dist-packages|python)/(pyspark|py4j)/|/(pyspark|py4j-[\w.]+-src)\.zip/"
)
#: What ends a task, and is no fault of a user's function: an interrupt, which PySpark leaves to Python in its
#: workers, and the end of a generator.
TASK_ENDS = (KeyboardInterrupt, GeneratorExit)
#: Number of frames that are shown of each error: those next to where it was raised.
_MAX_FRAMES = 3
_TRACEBACK = "Traceback (most recent call last):"
_SPARK_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line \d+')
#: What py4j and the scheduler write before the failure itself.
_PREAMBLE = re.compile(
    r"^An error occurred while calling [^\n]*\n: |^(?:[\w.]+(?:Exception|Error): )?Job aborted due to stage "
    r"failure: .*?most recent failure: Lost task [^:]*: ",
    re.DOTALL,
)
#: What follows these lines is a repetition, or a plan.
_OF_JVM = ("\tat ", "\t... ", "JVM stacktrace:")
_REST = ("Driver stacktrace:", "=== Streaming Query ===")
#: Number of lines that are shown of a user's frames, and of an error that has none.
_MAX_LINES = 6


@attrs.frozen
class NoRecord:
    """Replaces the record in an error if the operator was not processing one; says what it did."""

    doing: str

    def __repr__(self) -> str:
        return f"none: {self.doing}"


def user_failure(
    error: BaseException, operator: str, record: object, key: object = None
) -> PyFlinkStateError:
    """Return the error to report for ``error``, raised in ``operator`` while it processed ``record``.

    An error of the project's own keeps its type and gains the place; any other becomes a
    ``UserFunctionError``. Both show where in the user's own code it was raised.
    """
    context = {"operator": operator, "key": safe_repr(key), "record": safe_repr(record)}
    place = f"operator {operator!r}, " + (f"key {context['key']}, " if key is not None else "")
    place += record.doing if isinstance(record, NoRecord) else f"record {context['record']}"
    told = traceback.TracebackException.from_exception(error)
    frames = "".join(_frames_of(told))
    if isinstance(error, PyFlinkStateError) and type(error).__module__ == PyFlinkStateError.__module__:
        message = f"{error.message}\n  in {place}\n{frames}".rstrip()
        return type(error)(message, **{**error.context, **context})
    kind = type(error).__name__
    message = f"{kind}: {_text_of(error)}\n  in {place}\n{frames}{''.join(_causes(told))}".rstrip()
    return UserFunctionError(message, cause_type=kind, **context)


@contextmanager
def failures_of(operator: str, doing: str, passed_on: tuple[type[BaseException], ...] = ()) -> Iterator[None]:
    """Raise :func:`user_failure` for an error of the block, in which the operator has no record.

    Args:
        operator: the name of the operator.
        doing: what it does in the block, such as ``"in open()"``.
        passed_on: the errors that are raised as they are.
    """
    try:
        yield
    except passed_on:
        raise
    except BaseException as error:  # also sys.exit()
        raise user_failure(error, operator, NoRecord(doing)) from error


@contextmanager
def errors_as(kind: type[PyFlinkStateError], told: str, **context: object) -> Iterator[None]:
    """Raise an error of ``kind`` for an error of the block that is none of the family.

    Args:
        kind: the type of the error.
        told: the beginning of its message; what the user's code, or Spark, has told follows.
        **context: what the message is about.
    """
    try:
        yield
    except PyFlinkStateError:
        raise
    except Exception as error:  # noqa: BLE001 - of the user's code, or Spark's
        why = f"{type(error).__name__}: {told_by_spark(error)}"
        raise kind(f"{told} {why}", **context) from spark_cause(error)


def _text_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return "<its str() raised>"
    return (text or "out of memory") + _limit_of_space() if isinstance(error, MemoryError) else text


def _limit_of_space() -> str:
    """Return what limits the address space of this process; allocators reserve much more than they use."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return ""
    return (
        f"; its process may have {limit >> 20:,} MiB of address space (limited by "
        f"spark.executor.pyspark.memory, or by ulimit -v)"
    )


def _frames_of(told: traceback.TracebackException) -> list[str]:
    """Return the lines of the user's frames, without those of this package and of PySpark."""
    frames = [frame for frame in told.stack if not _is_inner(frame.filename)]
    return traceback.StackSummary.from_list(frames[-_MAX_FRAMES:]).format()


def _is_inner(filename: str) -> bool:
    """Return whether a file is one of this package or of PySpark."""
    return filename.startswith(_OWN_CODE) or _PYSPARK.search(filename) is not None


def _causes(told: traceback.TracebackException) -> Iterator[str]:
    """Yield the lines of each error that led to this one."""
    while (cause := _cause_of(told)) is not None:
        yield f"because of {''.join(cause.format_exception_only()).rstrip()}\n"
        yield from _frames_of(cause)
        told = cause


def _cause_of(told: traceback.TracebackException) -> traceback.TracebackException | None:
    if told.__cause__ is not None:
        return told.__cause__
    return None if told.__suppress_context__ else told.__context__


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
    return [line.rstrip() for line in lines if line.strip() and not line.startswith(_OF_JVM)]


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
        frame = _SPARK_FRAME.match(line)
        if frame is not None:
            is_kept = not _is_inner(frame["file"])
        if is_kept:
            kept.append(line)
    return kept
