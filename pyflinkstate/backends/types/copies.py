"""How values of a declared type are kept apart: copied, or made anew by their check."""

from __future__ import annotations

import copy

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.types.codec import Copy, Recheck, walk
from pyflinkstate.backends.types.table import codec_of, find_codec, has_own_codec


def value_copier(type_info: TypeInformation) -> Copy:
    """Return what makes an independent copy of a value: shallow where the parts cannot change.

    None says that values of this type cannot change in place at all.
    """
    return walk(type_info, _copier)


def _copier(type_info: TypeInformation, parts: list[Copy]) -> Copy:
    codec = find_codec(type_info)
    return copy.deepcopy if codec is None else codec.copier(parts)


def rebuilds(type_info: TypeInformation) -> bool:
    """Return whether what ``check`` gives shares nothing that can change with what is checked."""
    return walk(type_info, _rebuilds)


def _rebuilds(type_info: TypeInformation, parts: list[bool]) -> bool:
    return has_own_codec(type_info) and codec_of(type_info).makes_new and all(parts)


def rechecker(type_info: TypeInformation) -> Recheck | None:
    """Return what checks a value that is to be stored in the place of another, which no snapshot shares.

    What is stored there already, and has not changed, is neither looked at again nor made anew. None says
    that ``check`` does as well: there are no lists or dicts in a value, or all of them has to be checked.
    """
    return walk(type_info, _rechecker)


def _rechecker(type_info: TypeInformation, parts: list[Recheck | None]) -> Recheck | None:
    if not has_own_codec(type_info):
        return None
    is_flat = all(value_copier(part) is None for part in type_info.parts())
    return codec_of(type_info).recheck(type_info, parts, is_flat)
