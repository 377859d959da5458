"""Pickles that nobody has asked for yet.

A file says with which type a state was written. Would restored values be loaded by that alone, a forged
file could have a state unpickled that the program has declared a type for. So what a file calls pickled
is restored as bytes, under a type of its own, and loaded when the program asks for it as pickled.
"""

from __future__ import annotations

import attrs

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
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo


@attrs.frozen(repr=False)
class SealedPickles(PickledBytesTypeInfo):
    """Values are the bytes of pickles."""


def sealed(type_info: TypeInformation) -> TypeInformation:
    """Return the type under which values of a file's ``type_info`` are restored."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return SealedPickles()
    if isinstance(type_info, MapTypeInfo):
        return MapTypeInfo(sealed(type_info.key_type_info), sealed(type_info.value_type_info))
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return attrs.evolve(type_info, field_types=tuple(map(sealed, type_info.field_types)))
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)):
        return attrs.evolve(type_info, element_type=sealed(type_info.element_type))
    if isinstance(type_info, TtlTypeInfo):
        return TtlTypeInfo(sealed(type_info.value_type))
    if isinstance(type_info, ExternalTypeInfo):
        return ExternalTypeInfo(sealed(type_info.type_info))
    return type_info
