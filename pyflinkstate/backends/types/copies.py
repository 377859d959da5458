"""How values of a declared type are kept apart: by a copy, or by a check that makes a new value."""

from __future__ import annotations

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.types.codec import Copy, Recheck, walk
from pyflinkstate.backends.types.table import codec_of, find_codec, has_own_codec
from pyflinkstate.backends.values import own_copy


def value_copier(type_info: TypeInformation) -> Copy:
    """Return the function that makes independent copies of values, shallow if the parts cannot change.

    None means that values of this type cannot change in place at all.
    """
    return walk(type_info, _copier)


def _copier(type_info: TypeInformation, parts: list[Copy]) -> Copy:
    codec = find_codec(type_info)
    return own_copy if codec is None else codec.copier(parts)


def rebuilds(type_info: TypeInformation) -> bool:
    """Return whether the result of ``check`` shares nothing mutable with the value that is checked."""
    return walk(type_info, _rebuilds)


def _rebuilds(type_info: TypeInformation, parts: list[bool]) -> bool:
    return has_own_codec(type_info) and codec_of(type_info).makes_new and all(parts)


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
    return codec_of(type_info).recheck(type_info, parts, is_flat, rebuilds(type_info))
