"""The table of all types: the codec of each, with all that a backend knows about it.

The rows are written in ``atoms``, ``composites``, ``namespaces`` and ``pickles``, and collected here.
"""

from __future__ import annotations

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.backends.types.atoms import ATOMS
from pyflinkstate.backends.types.codec import Codec, Convert, JavaHash, Show, WrittenForm, unchanged, walk
from pyflinkstate.backends.types.composites import COMPOSITES
from pyflinkstate.backends.types.hashes import cannot_be_key
from pyflinkstate.backends.types.namespaces import WINDOWS
from pyflinkstate.backends.types.pickles import PICKLED, SEALED, SealedPickles
from pyflinkstate.errors import ConfigurationError

_OF_CLASS: dict[type, Codec] = {
    **COMPOSITES,
    **WINDOWS,
    PickledBytesTypeInfo: PICKLED,
    SealedPickles: SEALED,
}

#: The codecs by the names of types in checkpoints, which are the kinds of types without parts. Sealed pickles
#: have no name of their own.
OF_NAME = {codec.name: codec for codec in (*_OF_CLASS.values(), *ATOMS) if codec.make is not None}


def find_codec(type_info: TypeInformation) -> Codec | None:
    """Return the codec of a type or of its base class; None for a user-defined type."""
    if type_info.kind:
        return OF_NAME.get(type_info.kind)
    return next((_OF_CLASS[cls] for cls in type(type_info).__mro__ if cls in _OF_CLASS), None)


def codec_of(type_info: TypeInformation) -> Codec:
    """Return the codec of a type; raise ``ConfigurationError`` if it has none."""
    codec = find_codec(type_info)
    if codec is None:
        raise ConfigurationError(f"{type_info} cannot be written to a checkpoint; use a type made by Types")
    return codec


def has_own_codec(type_info: TypeInformation) -> bool:
    """Return whether there is a codec for exactly this type, not only for a base class."""
    return type_info.kind in OF_NAME or type(type_info) in _OF_CLASS


def written_form(type_info: TypeInformation) -> WrittenForm | None:
    """Return how values of a type are written as a string; None if they are written as JSON."""
    codec = find_codec(type_info)
    return None if codec is None else codec.written


def exact_class(type_info: TypeInformation) -> type | None:
    """Return the class of which all values of a type are, if ``check`` returns such values unchanged."""
    codec = find_codec(type_info)
    return None if codec is None else codec.exact


def value_of_cell(type_info: TypeInformation) -> Convert:
    """Return the function that converts cells of a user's table, for a type without parts."""
    codec = find_codec(type_info)
    return unchanged if codec is None else codec.value_of_cell


def may_hold_nan(type_info: TypeInformation) -> bool:
    """Return whether a value of a type may be NaN or have it as a part; True for a user-defined type."""
    return walk(type_info, _may_hold_nan)


def _may_hold_nan(type_info: TypeInformation, parts: list[bool]) -> bool:
    codec = find_codec(type_info)
    return codec is None or codec.may_be_nan or any(parts)


def java_hash_of_type(key_type: TypeInformation) -> JavaHash:
    """Return the function that hashes keys of a type; ``ConfigurationError`` if values cannot be keys."""
    found = walk(key_type, _java_hash)
    if found is None:
        raise cannot_be_key(key_type)
    return found


def _java_hash(type_info: TypeInformation, parts: list[JavaHash | None]) -> JavaHash | None:
    codec = find_codec(type_info)
    return None if codec is None else codec.java_hash(type_info, parts)


def hash_version(key_type: TypeInformation) -> int:
    """Return the version since which keys of a type have had their present hash."""
    return walk(key_type, _hash_version)


def _hash_version(type_info: TypeInformation, parts: list[int]) -> int:
    codec = find_codec(type_info)
    return max([1 if codec is None else codec.hash_version, *parts])


def text_of_type(type_info: TypeInformation) -> Show:
    """Return the function that prints values of a type other than None.

    Values of a user-defined type are printed as Python prints them.
    """
    return walk(type_info, _text)


def _text(type_info: TypeInformation, parts: list[Show]) -> Show:
    codec = find_codec(type_info)
    return str if codec is None else codec.text(type_info, parts)
