"""Turns what a user's code raises into errors that travel: text only, so they always can be pickled."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from pyflinkstate.errors import PyFlinkStateError, UserFunctionError

_OWN_CODE = str(Path(__file__).parent.parent)
_MAX_REPR = 500


def shorten(value: object) -> str:
    """Return the repr of ``value``, cut to a length that fits in a message; never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= _MAX_REPR else text[:_MAX_REPR] + "..."


def user_failure(
    error: BaseException, operator: str, record: object, key: object = None
) -> PyFlinkStateError:
    """Return what to report for ``error``, raised in ``operator`` while it processed ``record``.

    An error of the project's own keeps its type and gains the place; any other becomes a
    ``UserFunctionError`` with the user's own traceback.
    """
    context = {"operator": operator, "key": shorten(key), "record": shorten(record)}
    place = f"operator {operator!r}, " + (f"key {context['key']}, " if key is not None else "")
    place += f"record {context['record']}"
    if isinstance(error, PyFlinkStateError) and type(error).__module__ == PyFlinkStateError.__module__:
        return type(error)(f"{error.message}\n  in {place}", **{**error.context, **context})
    return UserFunctionError(
        f"{type(error).__name__}: {_text_of(error)}\n  in {place}\n\nThe function's own traceback:\n"
        f"{_user_traceback(error)}",
        cause_type=type(error).__name__,
        **context,
    )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a user's __str__ may raise anything
        return "<its str() raised>"


def _user_traceback(error: BaseException) -> str:
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN_CODE):
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames or error.__traceback__))
