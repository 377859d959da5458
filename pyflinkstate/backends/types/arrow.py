"""The Arrow types that columns of a checkpoint have.

A declared type has an Arrow type, so that a checkpoint can be read by pyarrow, pandas or DuckDB
without running any code of ours.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

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
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.types.namespaces import WINDOW_COLUMNS
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo
from pyflinkstate.errors import (
    ConfigurationError,
)

#: What ``FLOAT`` numbers have: state keeps them as they are.
WIDE_FLOAT = pa.float64()
#: What they have in state files up to version 3, and in operator state files of version 1.
NARROW_FLOAT = pa.float32()

ARROW_OF_KIND: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "FLOAT": WIDE_FLOAT,
    "DOUBLE": pa.float64(),
    "CHAR": pa.large_string(),
    "STRING": pa.large_string(),
    "BIG_INT": pa.large_string(),
    "BIG_DEC": pa.large_string(),
    "BYTES": pa.large_binary(),
    "SQL_DATE": pa.date32(),
    "SQL_TIME": pa.time64("us"),
    "SQL_TIMESTAMP": pa.timestamp("us"),
    "LOCAL_DATE": pa.date32(),
    "LOCAL_TIME": pa.time64("us"),
    "LOCAL_DATE_TIME": pa.timestamp("us"),
    # Two numbers: one of 64 bits cannot hold all moments to the nanosecond.
    "INSTANT": pa.struct([("seconds", pa.int64()), ("nanos", pa.int32())]),
}


def bare(type_info: TypeInformation) -> TypeInformation:
    """Values of an external type are those of the type inside."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    return type_info


def arrow_type(type_info: TypeInformation, float_type: pa.DataType = WIDE_FLOAT) -> pa.DataType:
    """Return the Arrow type that a column of ``type_info`` has in a checkpoint.

    Args:
        type_info: the type.
        float_type: what ``FLOAT`` numbers have; earlier files have ``NARROW_FLOAT``.
    """
    type_info = bare(type_info)
    if type_info.kind == "FLOAT":
        return float_type
    if type_info.kind in ARROW_OF_KIND:
        return ARROW_OF_KIND[type_info.kind]
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)):
        return pa.large_list(arrow_type(type_info.element_type, float_type))
    if isinstance(type_info, MapTypeInfo):
        types = (type_info.key_type_info, type_info.value_type_info)
        return pa.map_(*(arrow_type(part, float_type) for part in types))
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo, TtlTypeInfo)):
        return pa.struct(_arrow_fields(type_info, float_type))
    if isinstance(type_info, PickledBytesTypeInfo):
        return pa.large_binary()
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].arrow_type
    raise ConfigurationError(f"{type_info} has no place in a checkpoint; use a type made by Types")


def _arrow_fields(
    type_info: TupleTypeInfo | RowTypeInfo | TtlTypeInfo, float_type: pa.DataType
) -> list[pa.Field]:
    if isinstance(type_info, TtlTypeInfo):
        value = pa.field("value", arrow_type(type_info.value_type, float_type))
        return [pa.field("timestamp_ms", pa.int64(), nullable=False), value]
    types = [arrow_type(field_type, float_type) for field_type in type_info.field_types]
    if isinstance(type_info, TupleTypeInfo):
        return [pa.field(f"f{index}", field_type) for index, field_type in enumerate(types)]
    fields = [
        pa.field(name, field_type) for name, field_type in zip(type_info.field_names, types, strict=True)
    ]
    return [pa.field(_row_kind_name(type_info.field_names), pa.int8()), *fields]


def _row_kind_name(names: Sequence[str]) -> str:
    """Return what the column of a row's kind is called: no field has that name."""
    name = "row_kind"
    while name in names:
        name += "_"
    return name
