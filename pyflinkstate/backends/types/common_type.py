"""The common type of two others, to which values of both can be converted without loss.

A state changes its type when the program asks for it. Subtasks may do so at different times, and the files of
an incremental checkpoint may have been written before and after that. A restore does not know yet which type
the next program asks for. So it gives all values a type that both others can become and that can become both:
it has the fields of both rows, the wider of two numbers, the time to live, the pickle.
"""

from __future__ import annotations

import attrs

from pyflinkstate.api.types import ObjectArrayTypeInfo, RowTypeInfo, TypeInformation
from pyflinkstate.backends.types.composites import names_under
from pyflinkstate.backends.types.migration import bare
from pyflinkstate.backends.types.pickles import SealedPickles
from pyflinkstate.backends.types.state_meta import RegisteredStateMeta
from pyflinkstate.backends.types.table import find_codec
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo
from pyflinkstate.errors import ConfigurationError, StateMigrationError


def common_meta(one: RegisteredStateMeta, other: RegisteredStateMeta) -> RegisteredStateMeta:
    """Return the metadata with the common type of both; raise ``StateMigrationError`` if they have none."""
    stored_type = common_type(one.stored_type, other.stored_type)
    if stored_type is None:
        raise StateMigrationError(f"{one} and {other} have nothing in common", state=one.name)
    return attrs.evolve(one, stored_type=stored_type)


def common_type(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    """Return a type to which values of both can be converted without loss, or None.

    >>> from pyflinkstate.api.types import Types
    >>> rows = (Types.ROW_NAMED(["a", "b"], [Types.INT()] * 2), Types.ROW_NAMED(["b"], [Types.LONG()]))
    >>> print(common_type(*rows))
    ROW(a: INT, b: LONG)
    """
    one, other = bare(one), bare(other)
    if one == other:
        return one
    if isinstance(one, TtlTypeInfo) or isinstance(other, TtlTypeInfo):
        return _expiring(one, other)
    if isinstance(one, SealedPickles) or isinstance(other, SealedPickles):
        return SealedPickles()
    if isinstance(one, RowTypeInfo) and isinstance(other, RowTypeInfo):
        return _row_of_both(one, other)
    return _of_same_shape(one, other) or _of_same_shape(other, one)


def _expiring(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    values = [part.value_type if isinstance(part, TtlTypeInfo) else part for part in (one, other)]
    value_type = common_type(*values)
    return None if value_type is None else TtlTypeInfo(value_type)


def _row_of_both(one: RowTypeInfo, other: RowTypeInfo) -> TypeInformation | None:
    fields: dict[str, TypeInformation | None] = dict(zip(names_under(one, other), one.parts(), strict=True))
    for name, part in zip(other.field_names, other.parts(), strict=True):
        known = fields.get(name)
        fields[name] = part if known is None else common_type(known, part)
    found = [part for part in fields.values() if part is not None]
    return RowTypeInfo(found, fields) if len(found) == len(fields) else None


def _of_same_shape(one: TypeInformation, other: TypeInformation) -> TypeInformation | None:
    """Return ``other`` with the common types of the parts, if ``one`` may become a type of its name."""
    narrow, wide = find_codec(one), find_codec(other)
    if narrow is None or wide is None or wide.name not in {*narrow.may_become, narrow.name}:
        return None
    if one.kind:
        return other
    if len(one.parts()) != len(other.parts()):
        return None
    parts = [common_type(*pair) for pair in zip(one.parts(), other.parts(), strict=True)]
    found = [part for part in parts if part is not None]
    return _made_of(other, found) if len(found) == len(parts) else None


def _made_of(type_info: TypeInformation, parts: list[TypeInformation]) -> TypeInformation:
    """Return the type with these parts. Only an array of objects accepts elements of every type."""
    try:
        return type_info.with_parts(parts)
    except ConfigurationError:
        return ObjectArrayTypeInfo(*parts)
