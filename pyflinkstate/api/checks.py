"""Checks of arguments that many calls have in common, and the ``repr`` of a user's value, for messages."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Iterable

from pyflinkstate.errors import ConfigurationError

#: Maximum length in a message.
MAX_REPR = 500
#: Maximum length of an attribute in the ``repr`` of an object.
MAX_ATTRIBUTE = 160


def safe_repr(value: object, limit: int = MAX_REPR) -> str:
    """Return ``repr(value)``, cut after ``limit`` characters, or a description if it raises; never raises."""
    try:
        text = repr(value)
    except Exception as error:  # noqa: BLE001 - a user's __repr__ may raise anything
        if isinstance(value, int) and isinstance(error, ValueError):
            return "an int with more digits than Python prints"
        text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= limit else text[:limit] + "..."


def short_repr(value: object) -> str:
    """Return the repr of an attribute that may be of any length, for ``attrs.field(repr=short_repr)``."""
    return safe_repr(value, MAX_ATTRIBUTE)


def check_text(what: str, value: object, may_be_empty: bool = False) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is a string, as checkpoints keep names.

    Args:
        what: what the string is, such as "a uid".
        value: the string.
        may_be_empty: whether it may be empty.
    """
    if not isinstance(value, str) or not (value or may_be_empty):
        kind = "string" if may_be_empty else "non-empty string"
        raise ConfigurationError(f"{what} must be a {kind}, not {value!r}")


def positive(name: str, value: object) -> int:
    """Return a whole number of at least 1; see :func:`at_least`."""
    return at_least(name, value, 1)


def at_least(name: str, value: object, least: int) -> int:
    """Return a whole number of at least ``least``, also one of numpy's, as an ``int``.

    Raises:
        ConfigurationError: it is not such a number.
    """
    whole = as_int(value)
    if whole is None or whole < least:
        raise ConfigurationError(f"{name} must be a whole number, at least {least}, not {safe_repr(value)}")
    return whole


def as_int(value: object) -> int | None:
    """Return a whole number, also one of numpy's, as an ``int``; None for other values, such as a bool."""
    is_whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    return operator.index(value) if is_whole else None  # type: ignore[arg-type]


def check_dataframe(what: str, given: object, hint: str = "") -> None:
    """Raise ``ConfigurationError`` unless ``given`` is a Spark DataFrame; ``hint`` says what to do."""
    if isinstance(getattr(given, "isStreaming", None), bool):
        return
    kind = type(given)
    named = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise ConfigurationError(f"{what} takes a Spark DataFrame, not a {named}{hint and '; '}{hint}")


def check_kind(takes: str, value: object, kind: type | tuple[type, ...]) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is an object of ``kind``.

    Args:
        takes: what is needed, such as "union() takes DataStreams".
        value: what was given.
        kind: its class, or one of several.
    """
    if not isinstance(value, kind):
        raise ConfigurationError(f"{takes}, not {safe_repr(value)}")


def check_list(name: str, value: object) -> None:
    """Raise ``ConfigurationError`` for a single value or a string instead of a list of values."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Iterable):
        raise ConfigurationError(f"{name} is a list, not {safe_repr(value)}: give [{safe_repr(value)}]")
