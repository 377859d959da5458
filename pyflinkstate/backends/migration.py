"""What may change about a restored state, and how its values are converted.

Flink's heap backend reads values with the type they were written with, and takes another type when that
is asked for only where it is compatible. Here types are equal or not; the one migration is to and from
time to live. Without TTL before, values are stamped with the time of the migration. With TTL before and
none now, timestamps are dropped and expired values come back, as in Flink.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflinkstate.api.types import ListTypeInfo, MapTypeInfo, TypeInformation
from pyflinkstate.backends.state_meta import RegisteredStateMeta
from pyflinkstate.backends.ttl.types import TtlTypeInfo
from pyflinkstate.errors import StateMigrationError

Convert = Callable[[Any], Any]


def migration(was: RegisteredStateMeta, now: RegisteredStateMeta, clock: Callable[[], int]) -> Convert | None:
    """Return what turns a stored value of ``was`` into one of ``now``; None if it is one already.

    Args:
        was: what was restored.
        now: what the program asks for.
        clock: gives the time in ms that values are stamped with.

    Raises:
        StateMigrationError: kind, namespace type or value type are incompatible.
    """
    if was.kind is not now.kind:
        raise _incompatible(was, now, "the kind cannot change")
    if was.namespace_type != now.namespace_type:
        raise _incompatible(was, now, "the type of namespaces cannot change")
    if was.stored_type == now.stored_type:
        return None
    convert = _conversion(was.stored_type, now.stored_type, clock)
    if convert is None:
        raise _incompatible(was, now, "the type cannot change")
    return convert


def has_ttl(type_info: TypeInformation) -> bool:
    """Return whether values of a stored type, or their elements or entries, have timestamps."""
    if isinstance(type_info, ListTypeInfo):
        return has_ttl(type_info.element_type)
    if isinstance(type_info, MapTypeInfo):
        return has_ttl(type_info.value_type_info)
    return isinstance(type_info, TtlTypeInfo)


def _conversion(was: TypeInformation, now: TypeInformation, clock: Callable[[], int]) -> Convert | None:
    if isinstance(was, ListTypeInfo) and isinstance(now, ListTypeInfo):
        element = _conversion(was.element_type, now.element_type, clock)
        return None if element is None else lambda value: [element(item) for item in value]
    if isinstance(was, MapTypeInfo) and isinstance(now, MapTypeInfo):
        if was.key_type_info != now.key_type_info:
            return None
        item = _conversion(was.value_type_info, now.value_type_info, clock)
        return None if item is None else lambda value: {key: item(entry) for key, entry in value.items()}
    if isinstance(now, TtlTypeInfo) and now.value_type == was:
        return lambda value: (clock(), value)
    if isinstance(was, TtlTypeInfo) and was.value_type == now:
        return lambda value: value[1]
    return None


def _incompatible(was: RegisteredStateMeta, now: RegisteredStateMeta, rule: str) -> StateMigrationError:
    return StateMigrationError(
        f"state {was.name!r} was restored as {was}, and is requested as {now}: {rule}; use another name, "
        f"or what the checkpoint has",
        state=was.name,
    )
