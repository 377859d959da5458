"""How the entries of a state are written in the cold store, which depends on their declared types.

mypyc compiles this file.
"""

from __future__ import annotations

from pyflinkstate.api import Stored, TupleTypeInfo, TypeInformation
from pyflinkstate.backends.rocksdb.cold_bytes import ENCLOSE, LOAD, REFUSE, decoded, value_bytes
from pyflinkstate.backends.types import (
    USER_DEFINED,
    Convert,
    Enclosed,
    RegisteredStateMeta,
    dump_pickle,
    find_codec,
    for_each_pickle,
    has_pickles,
    unsealed,
    walk,
)


class TypeForm:
    """How the values of a declared type are written, and what becomes of pickles in them.

    A value of a restored type is the bytes of a pickle where the type is a sealed pickle. It is written as
    the pickle itself, so that nothing is written anew when the program asks for the state.

    Args:
        type_info: the type.
    """

    def __init__(self, type_info: TypeInformation) -> None:
        self.levels = walk(type_info, _level)
        #: Whether the bytes can be kept: there is a codec for each part of the type.
        self.is_portable = walk(type_info, _is_known)
        self.is_sealed = unsealed(type_info) != type_info
        may_load = has_pickles(type_info) or not self.is_portable
        self.pickles = ENCLOSE if self.is_sealed else LOAD if may_load else REFUSE
        self._opened: Convert = for_each_pickle(type_info, _enclosed)
        self._closed: Convert = for_each_pickle(type_info, _closed)

    def to_bytes(self, value: Stored) -> bytes:
        """Return the bytes of a value; raise ``StateValueError`` if it cannot be stored."""
        return value_bytes(self._opened(value) if self.is_sealed else value, self.levels, self.pickles)

    def of_bytes(self, data: bytes, at: int = 0) -> Stored:
        """Return the value of bytes; raise ``PickledStateError`` if they have a pickle that may not be."""
        value = decoded(data, at, self.pickles)
        return self._closed(value) if self.is_sealed else value


def _level(_: TypeInformation, parts: list[int]) -> int:
    return 1 + max(parts) if parts else 0


def _is_known(of: TypeInformation, parts: list[bool]) -> bool:
    return find_codec(of) is not USER_DEFINED and all(parts)


def _enclosed(data: bytes | None) -> Enclosed | None:
    return None if data is None else Enclosed(data)


def _closed(value: object) -> bytes | None:
    if value is None:
        return None
    return value.data if isinstance(value, Enclosed) else dump_pickle(value)


class EntryForms:
    """How the entries of a state are written.

    Args:
        keys: the form of keys, or of keys and namespaces.
        values: the form of values.
    """

    def __init__(self, keys: TypeForm, values: TypeForm) -> None:
        self.keys = keys
        self.values = values

    @staticmethod
    def of(key_type: TypeInformation, meta: RegisteredStateMeta) -> EntryForms:
        """Return the forms of a state."""
        spaced = TupleTypeInfo((key_type, meta.namespace_type)) if meta.is_namespaced else key_type
        return EntryForms(TypeForm(spaced), TypeForm(meta.stored_type))

    @property
    def is_portable(self) -> bool:
        """Whether a checkpoint can keep the entries."""
        return self.keys.is_portable and self.values.is_portable
