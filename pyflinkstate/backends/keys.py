"""Keys: the Java hash code of each, and the key group that it belongs to for ever.

Key groups are the unit in which keyed state is spread, stored and moved between subtasks. A key belongs to
one of ``max_parallelism`` key groups; a subtask owns a contiguous range of them. Formulas and constants are
those of Flink's ``KeyGroupRangeAssignment`` and ``MathUtils``, so that state can move between the two.

Keys are checked against their declared type and hashed as Java does. None and NaN are refused: None is
Flink's rule, and NaN does not equal itself. The hash of a key must not change, as checkpoints keep state by
key group. ``KEY_HASH_VERSION`` counts the changes that were made all the same: state of an earlier version is
assigned to key groups again on a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs

from pyflinkstate.api import TypedValue, TypeInformation, Types, safe_repr
from pyflinkstate.backends.compiled import is_compiled
from pyflinkstate.backends.key_groups import (
    key_group_of_hash,
    key_groups_of_longs,
    key_groups_of_strings,
)
from pyflinkstate.backends.types import JavaHash, hash_version, java_hash_of_type
from pyflinkstate.backends.values import refuse_nan
from pyflinkstate.errors import InvalidKeyError, ParallelismError

DEFAULT_LOWER_BOUND_MAX_PARALLELISM = 1 << 7
UPPER_BOUND_MAX_PARALLELISM = 1 << 15


@attrs.frozen
class KeyGroupRange:
    """The key groups ``start`` to ``end``, both included; empty when ``end < start``."""

    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start + 1)

    def __contains__(self, key_group: object) -> bool:
        return isinstance(key_group, int) and self.start <= key_group <= self.end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end + 1))

    def intersection(self, other: KeyGroupRange) -> KeyGroupRange:
        """Return the key groups that are in both ranges."""
        return KeyGroupRange(max(self.start, other.start), min(self.end, other.end))

    def __str__(self) -> str:
        return f"{self.start}..{self.end}"


def operator_index(max_parallelism: int, parallelism: int, key_group: int) -> int:
    """Return the subtask that owns ``key_group`` (``computeOperatorIndexForKeyGroup``)."""
    return key_group * parallelism // max_parallelism


def key_group_range(max_parallelism: int, parallelism: int, index: int) -> KeyGroupRange:
    """Return the key groups that subtask ``index`` owns (``computeKeyGroupRangeForOperatorIndex``).

    >>> [str(key_group_range(128, 3, index)) for index in range(3)]
    ['0..42', '43..85', '86..127']
    """
    check_parallelism(parallelism, max_parallelism)
    start = (index * max_parallelism + parallelism - 1) // parallelism
    end = ((index + 1) * max_parallelism - 1) // parallelism
    return KeyGroupRange(start, end)


def default_max_parallelism(parallelism: int) -> int:
    """Return the default max parallelism of an operator (``computeDefaultMaxParallelism``).

    >>> default_max_parallelism(4), default_max_parallelism(86)
    (128, 256)
    """
    check_parallelism(parallelism)
    wanted = parallelism + parallelism // 2
    rounded = 1 << (wanted - 1).bit_length() if wanted > 1 else 1
    return min(max(rounded, DEFAULT_LOWER_BOUND_MAX_PARALLELISM), UPPER_BOUND_MAX_PARALLELISM)


def _check_whole(name: str, value: object) -> None:
    if type(value) is not int:
        raise ParallelismError(f"{name} must be a whole number, not {value!r}", value=repr(value))


def check_max_parallelism(max_parallelism: int) -> int:
    """Return a max parallelism; raise ``ParallelismError`` unless 0 < max_parallelism <= 32768."""
    _check_whole("max parallelism", max_parallelism)
    if not 0 < max_parallelism <= UPPER_BOUND_MAX_PARALLELISM:
        raise ParallelismError(
            f"max parallelism {max_parallelism} is out of bounds: choose 1 to {UPPER_BOUND_MAX_PARALLELISM}",
            max_parallelism=max_parallelism,
        )
    return max_parallelism


def check_parallelism(parallelism: int, max_parallelism: int = UPPER_BOUND_MAX_PARALLELISM) -> int:
    """Return a parallelism; raise ``ParallelismError`` unless 0 < parallelism <= max_parallelism <= 32768."""
    _check_whole("parallelism", parallelism)
    check_max_parallelism(max_parallelism)
    if not 0 < parallelism <= max_parallelism:
        raise ParallelismError(
            f"operator parallelism not within bounds: {parallelism}; it must be between 1 and the "
            f"max parallelism {max_parallelism}, the number of key groups, which can only be "
            f"chosen before the first checkpoint",
            parallelism=parallelism,
            max_parallelism=max_parallelism,
        )
    return parallelism


#: Written with keyed state. Up to version 1 a ``TUPLE`` hashed as a Java ``List``.
KEY_HASH_VERSION = 2


def hash_has_changed(key_type: TypeInformation, since_version: int) -> bool:
    """Return whether keys of ``key_type`` may have had another hash in version ``since_version``."""
    return since_version < hash_version(key_type)


#: By type: what returns the key groups of many keys.
_LOOPS: dict[TypeInformation, Callable[..., list[int]]] = {
    Types.STRING(): key_groups_of_strings,
    Types.LONG(): key_groups_of_longs,
}


@attrs.frozen
class KeyHasher:
    """Checks keys against their declared type and hashes them."""

    key_type: TypeInformation
    _hash: JavaHash = attrs.field(init=False, eq=False, repr=False)

    @_hash.default
    def _hash_for_type(self) -> JavaHash:
        return java_hash_of_type(self.key_type)

    @property
    def is_quick(self) -> bool:
        """Whether a key group is computed faster than it is found in a dict of many keys."""
        return self.key_type in _LOOPS and is_compiled()

    def hashes(self, keys: Sequence[Any]) -> list[int]:
        """Return the Java hash code of each key; all must be valid (see :meth:`check`)."""
        return [self._hash(key) for key in keys]

    def key_groups(self, keys: Sequence[Any], max_parallelism: int) -> list[int]:
        """Return the key group of each key; all must be valid (see :meth:`check`).

        Raises:
            InvalidKeyError: a string or a long is not.
        """
        loop = _LOOPS.get(self.key_type)
        if loop is not None:
            try:
                return loop(keys, max_parallelism)
            except (ValueError, OverflowError):
                for key in keys:
                    self.check(key)
                raise
        return [key_group_of_hash(self._hash(key), max_parallelism) for key in keys]

    def check(self, key: TypedValue) -> TypedValue:
        """Return ``key`` as its declared type keeps it.

        Raises:
            InvalidKeyError: None, NaN, unhashable, of the wrong type, or without a stable hash.
        """
        try:
            if key is None:
                raise ValueError("None cannot be a key")
            if isinstance(key, list):
                raise ValueError("a list can change, so it cannot be a key; use a tuple")
            hash(key)
            key = self.key_type.check_key(key)
            refuse_nan(key)
            self._hash(key)
        except (ValueError, TypeError, OverflowError) as error:
            shown = safe_repr(key)
            raise InvalidKeyError(f"invalid key {shown}: {error}", key=shown) from None
        return key
