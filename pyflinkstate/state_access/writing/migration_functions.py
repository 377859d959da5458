"""Migrates stored values by a user's function, which sees values as its program does: without timestamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from pyflinkstate.api.types import ListTypeInfo, MapTypeInfo
from pyflinkstate.api.values import StateValue, Stored
from pyflinkstate.backends.types import RegisteredStateMeta, TtlTypeInfo
from pyflinkstate.errors import UserFunctionError
from pyflinkstate.state_access.expiry import expires
from pyflinkstate.state_access.writing.fitted_tables import stamped
from pyflinkstate.state_access.writing.user_keys import key_check, stored_check

#: The value of an entry, as a program knows it, before and after a migration.
Convert = Callable[[StateValue], StateValue]


def by_function(
    was: RegisteredStateMeta, now: RegisteredStateMeta, function: Convert, now_ms: int
) -> Convert:
    """Return a converter of stored values, made of a function of values without timestamps.

    What has expired is left out. A value with time to live keeps its timestamp. So do the entries of a map
    whose keys stay, and the elements of a list, place by place, if there are as many as before; what is new
    gets the latest timestamp of the old value. The converter raises ``UserFunctionError`` if the function
    raises, and ``ValueError`` or ``TypeError`` if its result does not fit.
    """
    check = stored_check(now)

    def convert(stored: Stored) -> Stored:
        seen = _seen(was, stored, now_ms)
        made = None if seen is None else _called(function, seen.value)
        return None if seen is None or made is None else check(_stamped(now, made, seen))

    return convert


def _called(function: Convert, value: StateValue) -> StateValue:
    try:
        return function(value)
    except Exception as error:
        raise UserFunctionError(f"the migration function raised {type(error).__name__}: {error}") from error


@attrs.frozen
class _Seen:
    """A stored value as its program sees it.

    Attributes:
        value: the value without timestamps.
        latest_ms: its timestamp, or the latest of its elements.
        of_elements: the timestamps of the elements of a list, in order.
        of_keys: the timestamps of the entries of a map.
    """

    value: StateValue
    latest_ms: int
    of_elements: Sequence[int] = ()
    of_keys: Mapping[StateValue, int] = attrs.field(factory=dict)


def _seen(was: RegisteredStateMeta, stored: Any, now_ms: int) -> _Seen | None:
    """Return the value that the program sees, or None if all of it has expired."""
    if stored is None or not expires(was.stored_type):
        return _Seen(stored, now_ms)

    def is_alive(at_ms: int) -> bool:
        return was.ttl_ms is None or at_ms > now_ms - was.ttl_ms

    if isinstance(was.stored_type, TtlTypeInfo):
        at_ms, value = stored
        return _Seen(value, at_ms) if is_alive(at_ms) else None
    pairs = stored.values() if isinstance(stored, dict) else stored
    alive = [at_ms for at_ms, _ in pairs if is_alive(at_ms)]
    if stored and not alive:
        return None
    latest_ms = max(alive, default=now_ms)
    if isinstance(stored, dict):
        left = {key: pair for key, pair in stored.items() if is_alive(pair[0])}
        values = {key: value for key, (_, value) in left.items()}
        return _Seen(values, latest_ms, of_keys={key: at_ms for key, (at_ms, _) in left.items()})
    return _Seen([value for at_ms, value in stored if is_alive(at_ms)], latest_ms, alive)


def _stamped(now: RegisteredStateMeta, made: StateValue, seen: _Seen) -> StateValue:
    """Return a function's result in the form that the state stores."""
    stored_type = now.stored_type
    if expires(stored_type):
        if isinstance(stored_type, ListTypeInfo) and _are_as_many(made, seen.of_elements):
            return list(zip(seen.of_elements, made, strict=True))
        if isinstance(stored_type, MapTypeInfo) and isinstance(made, Mapping):
            check_key = key_check(stored_type.key_type_info) or stored_type.key_type_info.check
            checked = {check_key(key): item for key, item in made.items()}
            return {key: (seen.of_keys.get(key, seen.latest_ms), item) for key, item in checked.items()}
    return stamped(stored_type, made, seen.latest_ms)


def _are_as_many(made: StateValue, stamps: Sequence[int]) -> bool:
    return isinstance(made, (list, tuple)) and len(made) == len(stamps)
