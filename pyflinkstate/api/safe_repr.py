"""The ``repr`` of a user's value, for messages."""

from __future__ import annotations

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
