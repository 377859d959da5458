"""How values of a declared type are copied."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from pyflinkstate.api.types import (
    ArrayTypeInfo,
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.types.arrow import bare
from pyflinkstate.backends.types.sealing import SealedPickles
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo


def value_copier(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """Return what makes an independent copy of a value: shallow where the parts cannot change.

    None says that values of this type cannot change in place at all.
    """
    type_info = bare(type_info)
    if _is_flat(type_info):
        return None
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)) and _is_flat(type_info.element_type):
        return list
    if isinstance(type_info, MapTypeInfo) and _is_flat(type_info.value_type_info):
        return dict
    if isinstance(type_info, RowTypeInfo) and all(map(_is_flat, type_info.field_types)):
        return copy.copy
    return copy.deepcopy


def rebuilds(type_info: TypeInformation) -> bool:
    """Return whether what ``check`` gives shares nothing that can change with what is checked."""
    type_info = bare(type_info)
    if isinstance(type_info, TtlTypeInfo):
        return rebuilds(type_info.value_type)
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)) and type(type_info) in _SEQUENCES:
        return _is_flat(type_info) or rebuilds(type_info.element_type)
    if type(type_info) is MapTypeInfo:
        return rebuilds(type_info.key_type_info) and rebuilds(type_info.value_type_info)
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return all(map(rebuilds, type_info.field_types))
    return _is_flat(type_info)


_SEQUENCES = frozenset({ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo})


def _is_flat(type_info: TypeInformation) -> bool:
    """Return whether values, and what is in them, cannot change in place."""
    type_info = bare(type_info)
    if isinstance(type_info, TtlTypeInfo):
        return _is_flat(type_info.value_type)
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_is_flat, type_info.field_types))
    return bool(type_info.kind) or isinstance(type_info, (WindowSerializer, SealedPickles))
