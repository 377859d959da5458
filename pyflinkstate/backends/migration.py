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

from pyflinkstate.api.row import row_of
from pyflinkstate.api.types import (
    ArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from pyflinkstate.api.values import StateValue
from pyflinkstate.backends.sealed import SealedPickles, sealed
from pyflinkstate.backends.serializers import load_pickle
from pyflinkstate.backends.state_meta import RegisteredStateMeta
from pyflinkstate.backends.ttl.types import TtlTypeInfo
from pyflinkstate.errors import StateMigrationError

Convert = Callable[[StateValue], StateValue]


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


def unsealing(was: TypeInformation, now: TypeInformation) -> Convert | None:
    """Return what loads the pickles of ``was``, if it is ``now`` but for what is sealed; else None."""
    return _conversion(was, now, lambda: 0) if was in (now, sealed(now)) else None


def has_ttl(type_info: TypeInformation) -> bool:
    """Return whether values of a stored type, or their elements or entries, have timestamps."""
    if isinstance(type_info, ListTypeInfo):
        return has_ttl(type_info.element_type)
    if isinstance(type_info, MapTypeInfo):
        return has_ttl(type_info.value_type_info)
    return isinstance(type_info, TtlTypeInfo)


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
    if isinstance(was, SealedPickles):
        return load_pickle if isinstance(now, PickledBytesTypeInfo) else None
    if isinstance(was, ExternalTypeInfo) and isinstance(now, ExternalTypeInfo):
        return _conversion(was.type_info, now.type_info, clock)
    if isinstance(was, MapTypeInfo) and isinstance(now, MapTypeInfo):
        return _conversion_of_maps(was, now, clock)
    if isinstance(was, (ListTypeInfo, ArrayTypeInfo)) and isinstance(now, (ListTypeInfo, ArrayTypeInfo)):
        return _conversion_of_lists(was, now, clock)
    fields = (TupleTypeInfo, RowTypeInfo)
    if isinstance(was, fields) and isinstance(now, fields) and type(was) is type(now):
        return _conversion_of_fields(was, now, clock)
    return None


def _same(value: StateValue) -> StateValue:
    return value


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


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


def _conversion_of_maps(was: MapTypeInfo, now: MapTypeInfo, clock: Callable[[], int]) -> Convert | None:
    item = _conversion(was.value_type_info, now.value_type_info, clock)
    name = unsealing(was.key_type_info, now.key_type_info)
    if item is None or name is None:
        return None
    return _unless_none(lambda value: {name(key): item(entry) for key, entry in value.items()})


def _conversion_of_lists(
    was: ListTypeInfo | ArrayTypeInfo, now: ListTypeInfo | ArrayTypeInfo, clock: Callable[[], int]
) -> Convert | None:
    element = _conversion(was.element_type, now.element_type, clock)
    if element is None or not (type(was) is type(now) or isinstance(was, ListTypeInfo)):
        return None
    if was.kind or now.kind:  # bytes are no list
        return None
    return _unless_none(lambda value: [element(item) for item in value])


def _conversion_of_fields(
    was: TupleTypeInfo | RowTypeInfo, now: TupleTypeInfo | RowTypeInfo, clock: Callable[[], int]
) -> Convert | None:
    if len(was.field_types) != len(now.field_types):
        return None
    parts = [_conversion(*types, clock) for types in zip(was.field_types, now.field_types, strict=True)]
    fields = [part for part in parts if part is not None]
    if len(fields) != len(parts):
        return None

    def converted(value: StateValue) -> list[StateValue]:
        return [field(item) for field, item in zip(fields, value, strict=True)]

    if not isinstance(now, RowTypeInfo):
        return _unless_none(lambda value: tuple(converted(value)))
    names = now.field_names
    return _unless_none(lambda value: row_of(converted(value), names, value.get_row_kind()))


def _incompatible(was: RegisteredStateMeta, now: RegisteredStateMeta, rule: str) -> StateMigrationError:
    return StateMigrationError(
        f"state {was.name!r} was restored as {was}, and is requested as {now}: {rule}; use another name, "
        f"or what the checkpoint has",
        state=was.name,
    )
