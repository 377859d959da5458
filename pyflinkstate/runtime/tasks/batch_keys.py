"""Checks the keys of a batch of records and finds their key groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import Key, TypedValue
from pyflinkstate.backends.keys import KeyHasher, key_group_of_hash
from pyflinkstate.backends.types import exact_class
from pyflinkstate.errors import InvalidKeyError

#: Maximum number of keys that a task remembers with their group; then the memory is cleared.
REMEMBERED_KEYS = 500_000


class KeyGroups(dict[Key, int]):
    """Remembers the key group of each key; it contains only valid keys."""

    def __init__(self, key_type: TypeInformation, max_parallelism: int) -> None:
        self._hasher = KeyHasher(key_type)
        self._max_parallelism = max_parallelism
        self._exact_type = exact_class(key_type)  # with it, one set checks a whole batch
        self._converts = not isinstance(key_type, PickledBytesTypeInfo) and self._exact_type is None

    def of_batch(self, keys: Sequence[Key]) -> tuple[Sequence[Key], list[int]]:
        """Return the keys in the form of their type, and their key groups.

        Raises:
            InvalidKeyError: a key is not valid; :meth:`check` tells which.
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


#: One memory for each key type and max parallelism, which lives as long as the Spark worker.
_REMEMBERED: dict[tuple[TypeInformation, int], KeyGroups] = {}


def key_groups_of(key_type: TypeInformation, max_parallelism: int) -> KeyGroups:
    """Return the worker's memory for keys of a type."""
    identity = (key_type, max_parallelism)
    if identity not in _REMEMBERED:
        _REMEMBERED[identity] = KeyGroups(*identity)
    return _REMEMBERED[identity]
