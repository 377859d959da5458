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

import pyarrow as pa

from pyflinkstate.api.types import (
    BasicTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from pyflinkstate.api.windows import WindowSerializer
from pyflinkstate.backends.namespaces import WINDOW_COLUMNS
from pyflinkstate.backends.ttl.types import TtlTypeInfo
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, StateValueError

#: Fixed, so that a checkpoint taken by one Python version is readable by an older one.
PICKLE_PROTOCOL = 5

_ARROW_OF_KIND: dict[str, pa.DataType] = {
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "SHORT": pa.int16(),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "CHAR": pa.large_string(),
    "STRING": pa.large_string(),
    "BIG_INT": pa.large_string(),
    "BIG_DEC": pa.large_string(),
    "BYTES": pa.large_binary(),
    "SQL_DATE": pa.date32(),
    "SQL_TIME": pa.time64("us"),
    "SQL_TIMESTAMP": pa.timestamp("us"),
}

#: Python converts ints of up to 4300 decimal digits; larger ones are written in hexadecimal.
_DECIMAL_BITS = 14_000


def _big_int_to_text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


#: (to what Arrow takes, back) for kinds that Arrow has no type for.
_TEXT_KINDS: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "BIG_INT": (_big_int_to_text, lambda text: int(text, 0)),
    "BIG_DEC": (str, decimal.Decimal),
}


def arrow_type(type_info: TypeInformation) -> pa.DataType:
    """Return the Arrow type that a column of ``type_info`` has in a checkpoint."""
    if isinstance(type_info, BasicTypeInfo):
        return _ARROW_OF_KIND[type_info.kind]
    if isinstance(type_info, ListTypeInfo):
        return pa.large_list(arrow_type(type_info.element_type))
    if isinstance(type_info, MapTypeInfo):
        return pa.map_(arrow_type(type_info.key_type_info), arrow_type(type_info.value_type_info))
    if isinstance(type_info, TupleTypeInfo):
        fields = enumerate(type_info.field_types)
        return pa.struct([(f"f{index}", arrow_type(field)) for index, field in fields])
    if isinstance(type_info, TtlTypeInfo):
        value = pa.field("value", arrow_type(type_info.value_type))
        return pa.struct([pa.field("timestamp_ms", pa.int64(), nullable=False), value])
    if isinstance(type_info, PickledBytesTypeInfo):
        return pa.large_binary()
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].arrow_type
    raise ConfigurationError(f"{type_info} has no place in a checkpoint; use a type made by Types")


def encode_column(type_info: TypeInformation, values: Sequence[Any]) -> pa.Array:
    """Return ``values`` as an Arrow array of ``arrow_type(type_info)``."""
    to_arrow = _to_arrow(type_info)
    if to_arrow is not None:
        values = [None if value is None else to_arrow(value) for value in values]
    return pa.array(values, type=arrow_type(type_info))


def decode_column(type_info: TypeInformation, array: pa.Array) -> list[Any]:
    """Return the values that :func:`encode_column` was given.

    Columns inside columns are decoded as columns: a Python object is made once, by Arrow, for each value.
    """
    values = _decode_column(type_info, array)
    if array.null_count:
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        return [value if there else None for value, there in zip(values, valid, strict=True)]
    return values


def _decode_column(type_info: TypeInformation, array: pa.Array) -> list[Any]:
    """Decode without regard to nulls on the outermost level, unless Arrow sees to it."""
    if isinstance(type_info, ListTypeInfo):
        return _decode_lists(type_info.element_type, array)
    if isinstance(type_info, MapTypeInfo):
        return _decode_maps(type_info, array)
    if isinstance(type_info, TupleTypeInfo):
        return _decode_structs(type_info.field_types, array)
    if isinstance(type_info, TtlTypeInfo):
        return _decode_structs((Types.LONG(), type_info.value_type), array)
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].decode(array)
    values = _to_list(array)
    if isinstance(type_info, PickledBytesTypeInfo):
        loads = pickle.loads  # undeclared state, of the user's own checkpoint
        return [None if value is None else loads(value) for value in values]
    if isinstance(type_info, BasicTypeInfo) and type_info.kind in _TEXT_KINDS:
        from_text = _TEXT_KINDS[type_info.kind][1]
        return [None if value is None else from_text(value) for value in values]
    return values


def _to_list(array: pa.Array) -> list[Any]:
    """Return what ``to_pylist`` does, several times as fast for the most frequent types."""
    arrow = array.type
    numeric = pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_boolean(arrow)
    if (
        (numeric and not array.null_count)
        or pa.types.is_large_string(arrow)
        or pa.types.is_large_binary(arrow)
    ):
        values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
        return values
    values = array.to_pylist()
    return values  # noqa: RET504 - mypy wants its type


def _decode_lists(element_type: TypeInformation, array: pa.LargeListArray) -> list[Any]:
    elements = decode_column(element_type, array.values)
    offsets = array.offsets.to_pylist()
    return [elements[start:end] for start, end in itertools.pairwise(offsets)]


def _decode_maps(type_info: MapTypeInfo, array: pa.MapArray) -> list[Any]:
    keys = decode_column(type_info.key_type_info, array.keys)
    items = decode_column(type_info.value_type_info, array.items)
    offsets = array.offsets.to_pylist()
    return [
        dict(zip(keys[start:end], items[start:end], strict=True))
        for start, end in itertools.pairwise(offsets)
    ]


def _decode_structs(field_types: Sequence[TypeInformation], array: pa.StructArray) -> list[Any]:
    if not field_types:
        return [()] * len(array)
    # Flattened, so that what lies under a null struct is null too, and not whatever Arrow filled it with.
    fields = [decode_column(field, part) for field, part in zip(field_types, array.flatten(), strict=True)]
    return list(zip(*fields, strict=True))


def _dump(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise StateValueError(
            f"a value of {type(value).__module__}.{type(value).__qualname__} cannot be stored: {error}; "
            f"declare a type, or define the class in a module that can be imported, which a restored "
            f"program finds again"
        ) from error


def _optional(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _optional_unless_pickled(convert: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """None in a map is null under a declared type, and its pickle without one: a key cannot be null."""
    return convert if convert is _dump else _optional(convert)


def _to_arrow(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """Return what turns a value into one that Arrow takes, or None where it is one already."""
    if isinstance(type_info, PickledBytesTypeInfo):
        return _dump
    if isinstance(type_info, BasicTypeInfo):
        return _TEXT_KINDS[type_info.kind][0] if type_info.kind in _TEXT_KINDS else None
    if isinstance(type_info, ListTypeInfo):
        element = _to_arrow(type_info.element_type)
        return None if element is None else lambda value: [element(item) for item in value]
    if isinstance(type_info, MapTypeInfo):
        key = _optional_unless_pickled(_to_arrow(type_info.key_type_info))
        item = _optional_unless_pickled(_to_arrow(type_info.value_type_info))
        return lambda value: [(key(name), item(entry)) for name, entry in value.items()]
    if isinstance(type_info, TupleTypeInfo):
        parts = [_optional(_to_arrow(field)) for field in type_info.field_types]
        return lambda value: tuple(part(item) for part, item in zip(parts, value, strict=True))
    if isinstance(type_info, TtlTypeInfo):
        stored = _to_arrow(type_info.value_type)
        if stored is not None:
            # Inside a map, None without a declared type is its pickle, as it is without TTL.
            user_value = _optional_unless_pickled(stored)
            return lambda value: (value[0], user_value(value[1]))
    return _window_to_arrow(type_info)


def _window_to_arrow(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    return WINDOW_COLUMNS[type_info.name].to_arrow if isinstance(type_info, WindowSerializer) else None


# --- copies ----------------------------------------------------------------------------------------


def value_copier(type_info: TypeInformation) -> Callable[[Any], Any] | None:
    """Return what makes an independent copy of a value: shallow where the parts cannot change.

    None says that values of this type cannot change in place at all.
    """
    if _is_flat(type_info):
        return None
    if isinstance(type_info, ListTypeInfo) and _is_flat(type_info.element_type):
        return list
    if isinstance(type_info, MapTypeInfo) and _is_flat(type_info.value_type_info):
        return dict
    return copy.deepcopy


def _is_flat(type_info: TypeInformation) -> bool:
    if isinstance(type_info, TtlTypeInfo):
        return _is_flat(type_info.value_type)
    if isinstance(type_info, TupleTypeInfo):
        return all(map(_is_flat, type_info.field_types))
    return isinstance(type_info, (BasicTypeInfo, WindowSerializer))


# --- types as JSON ---------------------------------------------------------------------------------


def type_to_json(type_info: TypeInformation) -> Any:
    """Return ``type_info`` as JSON values, for the head of a checkpoint file."""
    if isinstance(type_info, BasicTypeInfo):
        return type_info.kind
    if isinstance(type_info, PickledBytesTypeInfo):
        return "PICKLED"
    if isinstance(type_info, ListTypeInfo):
        return ["LIST", type_to_json(type_info.element_type)]
    if isinstance(type_info, MapTypeInfo):
        return ["MAP", *map(type_to_json, (type_info.key_type_info, type_info.value_type_info))]
    if isinstance(type_info, TupleTypeInfo):
        return ["TUPLE", *map(type_to_json, type_info.field_types)]
    if isinstance(type_info, TtlTypeInfo):
        return ["TTL", type_to_json(type_info.value_type)]
    if isinstance(type_info, WindowSerializer):
        return type_info.name
    raise ConfigurationError(f"{type_info} has no place in a checkpoint; use a type made by Types")


#: Types without parts, beside the basic ones.
_NAMED_TYPES: dict[str, TypeInformation] = {
    "PICKLED": Types.PICKLED_BYTE_ARRAY(),
    **{name: column.type_info for name, column in WINDOW_COLUMNS.items()},
}


def type_from_json(spec: Any) -> TypeInformation:
    """Return the type that :func:`type_to_json` was given."""
    if isinstance(spec, str) and spec in _ARROW_OF_KIND:
        return BasicTypeInfo(spec)
    if isinstance(spec, str) and spec in _NAMED_TYPES:
        return _NAMED_TYPES[spec]
    if isinstance(spec, list) and spec:
        parts = [type_from_json(part) for part in spec[1:]]
        if spec[0] == "LIST":
            return ListTypeInfo(*parts)
        if spec[0] == "MAP":
            return MapTypeInfo(*parts)
        if spec[0] == "TUPLE":
            return Types.TUPLE(parts)
        if spec[0] == "TTL":
            return TtlTypeInfo(*parts)
    raise IncompatibleCheckpointError(f"the checkpoint holds a type unknown here: {spec!r}")
