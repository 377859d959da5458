"""Checks of arguments that many calls have in common."""

from __future__ import annotations

from pyflinkstate.errors import ConfigurationError


def check_text(what: str, value: object, may_be_empty: bool = False) -> None:
    """Raise ``ConfigurationError`` unless ``value`` is a text: checkpoints keep names as texts.

    Args:
        what: the text is, such as "a uid".
        value: the text.
        may_be_empty: whether the empty text will do.
    """
    if not isinstance(value, str):
        raise ConfigurationError(f"{what} is a text, not {value!r}")
    if not value and not may_be_empty:
        raise ConfigurationError(f"{what} is a text that is not empty, not {value!r}")
