"""How typed values become Arrow columns, and come back.

``PICKLED_BYTE_ARRAY`` is a binary column of pickles: loading it runs code, so it is loaded only from the
user's own checkpoint, and a declared type never goes through it.
"""

from __future__ import annotations

import decimal
import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from pyflinkstate.api.row import Row, RowKind, row_of
from pyflinkstate.api.time import Instant
from pyflinkstate.api.types import (
    ArrayTypeInfo,
    BasicArrayTypeInfo,
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
from pyflinkstate.backends.types.arrow import arrow_type, bare
from pyflinkstate.backends.types.namespaces import WINDOW_COLUMNS
from pyflinkstate.backends.types.sealing import SealedPickles
from pyflinkstate.backends.types.ttl_type import TtlTypeInfo
from pyflinkstate.errors import (
    StateMigrationError,
    StateValueError,
)

#: Fixed, so that a checkpoint taken by one Python version is readable by an older one.
PICKLE_PROTOCOL = 5

#: Python converts ints of up to 4300 decimal digits; larger ones are written in hexadecimal.
_DECIMAL_BITS = 14_000


def _big_int_to_text(value: int) -> str:
    return str(value) if value.bit_length() <= _DECIMAL_BITS else hex(value)


#: (to what Arrow takes, back) for kinds that Arrow has no type for.
_CONVERTED_KINDS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "BIG_INT": (_big_int_to_text, lambda text: int(text, 0)),
    "BIG_DEC": (str, decimal.Decimal),
    "INSTANT": (lambda instant: (instant.seconds, instant.nanos), lambda parts: Instant(**parts)),
}

_ROW_KINDS = tuple(RowKind)


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
    if isinstance(type_info, WindowSerializer):
        return WINDOW_COLUMNS[type_info.name].decode(array)
    type_info = bare(type_info)
    if type_info.kind in _CONVERTED_KINDS:
        convert = _CONVERTED_KINDS[type_info.kind][1]
        return [None if value is None else convert(value) for value in _to_list(array)]
    decode = None if type_info.kind else _DECODERS.get(type(type_info))
    return _to_list(array) if decode is None else decode(type_info, array)


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


def _decode_pickles(type_info: PickledBytesTypeInfo, array: pa.Array) -> list[Any]:
    return [load_pickle(value) for value in _to_list(array)]


def load_pickle(data: bytes | None) -> Any:
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


def _leave_sealed(type_info: SealedPickles, array: pa.Array) -> list[Any]:
    return _to_list(array)


def _decode_lists(type_info: ListTypeInfo | ArrayTypeInfo, array: pa.LargeListArray) -> list[Any]:
    elements = decode_column(type_info.element_type, array.values)
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


def _decode_tuples(type_info: TupleTypeInfo, array: pa.StructArray) -> list[Any]:
    return _decode_structs(type_info.field_types, array)


def _decode_rows(type_info: RowTypeInfo, array: pa.StructArray) -> list[Any]:
    names = type_info.field_names
    return [
        row_of(values, names, _ROW_KINDS[row_kind or 0])  # no kind is under a null
        for row_kind, *values in _decode_structs((Types.BYTE(), *type_info.field_types), array)
    ]


def _decode_ttl(type_info: TtlTypeInfo, array: pa.StructArray) -> list[Any]:
    return _decode_structs((Types.LONG(), type_info.value_type), array)


_DECODERS: dict[type, Callable[[Any, Any], list[Any]]] = {
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
_Convert = Callable[[Any], Any] | None


def _dump(value: Any) -> bytes:
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise StateValueError(
            f"a value of {type(value).__module__}.{type(value).__qualname__} cannot be stored: {error}; "
            f"declare a type, or define the class in a module that can be imported, which a restored "
            f"program finds again"
        ) from error


def _optional(convert: _Convert) -> Callable[[Any], Any]:
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _optional_unless_pickled(convert: _Convert) -> Callable[[Any], Any]:
    """None in a map is null under a declared type, and its pickle without one: a key cannot be null."""
    return convert if convert is _dump else _optional(convert)


def _to_arrow(type_info: TypeInformation) -> _Convert:
    """Return what turns a value into one that Arrow takes, or None where it is one already."""
    type_info = bare(type_info)
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

    def of_tuple(value: Any) -> tuple[Any, ...]:
        return tuple([part(item) for part, item in zip(parts, value, strict=True)])

    def of_row(row: Row) -> tuple[Any, ...]:
        return row.get_row_kind().value, *of_tuple(row)

    return of_row if isinstance(type_info, RowTypeInfo) else of_tuple


def _ttl_to_arrow(type_info: TtlTypeInfo) -> _Convert:
    stored = _to_arrow(type_info.value_type)
    if stored is None:
        return None
    # Inside a map, None without a declared type is its pickle, as it is without TTL.
    user_value = _optional_unless_pickled(stored)
    return lambda value: (value[0], user_value(value[1]))
