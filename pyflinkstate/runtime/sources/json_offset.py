"""Checks that an offset is a JSON value, so that a checkpoint can keep it.

JSON refuses some values, and quietly changes others: a tuple becomes a list. A job that restarts would then
begin at another offset than a job that is restored from the same checkpoint.
"""

from __future__ import annotations

import math

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import Offset


def part_that_is_no_json(offset: Offset) -> str | None:
    """Return the part of an offset that JSON cannot restore exactly, and why; None if there is none."""
    found = _find(offset)
    return None if found is None else f"offset{found[0]} {found[1]}"


def _find(value: Offset) -> tuple[str, str] | None:
    """Return the place of the part, and the problem."""
    if isinstance(value, dict):
        return _find_in_dict(value)
    if isinstance(value, list):
        parts = ((number, _find(part)) for number, part in enumerate(value))
        return next(((f"[{number}]{found[0]}", found[1]) for number, found in parts if found), None)
    if isinstance(value, float):
        return None if math.isfinite(value) else ("", f"is {value}, which is not a number in JSON: use None")
    if value is None or isinstance(value, (str, int)):
        return None
    if isinstance(value, tuple):
        return "", f"is a tuple, {safe_repr(value)}, which would be read back as a list: use a list"
    kind = type(value)
    return "", f"is {safe_repr(value)}, of type {kind.__module__}.{kind.__qualname__}"


def _find_in_dict(value: dict[Offset, Offset]) -> tuple[str, str] | None:
    for key, part in value.items():
        if not isinstance(key, str):
            return "", f"has the key {safe_repr(key)}, and the keys of JSON are strings: use str"
        if (found := _find(part)) is not None:
            return f"[{key!r}]{found[0]}", found[1]
    return None
