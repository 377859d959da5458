"""The table of all types, and everything that follows from the codec of each.

The rows are written in ``atoms``, ``composites`` and ``internal_types``, and collected here.

Every declared type has an Arrow type, so pyarrow, pandas or DuckDB can read a checkpoint without this
package. ``PICKLED_BYTE_ARRAY`` is a binary column of pickles. Loading pickles runs code, so they are loaded
only from the user's own checkpoint, and values of a declared type are never pickled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyflinkstate.api import Json, PickledBytesTypeInfo, TypedValue, TypeInformation
from pyflinkstate.backends.types.atoms import ATOMS, WIDE_FLOAT
from pyflinkstate.backends.types.codec import (
    Codec,
    Convert,
    Copy,
    FromArrow,
    JavaHash,
    Recheck,
    Show,
    ToArrow,
    WrittenForm,
    walk,
)
from pyflinkstate.backends.types.composites import COMPOSITES
from pyflinkstate.backends.types.hashes import cannot_be_key
from pyflinkstate.backends.types.internal_types import PICKLED, SEALED, WINDOWS, SealedPickles
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError

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


def written_form(type_info: TypeInformation) -> WrittenForm | None:
    """Return how values of a type are written as a string; None if they are written as JSON."""
    return find_codec(type_info).written


def exact_class(type_info: TypeInformation) -> type | None:
    """Return the class of which all values of a type are, if ``check`` returns such values unchanged."""
    return find_codec(type_info).exact


def value_of_cell(type_info: TypeInformation) -> Convert:
    """Return the function that converts cells of a user's table, for a type without parts."""
    return find_codec(type_info).value_of_cell


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
    return pa.array(values, type=arrow_type(type_info))


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
    copier: Copy = walk(type_info, lambda of, parts: find_codec(of).copier(parts))
    return copier


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
