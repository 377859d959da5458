"""Which cases of a test the quick tier runs; the full tier runs the others (``make test-full``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest

FULL = pytest.mark.full


def cases(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters: those in ``quick`` for both tiers, the others for the full one alone."""
    return [value if value in quick else pytest.param(value, marks=FULL) for value in values]
