"""How values of a declared type are copied, and when they need not be."""

from __future__ import annotations

import copy

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.types.codec import Copy, walk
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
