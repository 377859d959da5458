"""Checks of values that must be found again, map keys and namespaces, as a backend checks them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from pyflinkstate.api.state import StateKind
from pyflinkstate.api.types import MapTypeInfo, PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.types import RegisteredStateMeta, may_hold_nan
from pyflinkstate.backends.values import refuse_nan
from pyflinkstate.state_access.pickles import comparable, has_pickles

#: Returns a value in the form that state keeps, or raises ``ValueError``.
Check: TypeAlias = Callable[[TypedValue], TypedValue]


def key_check(type_info: TypeInformation) -> Check | None:
    """Return the check of map keys and namespaces of a type; None if the check of values is enough.

    As in a backend, ``FLOAT`` numbers are rounded to 32 bits, and NaN is refused.

    >>> from pyflinkstate.api.types import Types
    >>> key_check(Types.FLOAT())(0.1), key_check(Types.STRING())
    (0.10000000149011612, None)
    """
    is_plain = bool(type_info.kind) and not may_hold_nan(type_info)
    if is_plain or isinstance(type_info, WindowSerializer):
        return None
    check_key = type_info.check_key
    is_sealed = isinstance(type_info, PickledBytesTypeInfo) and not has_pickles(type_info)

    def check(key: TypedValue) -> TypedValue:
        checked = check_key(key)
        _check_findable(comparable(checked) if is_sealed else checked)
        return checked

    return check


def map_check(map_type: TypeInformation) -> Check | None:
    """Return the check of the map under a key; None if the check of its type is enough."""
    assert isinstance(map_type, MapTypeInfo)
    check_key = key_check(map_type.key_type_info)
    if check_key is None:
        return None
    return lambda value: {check_key(key): item for key, item in map_type.check(value).items()}


def stored_check(meta: RegisteredStateMeta) -> Check:
    """Return the check of the value that a state stores under a key."""
    found = map_check(meta.stored_type) if meta.kind is StateKind.MAP else None
    return meta.stored_type.check if found is None else found


def _check_findable(key: TypedValue) -> None:
    try:
        hash(key)
    except TypeError as error:
        raise ValueError(str(error)) from error
    refuse_nan(key)
