"""A mistake that users make, and what its message has to say."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from pyflinkstate import PyFlinkStateError

#: A message may have so many lines.
MOST_LINES = 12


@attrs.frozen
class Mistake:
    """Something that users do wrong.

    Attributes:
        what: it is.
        make: makes it; whatever it returns is not looked at.
        error: what it raises.
        says: patterns that are in its message: what was wrong, where, and what to do.
    """

    what: str
    make: Callable[..., Any]
    error: type[PyFlinkStateError]
    says: tuple[str, ...]


def check(mistake: Mistake, *arguments: Any) -> str:
    """Make a mistake, and check what its message says; return it."""
    with pytest.raises(PyFlinkStateError) as caught:
        mistake.make(*arguments)
    message = str(caught.value)
    assert type(caught.value) is mistake.error, message
    for pattern in mistake.says:
        assert re.search(pattern, message), f"{pattern!r} is not in:\n{message}"
    assert len(message.splitlines()) <= MOST_LINES, message
    return message


def of_each(mistakes: list[Mistake]) -> pytest.MarkDecorator:
    """Return a parametrization by mistakes."""
    return pytest.mark.parametrize("mistake", mistakes, ids=[mistake.what for mistake in mistakes])
