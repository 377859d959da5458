"""The keys of a batch of records: checked, and with their key groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Key, TypedValue
from pyflinkstate.backends.keys import KeyHasher, key_group_of_hash
from pyflinkstate.errors import InvalidKeyError

#: Keys whose group a task remembers; beyond it, the memory is begun anew.
REMEMBERED_KEYS = 500_000

#: Types for which membership of a whole batch is told by ``type`` alone, so the check is one set.
_EXACT_TYPES: dict[str, type] = {
    "STRING": str,
    "BYTES": bytes,
    "BOOLEAN": bool,
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "BIG_INT"), int),
}


class KeyGroups(dict[Key, int]):
    """Key -> key group, remembered; only keys that were found valid are in it."""

    def __init__(self, key_type: TypeInformation, max_parallelism: int) -> None:
        self._hasher = KeyHasher(key_type)
        self._max_parallelism = max_parallelism
        self._exact_type = _EXACT_TYPES.get(key_type.kind)
        self._converts = not isinstance(key_type, PickledBytesTypeInfo) and self._exact_type is None

    def of_batch(self, keys: Sequence[Key]) -> tuple[Sequence[Key], list[int]]:
        """Return the keys as their type keeps them, and their key groups.

        Raises:
            InvalidKeyError: one of the keys; :meth:`check` tells which.
        """
        if self._converts or (self._exact_type and set(map(type, keys)) != {self._exact_type}):
            keys = [self._hasher.check(key) for key in keys]
        try:
            groups = list(map(self.get, keys))
        except TypeError as error:
            self._check_all(keys)
            raise InvalidKeyError(f"keys of one stream that cannot be compared: {error}") from error
        if None in groups:
            self._learn(keys, groups)
            groups = list(map(self.__getitem__, keys))
        return keys, groups  # type: ignore[return-value]

    def _learn(self, keys: Sequence[Key], groups: Sequence[int | None]) -> None:
        missing: list[TypedValue] = [key for key, group in zip(keys, groups, strict=True) if group is None]
        if self._exact_type is not str or not "".join(missing).isascii():
            self._check_all(missing)
        if len(self) + len(missing) > REMEMBERED_KEYS:
            self.clear()
            missing = list(keys)
        for key, code in zip(missing, self._hasher.hashes(missing), strict=True):
            self[key] = key_group_of_hash(code, self._max_parallelism)

    def _check_all(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self._hasher.check(key)

    def check(self, key: Key) -> None:
        """Raise ``InvalidKeyError`` if ``key`` is not a valid key."""
        self._hasher.check(key)


#: One memory per key type and max parallelism, for as long as the Spark worker lives.
_REMEMBERED: dict[tuple[TypeInformation, int], KeyGroups] = {}


def key_groups_of(key_type: TypeInformation, max_parallelism: int) -> KeyGroups:
    """Return the memory of the worker for keys of a type."""
    identity = (key_type, max_parallelism)
    if identity not in _REMEMBERED:
        _REMEMBERED[identity] = KeyGroups(*identity)
    return _REMEMBERED[identity]
