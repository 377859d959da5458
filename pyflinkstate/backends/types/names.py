"""What a type is called in a checkpoint, as JSON values."""

from __future__ import annotations

from typing import Any

import attrs

from pyflinkstate.api.basic_types import type_of_kind
from pyflinkstate.api.types import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.types.arrow import ARROW_OF_KIND
from pyflinkstate.backends.types.namespaces import WINDOW_COLUMNS
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
)

#: What is written of a type whose only part is one other type.
_NAMES: dict[str, type] = {
    "LIST": ListTypeInfo,
    "PRIMITIVE_ARRAY": PrimitiveArrayTypeInfo,
    "BASIC_ARRAY": BasicArrayTypeInfo,
    "OBJECT_ARRAY": ObjectArrayTypeInfo,
    "TTL": TtlTypeInfo,
    "EXTERNAL": ExternalTypeInfo,
}


def type_to_json(type_info: TypeInformation) -> Any:
    """Return ``type_info`` as JSON values, for the head of a checkpoint file."""
    if name := _name_without_parts(type_info):
        return name
    if isinstance(type_info, MapTypeInfo):
        return ["MAP", *map(type_to_json, (type_info.key_type_info, type_info.value_type_info))]
    if isinstance(type_info, TupleTypeInfo):
        return ["TUPLE", *map(type_to_json, type_info.field_types)]
    if isinstance(type_info, RowTypeInfo):
        return ["ROW", type_info.get_field_names(), *map(type_to_json, type_info.field_types)]
    for name, cls in _NAMES.items():
        if type(type_info) is cls:
            return [name, type_to_json(_part(type_info))]
    raise ConfigurationError(f"{type_info} has no place in a checkpoint; use a type made by Types")


def _name_without_parts(type_info: TypeInformation) -> str:
    """Return what a type without parts is called, or nothing."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return "PICKLED"
    if type_info.kind in ARROW_OF_KIND:
        return type_info.kind
    return type_info.name if isinstance(type_info, WindowSerializer) else ""


def _part(type_info: Any) -> TypeInformation:
    part: TypeInformation = getattr(type_info, attrs.fields(type(type_info))[0].name)
    return part


def type_from_json(spec: Any) -> TypeInformation:
    """Return the type that :func:`type_to_json` was given."""
    known = None
    if isinstance(spec, str):
        known = _type_of_name(spec)
    elif isinstance(spec, list) and spec and isinstance(spec[0], str):
        known = _type_with_parts(spec[0], spec[1:])
    if known is None:
        raise IncompatibleCheckpointError(f"the checkpoint holds a type unknown here: {spec!r}")
    return known


def _type_of_name(name: str) -> TypeInformation | None:
    if name == "PICKLED":
        return Types.PICKLED_BYTE_ARRAY()
    if name in WINDOW_COLUMNS:
        return WINDOW_COLUMNS[name].type_info
    return Types.PRIMITIVE_ARRAY(Types.BYTE()) if name == "BYTES" else type_of_kind(name)


def _type_with_parts(name: str, rest: list[Any]) -> TypeInformation | None:
    if name == "ROW":
        return Types.ROW_NAMED(rest[0], [type_from_json(part) for part in rest[1:]])
    parts = [type_from_json(part) for part in rest]
    if name == "TUPLE":
        return Types.TUPLE(parts)
    if name == "MAP":
        return MapTypeInfo(*parts)
    made: TypeInformation | None = _NAMES[name](*parts) if name in _NAMES else None
    return made
