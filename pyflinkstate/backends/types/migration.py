"""What may change about a restored state, and how its values are converted.

Flink's heap backend reads values with the type they were written with, and takes another type when that
is asked for only where it is compatible. Compatible are:

* with and without time to live. Without TTL before, values are stamped with the time of the migration.
  With TTL before and none now, timestamps are dropped and expired values come back, as in Flink;
* rows that differ in their names alone: fields keep their places, as in Flink;
* a ``LIST`` where an array is asked for, which earlier releases wrote as a list. Not the other way: an
  array may hold None;
* pickles that are sealed, where they are asked for as pickled. Not where a type is declared.
"""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.types.codec import Codec, Convert, walk
from pyflinkstate.backends.types.pickles import sealed
from pyflinkstate.backends.types.state_meta import RegisteredStateMeta
from pyflinkstate.backends.types.table import find_codec
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo
from pyflinkstate.errors import StateMigrationError


def state_migration(
    was: RegisteredStateMeta, now: RegisteredStateMeta, clock: Callable[[], int]
) -> Convert | None:
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


def unsealing(was: TypeInformation, now: TypeInformation) -> Convert | None:
    """Return what loads the pickles of ``was``, if it is ``now`` but for what is sealed; else None."""
    return _conversion(was, now, lambda: 0) if was in (now, sealed(now)) else None


def has_ttl(type_info: TypeInformation) -> bool:
    """Return whether values of a stored type, or their elements or entries, have timestamps."""
    return walk(type_info, lambda part, inside: isinstance(part, TtlTypeInfo) or any(inside))


def is_newer(one: TypeInformation, other: TypeInformation) -> bool:
    """Return whether ``other`` may become ``one``, while the other way something would be lost."""
    if has_ttl(one) != has_ttl(other):
        return has_ttl(one)
    return _conversion(one, other, lambda: 0) is None and _conversion(other, one, lambda: 0) is not None


def _conversion(was: TypeInformation, now: TypeInformation, clock: Callable[[], int]) -> Convert | None:
    """Return what converts a value, also of None to None; None if the types are incompatible."""
    if was == now:
        return _same
    if isinstance(was, TtlTypeInfo) or isinstance(now, TtlTypeInfo):
        return _conversion_of_ttl(was, now, clock)
    codec = find_codec(was)
    if codec is None or codec.converted is None or not _may_become(codec, find_codec(now)):
        return None
    parts = _conversions_of_parts(was, now, codec.fixed_parts, clock)
    return None if parts is None else codec.converted(now, parts)


def _same(value: StateValue) -> StateValue:
    return value


def _may_become(was: Codec, now: Codec | None) -> bool:
    return now is not None and (now.name == was.name or now.name in was.may_become)


def _conversions_of_parts(
    was: TypeInformation, now: TypeInformation, fixed_parts: int, clock: Callable[[], int]
) -> list[Convert] | None:
    """Return what converts each part, or None where one cannot be, or there are more than there were."""
    before, after = was.parts(), now.parts()
    if len(before) != len(after):
        return None
    fixed = map(unsealing, before[:fixed_parts], after[:fixed_parts])
    others = zip(before[fixed_parts:], after[fixed_parts:], strict=True)
    found = [*fixed, *(_conversion(*types, clock) for types in others)]
    parts = [part for part in found if part is not None]
    return parts if len(parts) == len(found) else None


def _conversion_of_ttl(
    was: TypeInformation, now: TypeInformation, clock: Callable[[], int]
) -> Convert | None:
    before = was.value_type if isinstance(was, TtlTypeInfo) else was
    after = now.value_type if isinstance(now, TtlTypeInfo) else now
    convert = _conversion(before, after, clock)
    if convert is None:
        return None
    if not isinstance(now, TtlTypeInfo):
        return lambda value: convert(value[1])
    if isinstance(was, TtlTypeInfo):
        return lambda value: (value[0], convert(value[1]))
    return lambda value: (clock(), convert(value))


def _incompatible(was: RegisteredStateMeta, now: RegisteredStateMeta, rule: str) -> StateMigrationError:
    return StateMigrationError(
        f"state {was.name!r} was restored as {was}, and is requested as {now}: {rule}; use another name, "
        f"or what the checkpoint has",
        state=was.name,
    )
