"""The table of all types, the rows of those with parts, and everything that follows from the codec of each.

The rows of other types are written in ``atoms`` and ``internal_types``, and collected here. Types with parts
are lists, arrays, maps, tuples, rows, and the wrappers of another type.

Every declared type has an Arrow type, so pyarrow, pandas or DuckDB can read a checkpoint without this
package. ``PICKLED_BYTE_ARRAY`` is a binary column of pickles. Loading pickles runs code, so they are loaded
only from the user's own checkpoint, and values of a declared type are never pickled.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from pyflinkstate.api import (
    BasicArrayTypeInfo,
    ExternalTypeInfo,
    Json,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    Row,
    RowKind,
    RowTypeInfo,
    T,
    TupleTypeInfo,
    TypedValue,
    TypeInformation,
    names_of,
    rearranged,
    row_of,
)
from pyflinkstate.backends.types.atoms import ATOMS, WIDE_FLOAT, show_row
from pyflinkstate.backends.types.codec import (
    Codec,
    Convert,
    Copy,
    FromArrow,
    JavaHash,
    Recheck,
    Show,
    ToArrow,
    column_values,
    unchanged,
    walk,
)
from pyflinkstate.backends.types.columns import column_of
from pyflinkstate.backends.types.hashes import cannot_be_key, java_hash_of_row, java_hash_of_tuple
from pyflinkstate.backends.types.internal_types import (
    PICKLED,
    SEALED,
    WINDOWS,
    SealedPickles,
    TtlTypeInfo,
    dump_pickle,
)
from pyflinkstate.backends.values import (
    NOTED_FROM,
    CheckedDict,
    CheckedList,
    WatchedDict,
    WatchedList,
    own_copy,
)
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError


def _optional(convert: ToArrow) -> Convert:
    return unchanged if convert is None else _unless_none(convert)


def _optional_unless_pickled(convert: ToArrow) -> Convert:
    """Write None in a map as null, or as its pickle if no type is declared, because a key cannot be null."""
    return dump_pickle if convert is dump_pickle else _optional(convert)


def _unless_none(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _or_null(show: Show) -> Show:
    return lambda value: "null" if value is None else show(value)


def _hashes_of_parts(type_info: TypeInformation, parts: Sequence[JavaHash | None]) -> list[JavaHash]:
    for part, found in zip(type_info.parts(), parts, strict=True):
        if found is None:
            raise cannot_be_key(part)
    return [found for found in parts if found is not None]


def _elements(value: Any) -> Iterable[TypedValue]:
    """Iterate over a list, but not by a method of its own, which may record what it hands out."""
    return list.__iter__(value) if isinstance(value, list) else value


def _items(value: Any) -> Iterable[tuple[TypedValue, TypedValue]]:
    """Do the same with a dict."""
    return dict.items(value) if isinstance(value, dict) else value.items()


# --- lists and arrays ------------------------------------------------------------------------------


def _list_to_arrow(_: ListTypeInfo, parts: Sequence[ToArrow]) -> ToArrow:
    (element,) = parts
    return None if element is None else lambda value: [element(item) for item in _elements(value)]


def _array_to_arrow(_: TypeInformation, parts: Sequence[ToArrow]) -> ToArrow:
    element = _optional(parts[0])
    return lambda value: [element(item) for item in _elements(value)]


def _lists_from_arrow(_: TypeInformation, parts: Sequence[FromArrow]) -> FromArrow:
    (part,) = parts

    def lists(array: pa.LargeListArray) -> list[TypedValue]:
        elements = part(array.values)
        return [elements[start:end] for start, end in itertools.pairwise(array.offsets.to_pylist())]

    return lists


def _list_text(_: TypeInformation, parts: Sequence[Show]) -> Show:
    element = _or_null(parts[0])
    return lambda value: f"[{', '.join(map(element, _elements(value)))}]"


def _converted_list(
    _: TypeInformation, now: TypeInformation, places: Sequence[int | None], parts: Sequence[Convert]
) -> Convert:
    (element,) = parts
    if element is unchanged:
        return unchanged
    return _unless_none(lambda value: [element(item) for item in value])


def _list_recheck(
    type_info: TypeInformation, parts: Sequence[Recheck | None], is_flat: bool, is_rebuilt: bool
) -> Recheck:
    """Check only the elements that a list of the state itself has recorded as unchecked."""
    (part,) = parts
    kind, noted_from = CheckedList if is_flat else WatchedList, _noted_from(part)

    def recheck(value: object, stored: Any) -> TypedValue:
        if value is not stored:
            return type_info.check(value)
        if len(value) < noted_from:
            return _as_short(value, type_info.check(value), is_rebuilt)
        if type(value) is not kind or value.checked_by is not recheck:
            return kind(type_info.check(value), recheck, None if is_rebuilt else value)
        positions = value.unchecked()
        if positions:
            _check_elements(type_info, part, value, positions)
        return value

    return recheck


def _noted_from(part: Recheck | None) -> int:
    """Return how long a list or dict must be to be worth a record: even a short one can hold long lists."""
    return NOTED_FROM if part is None else 1


def _as_short(value: Any, checked: Any, is_rebuilt: bool) -> TypedValue:
    """Return a short list or dict of the state's own as it was checked, the same object if parts are kept."""
    if is_rebuilt:
        return checked
    value.clear()
    grow = value.extend if isinstance(value, list) else value.update
    grow(checked)
    return value


def _check_elements(
    type_info: TypeInformation, part: Recheck | None, value: CheckedList, positions: list[int]
) -> None:
    found = [list.__getitem__(value, position) for position in positions]
    if part is None or any(element is None for element in found):
        elements = type_info.check(found)
    else:
        given = value.take_given()  # each of them is kept once, in case it is there twice
        elements = [part(element, given.pop(id(element), None)) for element in found]
    for position, element in zip(positions, elements, strict=True):
        value.replace_checked(position, element)
    value.note_checked()


def _sequence(
    name: str,
    make: Callable[[TypeInformation], TypeInformation],
    to_arrow: Callable[[Any, Sequence[ToArrow]], ToArrow] = _array_to_arrow,
    may_become: frozenset[str] = frozenset(),
) -> Codec:
    return Codec(
        name=name,
        arrow=lambda _, parts: pa.large_list(parts[0]),
        to_arrow=to_arrow,
        from_arrow=_lists_from_arrow,
        copier=lambda parts: list if parts[0] is None else own_copy,
        recheck=_list_recheck,
        text=_list_text,
        is_composite=True,
        make=make,
        may_become=may_become,
        converted=_converted_list,
    )


# --- maps ------------------------------------------------------------------------------------------


def _map_to_arrow(_: MapTypeInfo, parts: Sequence[ToArrow]) -> ToArrow:
    key, item = map(_optional_unless_pickled, parts)
    return lambda value: [(key(name), item(entry)) for name, entry in _items(value)]


def _maps_from_arrow(_: MapTypeInfo, parts: Sequence[FromArrow]) -> FromArrow:
    of_keys, of_items = parts

    def maps(array: pa.MapArray) -> list[TypedValue]:
        keys, items = of_keys(array.keys), of_items(array.items)
        return [
            dict(zip(keys[start:end], items[start:end], strict=True))
            for start, end in itertools.pairwise(array.offsets.to_pylist())
        ]

    return maps


def _map_text(_: MapTypeInfo, parts: Sequence[Show]) -> Show:
    key, item = map(_or_null, parts)
    return lambda value: f"{{{', '.join([f'{key(k)}={item(v)}' for k, v in _items(value)])}}}"


def _converted_map(
    _: MapTypeInfo, now: MapTypeInfo, places: Sequence[int | None], parts: Sequence[Convert]
) -> Convert:
    name, item = parts
    if name is unchanged:
        if item is unchanged:
            return unchanged
        return _unless_none(lambda value: {key: item(entry) for key, entry in value.items()})

    def convert(value: dict[TypedValue, TypedValue]) -> dict[TypedValue, TypedValue]:
        converted = {name(key): item(entry) for key, entry in value.items()}
        if len(converted) != len(value):
            raise ValueError(f"two of its {len(value)} keys would be one under {now.key_type_info}")
        return converted

    return _unless_none(convert)


def _map_recheck(
    type_info: MapTypeInfo, parts: Sequence[Recheck | None], is_flat: bool, is_rebuilt: bool
) -> Recheck:
    """Check only the entries that a dict of the state itself has recorded as unchecked."""
    kind, noted_from = CheckedDict if is_flat else WatchedDict, _noted_from(parts[1])
    item_recheck = recheck_of_part(type_info.value_type_info, parts[1])

    def recheck(value: object, stored: Any) -> TypedValue:
        if value is not stored:
            return type_info.check(value)
        if len(value) < noted_from:
            return _as_short(value, type_info.check(value), is_rebuilt)
        if type(value) is not kind or value.checked_by is not recheck:
            return kind(type_info.check(value), recheck, None if is_rebuilt else value)
        entries = value.unchecked()
        checked = type_info.check(entries)
        if any(key is not kept for key, kept in zip(entries, checked)):  # noqa: B905 - two keys may become one
            return kind(type_info.check(value), recheck, None if is_rebuilt else value)
        checked.update([(key, item_recheck(item, item)) for key, item in value.given().items()])
        for key, item in checked.items():
            value.replace_checked(key, item)
        value.note_checked()
        return value

    return recheck


# --- tuples and rows -------------------------------------------------------------------------------


def _tuple_to_arrow(_: TypeInformation, parts: Sequence[ToArrow]) -> Convert:
    fields = [_optional(part) for part in parts]
    return lambda value: tuple([field(item) for field, item in zip(fields, value, strict=True)])


def _structs(parts: Sequence[FromArrow], array: pa.StructArray) -> list[Any]:
    if not parts:
        return [()] * len(array)
    # Flattened, so that the fields of a null struct are null too, not whatever Arrow put there.
    return list(zip(*[part(field) for part, field in zip(parts, array.flatten(), strict=True)], strict=True))


def _tuple_recheck(type_info: TupleTypeInfo, parts: Sequence[Recheck | None], *_: bool) -> Recheck | None:
    """Check each field against the stored one: the tuple is new, but its fields may be the stored objects."""
    fields = [recheck_of_part(*pair) for pair in zip(type_info.field_types, parts, strict=True)]

    def recheck(value: object, stored: object) -> TypedValue:
        if (
            type(value) is not tuple
            or type(stored) is not tuple
            or not len(value) == len(stored) == len(fields)
        ):
            return type_info.check(value)
        return tuple([field(item, was) for field, item, was in zip(fields, value, stored, strict=True)])

    return recheck if any(parts) else None


def recheck_of_part(type_info: TypeInformation, recheck: Recheck | None) -> Recheck:
    """Return the function that checks a part, from the :func:`rechecker` of its type; it accepts None."""
    if recheck is None:
        check = type_info.check
        return lambda item, _: None if item is None else check(item)
    return lambda item, stored: None if item is None else recheck(item, stored)


def _row_recheck(type_info: RowTypeInfo, parts: Sequence[Recheck | None], *_: bool) -> Recheck | None:
    """Check each field against the stored one; a row of the state itself stays the same object."""
    names = type_info.field_names
    fields = [_recheck_of_field(*field) for field in zip(names, type_info.field_types, parts, strict=True)]

    def recheck(value: Any, stored: Any) -> TypedValue:
        if not (_has_fields(value, names) and _has_fields(stored, names)):
            return type_info.check(value)
        checked = [field(item, was) for field, item, was in zip(fields, value, stored, strict=True)]
        if value is not stored:
            return row_of(checked, names, value.get_row_kind())
        value[:] = checked
        return value

    return recheck if any(parts) else None


def _has_fields(value: TypedValue, names: tuple[str, ...]) -> bool:
    """Return whether a value is a row that has its fields in the order of ``names``."""
    if type(value) is not Row or len(value) != len(names):
        return False
    own = names_of(value)
    return own is None or own == names


def _recheck_of_field(name: str, type_info: TypeInformation, recheck: Recheck | None) -> Recheck:
    """Return the function that checks a field of a row, whose errors name the field."""
    of_part = recheck_of_part(type_info, recheck)

    def of_field(item: TypedValue, stored: TypedValue) -> TypedValue:
        try:
            return of_part(item, stored)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None

    return of_field


def _tuple_hash(type_info: TupleTypeInfo, parts: Sequence[JavaHash | None]) -> JavaHash:
    fields = _hashes_of_parts(type_info, parts)
    return lambda key: java_hash_of_tuple(
        [0 if item is None else field(item) for field, item in zip(fields, key, strict=True)]
    )


def _tuple_text(_: TupleTypeInfo, parts: Sequence[Show]) -> Show:
    fields = [_or_null(part) for part in parts]
    return lambda value: f"({','.join([show(item) for show, item in zip(fields, value, strict=True)])})"


def _converted_fields(parts: Sequence[Convert], value: Iterable[TypedValue]) -> list[TypedValue]:
    return [field(item) for field, item in zip(parts, value, strict=True)]


def _converted_tuple(
    _: TupleTypeInfo, now: TupleTypeInfo, places: Sequence[int | None], parts: Sequence[Convert]
) -> Convert:
    if all(part is unchanged for part in parts):
        return unchanged
    return _unless_none(lambda value: tuple(_converted_fields(parts, value)))


def _row_arrow(type_info: RowTypeInfo, parts: Sequence[pa.DataType]) -> pa.DataType:
    names = type_info.field_names
    fields = [pa.field(name, part) for name, part in zip(names, parts, strict=True)]
    return pa.struct([pa.field(_row_kind_name(names), pa.int8()), *fields])


def _row_kind_name(names: Sequence[str]) -> str:
    """Return the name for the column of a row's kind, which differs from all field names."""
    name = "row_kind"
    while name in names:
        name += "_"
    return name


def _row_to_arrow(type_info: RowTypeInfo, parts: Sequence[ToArrow]) -> Convert:
    fields = _tuple_to_arrow(type_info, parts)
    return lambda row: (row.get_row_kind().value, *fields(row))


_ROW_KINDS = tuple(RowKind)


def _rows_from_arrow(type_info: RowTypeInfo, parts: Sequence[FromArrow]) -> FromArrow:
    names, columns = type_info.field_names, [column_values, *parts]
    return lambda array: [
        row_of(values, names, _ROW_KINDS[row_kind or 0])  # a null row has no kind
        for row_kind, *values in _structs(columns, array)
    ]


def _row_hash(type_info: RowTypeInfo, parts: Sequence[JavaHash | None]) -> JavaHash:
    fields = _hashes_of_parts(type_info, parts)

    def java_hash_of(key: Row) -> int:
        codes = [None if item is None else field(item) for field, item in zip(fields, key, strict=True)]
        return java_hash_of_row(key.get_row_kind(), codes)

    return java_hash_of


def names_under(was: RowTypeInfo, now: RowTypeInfo) -> tuple[str, ...]:
    """Return the names under which the fields of ``was`` are looked up in ``now``.

    These are their own names. But a row may get names or lose all of them; then its fields keep their places.
    """
    may_be_named = _is_unnamed(was) or _is_unnamed(now)
    if may_be_named and len(was.field_names) == len(now.field_names):
        return was.field_names if set(was.field_names) & set(now.field_names) else now.field_names
    return was.field_names


def _is_unnamed(row: RowTypeInfo) -> bool:
    return row.field_names == RowTypeInfo(row.field_types).field_names


def _places_of_row(was: RowTypeInfo, now: RowTypeInfo) -> list[int | None]:
    names = names_under(was, now)
    if names and not set(names) & set(now.field_names):
        raise ValueError(f"no field of {was} is in {now}: fields are found by their names")
    return [names.index(name) if name in names else None for name in now.field_names]


def _converted_row(
    was: RowTypeInfo, now: RowTypeInfo, places: Sequence[int | None], parts: Sequence[Convert]
) -> Convert:
    names, is_plain = now.field_names, all(part is unchanged for part in parts)
    if is_plain and names == was.field_names:
        return unchanged
    picked = [-1 if place is None else place for place in places]
    if is_plain:
        return _unless_none(lambda row: rearranged(row, picked, names))

    def convert(row: Row) -> Row:
        values = rearranged(row, picked, names)
        return row_of(_converted_fields(parts, values), names, row.get_row_kind())

    return _unless_none(convert)


# --- around another type ---------------------------------------------------------------------------


def _only(_: TypeInformation, parts: Sequence[T]) -> T:
    """Return the result for the one part, which holds for the type as well."""
    (part,) = parts
    return part


def _ttl_recheck(type_info: TtlTypeInfo, parts: Sequence[Recheck | None], *_: bool) -> Recheck | None:
    (part,) = parts
    if part is None:
        return None
    user_value = recheck_of_part(type_info.value_type, part)
    return lambda value, stored: (value[0], user_value(value[1], None if stored is None else stored[1]))


def _ttl_to_arrow(_: TtlTypeInfo, parts: Sequence[ToArrow]) -> ToArrow:
    (stored,) = parts
    if stored is None:
        return None
    # Inside a map, None without a declared type is written as its pickle, as without TTL.
    user_value = _optional_unless_pickled(stored)
    return lambda value: (value[0], user_value(value[1]))


COMPOSITES: dict[type[TypeInformation], Codec] = {
    ListTypeInfo: _sequence(
        "LIST",
        ListTypeInfo,
        _list_to_arrow,
        # Earlier releases wrote arrays as lists. The reverse is refused: an array may hold None.
        may_become=frozenset({"PRIMITIVE_ARRAY", "BASIC_ARRAY", "OBJECT_ARRAY"}),
    ),
    PrimitiveArrayTypeInfo: _sequence(
        "PRIMITIVE_ARRAY", PrimitiveArrayTypeInfo, may_become=frozenset({"BASIC_ARRAY", "OBJECT_ARRAY"})
    ),
    BasicArrayTypeInfo: _sequence("BASIC_ARRAY", BasicArrayTypeInfo, may_become=frozenset({"OBJECT_ARRAY"})),
    ObjectArrayTypeInfo: _sequence("OBJECT_ARRAY", ObjectArrayTypeInfo),
    MapTypeInfo: Codec(
        name="MAP",
        arrow=lambda _, parts: pa.map_(*parts),
        to_arrow=_map_to_arrow,
        from_arrow=_maps_from_arrow,
        copier=lambda parts: dict if parts[1] is None else own_copy,
        recheck=_map_recheck,
        text=_map_text,
        is_composite=True,
        make=MapTypeInfo,
        converted=_converted_map,
        key_parts=1,
    ),
    TupleTypeInfo: Codec(
        name="TUPLE",
        arrow=lambda _, parts: pa.struct([pa.field(f"f{n}", part) for n, part in enumerate(parts)]),
        to_arrow=_tuple_to_arrow,
        from_arrow=lambda _, parts: lambda array: _structs(parts, array),
        copier=lambda parts: own_copy if any(parts) else None,
        recheck=_tuple_recheck,
        java_hash=_tuple_hash,
        hash_version=2,
        text=_tuple_text,
        is_composite=True,
        make=lambda *parts: TupleTypeInfo(parts),
        converted=_converted_tuple,
    ),
    RowTypeInfo: Codec(
        name="ROW",
        arrow=_row_arrow,
        to_arrow=_row_to_arrow,
        from_arrow=_rows_from_arrow,
        copier=lambda parts: own_copy if any(parts) else copy.copy,
        recheck=_row_recheck,
        java_hash=_row_hash,
        text=lambda _, parts: show_row,
        is_composite=True,
        details=lambda type_info: (type_info.get_field_names(),),
        detail_count=1,
        make=lambda names, *parts: RowTypeInfo(parts, names),
        places=_places_of_row,
        converted=_converted_row,
    ),
    ExternalTypeInfo: Codec(
        name="EXTERNAL",
        arrow=_only,
        to_arrow=_only,
        from_arrow=_only,
        copier=lambda parts: parts[0],
        recheck=lambda _, parts, *how: parts[0],
        java_hash=lambda of, parts: _hashes_of_parts(of, parts)[0],
        text=_only,
        is_composite=True,
        make=ExternalTypeInfo,
    ),
    TtlTypeInfo: Codec(
        name="TTL",
        arrow=lambda _, parts: pa.struct(
            [pa.field("timestamp_ms", pa.int64(), nullable=False), pa.field("value", parts[0])]
        ),
        to_arrow=_ttl_to_arrow,
        from_arrow=lambda _, parts: lambda array: _structs([column_values, *parts], array),
        copier=lambda parts: own_copy if any(parts) else None,
        recheck=_ttl_recheck,
        is_composite=True,
        make=TtlTypeInfo,
    ),
}

_OF_CLASS: dict[type, Codec] = {
    **COMPOSITES,
    **WINDOWS,
    PickledBytesTypeInfo: PICKLED,
    SealedPickles: SEALED,
}

#: The codecs by the names of types in checkpoints, which are the kinds of types without parts. Sealed pickles
#: have no name of their own.
OF_NAME = {codec.name: codec for codec in (*_OF_CLASS.values(), *ATOMS) if codec.make is not None}

#: The codec of user-defined types, whose values no checkpoint has.
USER_DEFINED = Codec(name="", arrow=lambda _, parts: pa.null(), makes_new=False, may_be_nan=True)

#: The errors that :func:`encode_column` raises for a value that does not fit its type.
MISFITS = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


def find_codec(type_info: TypeInformation) -> Codec:
    """Return the codec of a type or of its base class; ``USER_DEFINED`` if it has none."""
    if type_info.kind:
        return OF_NAME.get(type_info.kind, USER_DEFINED)
    known = (_OF_CLASS[cls] for cls in type(type_info).__mro__ if cls in _OF_CLASS)
    return next(known, USER_DEFINED)


def codec_of(type_info: TypeInformation) -> Codec:
    """Return the codec of a type; raise ``ConfigurationError`` if it has none."""
    codec = find_codec(type_info)
    if codec is USER_DEFINED:
        raise ConfigurationError(f"{type_info} cannot be written to a checkpoint; use a type made by Types")
    return codec


def has_own_codec(type_info: TypeInformation) -> bool:
    """Return whether there is a codec for exactly this type, not only for a base class."""
    return type_info.kind in OF_NAME or type(type_info) in _OF_CLASS


# --- values ------------------------------------------------------------------------------------------


def exact_class(type_info: TypeInformation) -> type | None:
    """Return the class of which all values of a type are, if ``check`` returns such values unchanged."""
    return find_codec(type_info).exact


def may_hold_nan(type_info: TypeInformation) -> bool:
    """Return whether a value of a type may be NaN or have it as a part; True for a user-defined type."""
    return walk(type_info, lambda of, parts: find_codec(of).may_be_nan or any(parts))


def java_hash_of_type(key_type: TypeInformation) -> JavaHash:
    """Return the function that hashes keys of a type; ``ConfigurationError`` if values cannot be keys."""
    found: JavaHash | None = walk(key_type, lambda of, parts: find_codec(of).java_hash(of, parts))
    if found is None:
        raise cannot_be_key(key_type)
    return found


def hash_version(key_type: TypeInformation) -> int:
    """Return the version since which keys of a type have had their present hash."""
    return walk(key_type, _hash_version)


def _hash_version(type_info: TypeInformation, parts: list[int]) -> int:
    return max([find_codec(type_info).hash_version, *parts])


def text_of_type(type_info: TypeInformation) -> Show:
    """Return the function that prints values of a type other than None.

    Values of a user-defined type are printed as Python prints them.
    """
    return walk(type_info, lambda of, parts: find_codec(of).text(of, parts))


# --- names in checkpoints ------------------------------------------------------------------------------


def type_to_json(type_info: TypeInformation) -> Json:
    """Return ``type_info`` as JSON values, for the head of a checkpoint file."""
    return walk(type_info, _to_json)


def _to_json(type_info: TypeInformation, parts: list[Json]) -> Json:
    codec = codec_of(type_info)
    return [codec.name, *codec.details(type_info), *parts] if codec.is_composite else codec.name


def type_from_json(spec: Any) -> TypeInformation:
    """Return the type that was passed to :func:`type_to_json`."""
    is_composite = isinstance(spec, list) and bool(spec)
    name, *rest = spec if is_composite else [spec]
    codec = OF_NAME.get(name) if isinstance(name, str) else None
    if codec is None or codec.make is None or codec.is_composite != is_composite:
        raise IncompatibleCheckpointError(
            f"the checkpoint holds a type that this release does not know: {spec!r}"
        )
    details, parts = rest[: codec.detail_count], rest[codec.detail_count :]
    return codec.make(*details, *map(type_from_json, parts))


# --- columns -------------------------------------------------------------------------------------------


def arrow_type(type_info: TypeInformation, float_type: pa.DataType = WIDE_FLOAT) -> pa.DataType:
    """Return the Arrow type of a column of ``type_info`` in a checkpoint.

    Args:
        type_info: the type.
        float_type: the Arrow type of ``FLOAT`` numbers; earlier files have ``NARROW_FLOAT``.
    """

    def arrow(visited: TypeInformation, parts: list[pa.DataType]) -> pa.DataType:
        return float_type if visited.kind == "FLOAT" else codec_of(visited).arrow(visited, parts)

    return walk(type_info, arrow)


def encode_column(type_info: TypeInformation, values: Sequence[TypedValue]) -> pa.Array:
    """Return ``values`` as an Arrow array of ``arrow_type(type_info)``."""
    to_arrow: ToArrow = walk(type_info, lambda of, parts: codec_of(of).to_arrow(of, parts))
    if to_arrow is not None:
        values = [None if value is None else to_arrow(value) for value in values]
    return column_of(values, arrow_type(type_info))


def decode_column(type_info: TypeInformation, array: pa.Array) -> list[TypedValue]:
    """Return the values that were passed to :func:`encode_column`.

    Columns inside columns are decoded as columns, so that Arrow makes a Python object only once for each
    value.
    """
    return walk(type_info, _from_arrow)(array)


def _from_arrow(type_info: TypeInformation, parts: list[FromArrow]) -> FromArrow:
    decode = codec_of(type_info).from_arrow(type_info, parts)

    def with_nulls(array: pa.Array) -> list[TypedValue]:
        values = decode(array)
        if array.null_count:
            valid = array.is_valid().to_numpy(zero_copy_only=False)
            return [value if there else None for value, there in zip(values, valid, strict=True)]
        return values

    return with_nulls


# --- how values are kept apart: by a copy, or by a check that makes a new value --------------------------


def value_copier(type_info: TypeInformation) -> Copy:
    """Return the function that makes independent copies of values, shallow if the parts cannot change.

    None means that values of this type cannot change in place at all.
    """
    return walk(type_info, lambda of, parts: find_codec(of).copier(parts))


def rebuilds(type_info: TypeInformation) -> bool:
    """Return whether the result of ``check`` shares nothing mutable with the value that is checked."""
    return walk(type_info, lambda of, parts: has_own_codec(of) and find_codec(of).makes_new and all(parts))


def rechecker(type_info: TypeInformation) -> Recheck | None:
    """Return the function that checks a value which replaces a stored one that no snapshot shares.

    It neither checks nor copies again what is already stored and has not changed. None means that ``check``
    is as good: a value has no lists or dicts, or all of them must be checked.
    """
    return walk(type_info, _rechecker)


def _rechecker(type_info: TypeInformation, parts: list[Recheck | None]) -> Recheck | None:
    if not has_own_codec(type_info):
        return None
    is_flat = all(value_copier(part) is None for part in type_info.parts())
    return find_codec(type_info).recheck(type_info, parts, is_flat, rebuilds(type_info))
