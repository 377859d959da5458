"""Which cases of a test the quick tier runs; the full tier runs the others (``make test-full``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

FULL = pytest.mark.full


def cases(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters: those in ``quick`` for both tiers, the others for the full one alone."""
    return [value if value in quick else _full(value) for value in values]


def _full(value: Any) -> Any:
    """Return the parameter, or the parameters where a test has several, of a case for the full tier."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=FULL)
