"""Which cases of a test the quick tier runs; the full tier runs the others (``make test-full``)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

FULL = pytest.mark.full


def cases(values: Iterable[Any], quick: Collection[Any]) -> list[Any]:
    """Return parameters: those in ``quick`` for both tiers, the others for the full one alone."""
    return [value if value in quick else _full(value) for value in values]


def runs_of(
    machine: type[RuleBasedStateMachine], quick: int, full: int, steps: int
) -> tuple[type[Any], type[Any]]:
    """Return the test of a machine with the number of runs of the quick tier, and that of the full one."""
    shallow, deep = (
        type(f"{machine.__name__}Of{runs}", (machine.TestCase,), {"settings": _settings(runs, steps)})
        for runs in (quick, full)
    )
    return shallow, FULL(deep)


def _settings(runs: int, steps: int) -> settings:
    return settings(max_examples=runs, stateful_step_count=steps, deadline=None)


def _full(value: Any) -> Any:
    """Return the parameter, or the parameters where a test has several, of a case for the full tier."""
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=FULL)
