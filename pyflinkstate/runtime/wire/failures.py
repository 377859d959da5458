"""Turns what a user's code raises into errors that travel: text only, so they always can be pickled."""

from __future__ import annotations

import re
import resource
import traceback
from collections.abc import Iterator
from pathlib import Path

import attrs

from pyflinkstate.api.safe_repr import safe_repr
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


@attrs.frozen
class NoRecord:
    """Replaces the record in an error if the operator was not processing one; says what it did."""

    doing: str

    def __repr__(self) -> str:
        return f"none: {self.doing}"


def user_failure(
    error: BaseException, operator: str, record: object, key: object = None
) -> PyFlinkStateError:
    """Return what to report for ``error``, raised in ``operator`` while it processed ``record``.

    An error of the project's own keeps its type and gains the place; any other becomes a
    ``UserFunctionError``. Both show where in the user's own code it was raised.
    """
    context = {"operator": operator, "key": safe_repr(key), "record": safe_repr(record)}
    place = f"operator {operator!r}, " + (f"key {context['key']}, " if key is not None else "")
    place += record.doing if isinstance(record, NoRecord) else f"record {context['record']}"
    if isinstance(error, PyFlinkStateError) and type(error).__module__ == PyFlinkStateError.__module__:
        message = f"{error.message}\n  in {place}\n{_own_frames(error)}".rstrip()
        return type(error)(message, **{**error.context, **context})
    return UserFunctionError(
        f"{type(error).__name__}: {_text_of(error)}\n  in {place}\n{user_frames(error)}".rstrip(),
        cause_type=type(error).__name__,
        **context,
    )


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


def user_frames(error: BaseException) -> str:
    """Return where in the user's code ``error`` was raised, and so for each error that led to it.

    Frames of this package and of PySpark are left out.
    """
    told = traceback.TracebackException.from_exception(error)
    return "".join(_frames_of(told)) + "".join(_causes(told))


def _own_frames(error: PyFlinkStateError) -> str:
    """Return the user's calls that led to an error which says all else itself."""
    return "".join(_frames_of(traceback.TracebackException.from_exception(error)))


def _frames_of(told: traceback.TracebackException) -> list[str]:
    """Return the lines of the user's frames, and of what the interpreter says of a syntax error."""
    frames = [frame for frame in told.stack if not is_inner(frame.filename)]
    return traceback.StackSummary.from_list(frames[-_MAX_FRAMES:]).format()


def is_inner(filename: str) -> bool:
    """Return whether a file is one of this package or of PySpark."""
    return filename.startswith(_OWN_CODE) or _PYSPARK.search(filename) is not None


def _causes(told: traceback.TracebackException) -> Iterator[str]:
    while (cause := _cause_of(told)) is not None:
        yield f"because of {''.join(cause.format_exception_only()).rstrip()}\n"
        yield from _frames_of(cause)
        told = cause


def _cause_of(told: traceback.TracebackException) -> traceback.TracebackException | None:
    if told.__cause__ is not None:
        return told.__cause__
    return None if told.__suppress_context__ else told.__context__
