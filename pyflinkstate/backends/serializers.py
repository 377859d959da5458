"""How typed values become Arrow columns and come back, and how they are copied.

A declared type has an Arrow type, so that a checkpoint can be read by pyarrow, pandas or DuckDB
without running any code of ours. ``PICKLED_BYTE_ARRAY`` is a binary column of pickles: loading it runs
code, so it is loaded only from the user's own checkpoint, and a declared type never goes through it.
"""

from __future__ import annotations

import copy
import decimal
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api.basic_types import type_of_kind
from pyflinkstate.api.row import Row, RowKind, row_of
from pyflinkstate.api.time import Instant
from pyflinkstate.api.types import (
    ArrayTypeInfo,
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
from pyflinkstate.api.values import ArrowObject, Json, TypedValue
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.namespaces import WINDOW_COLUMNS
from pyflinkstate.backends.sealed import SealedPickles
from pyflinkstate.backends.ttl.types import TtlTypeInfo
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    StateMigrationError,
    StateValueError,
)

#: Fixed, so that a checkpoint taken by one Python version is readable by an older one.
PICKLE_PROTOCOL = 5

#: What ``FLOAT`` numbers have: state keeps them as they are.
WIDE_FLOAT = pa.float64()
#: What they have in state files up to version 3, and in operator state files of version 1.
NARROW_FLOAT = pa.float32()

_ARROW_OF_KIND: dict[str, pa.DataType] = {
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

#: Python converts ints of up to 4300 decimal digits; larger ones are written in hexadecimal.
_DECIMAL_BITS = 14_000


def _big_int_to_text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


#: (to what Arrow takes, back) for kinds that Arrow has no type for.
_CONVERTED_KINDS: dict[str, tuple[Callable[[TypedValue], TypedValue], Callable[[TypedValue], TypedValue]]] = {
    "BIG_INT": (_big_int_to_text, lambda text: int(text, 0)),
    "BIG_DEC": (str, decimal.Decimal),
    "INSTANT": (lambda instant: (instant.seconds, instant.nanos), lambda parts: Instant(**parts)),
}

_ROW_KINDS = tuple(RowKind)


def _bare(type_info: TypeInformation) -> TypeInformation:
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
    type_info = _bare(type_info)
    if type_info.kind == "FLOAT":
        return float_type
    if type_info.kind in _ARROW_OF_KIND:
        return _ARROW_OF_KIND[type_info.kind]
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


def encode_column(type_info: TypeInformation, values: Sequence[TypedValue]) -> pa.Array:
    """Return ``values`` as an Arrow array of ``arrow_type(type_info)``."""
    to_arrow = _to_arrow(type_info)
    if to_arrow is not None:
        values = [None if value is None else to_arrow(value) for value in values]
    return pa.array(values, type=arrow_type(type_info))


def decode_column(type_info: TypeInformation, array: pa.Array) -> list[TypedValue]:
    """Return the values that :func:`encode_column` was given.

    Columns inside columns are decoded as columns: a Python object is made once, by Arrow, for each value.
    """
    values = _decode_column(type_info, array)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return [value if there else None for value, there in zip(values, valid, strict=True)]
    return values


def _decode_column(type_info: TypeInformation, array: pa.Array) -> list[TypedValue]:
    """Decode without regard to nulls on the outermost level, unless Arrow sees to it."""
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].decode(array)
    type_info = _bare(type_info)
    if type_info.kind in _CONVERTED_KINDS:
        convert = _CONVERTED_KINDS[type_info.kind][1]
        return [None if value is None else convert(value) for value in _to_list(array)]
    decode = None if type_info.kind else _DECODERS.get(type(type_info))
    return _to_list(array) if decode is None else decode(type_info, array)


def _to_list(array: pa.Array) -> list[TypedValue]:
    """Return what ``to_pylist`` does, several times as fast for the most frequent types."""
    arrow = array.type
    numeric = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    if (
        (numeric and not array.null_count)
        or pa.types.is_large_string(arrow)
        or pa.types.is_large_binary(arrow)
    ):
        values: list[TypedValue] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    values = array.to_pylist()
    return values  # noqa: RET504 - mypy wants its type


def _decode_pickles(type_info: PickledBytesTypeInfo, array: pa.Array) -> list[TypedValue]:
    return [load_pickle(value) for value in _to_list(array)]


def load_pickle(data: bytes | None) -> TypedValue:
    """Return what is in a pickle of state without a declared type, of the user's own checkpoint.

    Raises:
        StateMigrationError: the program has no such class any more, or it does not take what was written.
    """
    try:
        return None if data is None else pickle.loads(data)  # noqa: S301
    except Exception as error:
        raise StateMigrationError(
            f"a pickled value cannot be loaded: {type(error).__name__}: {error}; keep its class where it was "
            f"when the checkpoint was written, and able to take what it had then"
        ) from error


def _leave_sealed(type_info: SealedPickles, array: pa.Array) -> list[TypedValue]:
    return _to_list(array)


def _decode_lists(type_info: ListTypeInfo | ArrayTypeInfo, array: pa.LargeListArray) -> list[TypedValue]:
    elements = decode_column(type_info.element_type, array.values)
    offsets = array.offsets.to_pylist()
    return [elements[start:end] for start, end in itertools.pairwise(offsets)]


def _decode_maps(type_info: MapTypeInfo, array: pa.MapArray) -> list[TypedValue]:
    keys = decode_column(type_info.key_type_info, array.keys)
    items = decode_column(type_info.value_type_info, array.items)
    offsets = array.offsets.to_pylist()
    return [
        dict(zip(keys[start:end], items[start:end], strict=True))
        for start, end in itertools.pairwise(offsets)
    ]


def _decode_structs(field_types: Sequence[TypeInformation], array: pa.StructArray) -> list[TypedValue]:
    if not field_types:
        return [()] * len(array)
    # Flattened, so that what lies under a null struct is null too, and not whatever Arrow filled it with.
    fields = [decode_column(field, part) for field, part in zip(field_types, array.flatten(), strict=True)]
    return list(zip(*fields, strict=True))


def _decode_tuples(type_info: TupleTypeInfo, array: pa.StructArray) -> list[TypedValue]:
    return _decode_structs(type_info.field_types, array)


def _decode_rows(type_info: RowTypeInfo, array: pa.StructArray) -> list[TypedValue]:
    names = type_info.field_names
    return [
        row_of(values, names, _ROW_KINDS[row_kind or 0])  # no kind is under a null
        for row_kind, *values in _decode_structs((Types.BYTE(), *type_info.field_types), array)
    ]


def _decode_ttl(type_info: TtlTypeInfo, array: pa.StructArray) -> list[TypedValue]:
    return _decode_structs((Types.LONG(), type_info.value_type), array)


_DECODERS: dict[type, Callable[[Any, ArrowObject], list[TypedValue]]] = {
    PickledBytesTypeInfo: _decode_pickles,
    SealedPickles: _leave_sealed,
    ListTypeInfo: _decode_lists,
    PrimitiveArrayTypeInfo: _decode_lists,
    BasicArrayTypeInfo: _decode_lists,
    ObjectArrayTypeInfo: _decode_lists,
    MapTypeInfo: _decode_maps,
    TupleTypeInfo: _decode_tuples,
    RowTypeInfo: _decode_rows,
    TtlTypeInfo: _decode_ttl,
}


# --- to Arrow --------------------------------------------------------------------------------------

#: Turns a value into one that Arrow takes; None where it is one already.
_Convert = Callable[[TypedValue], TypedValue] | None


def _dump(value: TypedValue) -> bytes:
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise StateValueError(
            f"a value of {type(value).__module__}.{type(value).__qualname__} cannot be stored: {error}; "
            f"declare a type, or define the class in a module that can be imported, which a restored "
            f"program finds again"
        ) from error


def _optional(convert: _Convert) -> Callable[[TypedValue], TypedValue]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _optional_unless_pickled(convert: _Convert) -> Callable[[TypedValue], TypedValue]:
    """None in a map is null under a declared type, and its pickle without one: a key cannot be null."""
    return convert if convert is _dump else _optional(convert)


def _to_arrow(type_info: TypeInformation) -> _Convert:
    """Return what turns a value into one that Arrow takes, or None where it is one already."""
    type_info = _bare(type_info)
    if type_info.kind:
        return _CONVERTED_KINDS[type_info.kind][0] if type_info.kind in _CONVERTED_KINDS else None
    if isinstance(type_info, PickledBytesTypeInfo):
        return None if isinstance(type_info, SealedPickles) else _dump
    if isinstance(type_info, ListTypeInfo):
        element = _to_arrow(type_info.element_type)
        return None if element is None else lambda value: [element(item) for item in value]
    if isinstance(type_info, ArrayTypeInfo):
        part = _optional(_to_arrow(type_info.element_type))
        return lambda value: [part(item) for item in value]
    if isinstance(type_info, MapTypeInfo):
        return _maps_to_arrow(type_info)
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return _structs_to_arrow(type_info)
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].to_arrow
    return _ttl_to_arrow(type_info) if isinstance(type_info, TtlTypeInfo) else None


def _maps_to_arrow(type_info: MapTypeInfo) -> _Convert:
    key = _optional_unless_pickled(_to_arrow(type_info.key_type_info))
    item = _optional_unless_pickled(_to_arrow(type_info.value_type_info))
    return lambda value: [(key(name), item(entry)) for name, entry in value.items()]


def _structs_to_arrow(type_info: TupleTypeInfo | RowTypeInfo) -> _Convert:
    parts = [_optional(_to_arrow(field)) for field in type_info.field_types]

    def of_tuple(value: TypedValue) -> tuple[TypedValue, ...]:
        return tuple([part(item) for part, item in zip(parts, value, strict=True)])

    def of_row(row: Row) -> tuple[TypedValue, ...]:
        return row.get_row_kind().value, *of_tuple(row)

    return of_row if isinstance(type_info, RowTypeInfo) else of_tuple


def _ttl_to_arrow(type_info: TtlTypeInfo) -> _Convert:
    stored = _to_arrow(type_info.value_type)
    if stored is None:
        return None
    # Inside a map, None without a declared type is its pickle, as it is without TTL.
    user_value = _optional_unless_pickled(stored)
    return lambda value: (value[0], user_value(value[1]))


# --- copies ----------------------------------------------------------------------------------------


def value_copier(type_info: TypeInformation) -> Callable[[TypedValue], TypedValue] | None:
    """Return what makes an independent copy of a value: shallow where the parts cannot change.

    None says that values of this type cannot change in place at all.
    """
    type_info = _bare(type_info)
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
    type_info = _bare(type_info)
    if isinstance(type_info, TtlTypeInfo):
        return rebuilds(type_info.value_type)
    if type(type_info) in _SEQUENCES:
        return _is_flat(type_info) or rebuilds(_part(type_info))
    if type(type_info) is MapTypeInfo:
        return rebuilds(type_info.key_type_info) and rebuilds(type_info.value_type_info)
    if isinstance(type_info, (TupleTypeInfo, RowTypeInfo)):
        return all(map(rebuilds, type_info.field_types))
    return _is_flat(type_info)


_SEQUENCES = frozenset({ListTypeInfo, PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo})


def _is_flat(type_info: TypeInformation) -> bool:
    """Return whether values, and what is in them, cannot change in place."""
    type_info = _bare(type_info)
    if isinstance(type_info, TtlTypeInfo):
        return _is_flat(type_info.value_type)
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_is_flat, type_info.field_types))
    return bool(type_info.kind) or isinstance(type_info, (WindowSerializer, SealedPickles))


# --- types as JSON ---------------------------------------------------------------------------------

#: What is written of a type whose only part is one other type.
_NAMES: dict[str, type] = {
    "LIST": ListTypeInfo,
    "PRIMITIVE_ARRAY": PrimitiveArrayTypeInfo,
    "BASIC_ARRAY": BasicArrayTypeInfo,
    "OBJECT_ARRAY": ObjectArrayTypeInfo,
    "TTL": TtlTypeInfo,
    "EXTERNAL": ExternalTypeInfo,
}


def type_to_json(type_info: TypeInformation) -> Json:
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
    if type_info.kind in _ARROW_OF_KIND:
        return type_info.kind
    return type_info.name if isinstance(type_info, WindowSerializer) else ""


def _part(type_info: Any) -> TypeInformation:
    part: TypeInformation = getattr(type_info, attrs.fields(type(type_info))[0].name)
    return part


def type_from_json(spec: Json) -> TypeInformation:
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


def _type_with_parts(name: str, rest: list[Json]) -> TypeInformation | None:
    if name == "ROW":
        return Types.ROW_NAMED(rest[0], [type_from_json(part) for part in rest[1:]])
    parts = [type_from_json(part) for part in rest]
    if name == "TUPLE":
        return Types.TUPLE(parts)
    if name == "MAP":
        return MapTypeInfo(*parts)
    made: TypeInformation | None = _NAMES[name](*parts) if name in _NAMES else None
    return made
