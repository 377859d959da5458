"""Checks keys against their declared type and hashes them as Java does.

None and NaN are refused: None is Flink's rule, and NaN does not equal itself.

The hash of a key must not change, as checkpoints keep state by key group. ``KEY_HASH_VERSION`` counts the
changes that were made all the same: state of an earlier version is assigned to key groups again on a restore.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types import JavaHash, hash_version, java_hash_of_type, java_hashes_of_strings
from pyflinkstate.backends.values import refuse_nan
from pyflinkstate.errors import InvalidKeyError

#: Written with keyed state. Up to version 1 a ``TUPLE`` hashed as a Java ``List``.
KEY_HASH_VERSION = 2


def hash_has_changed(key_type: TypeInformation, since_version: int) -> bool:
    """Return whether keys of ``key_type`` may have had another hash in version ``since_version``."""
    return since_version < hash_version(key_type)


@attrs.frozen
class KeyHasher:
    """Checks keys against their declared type and hashes them."""

    key_type: TypeInformation
    _hash: JavaHash = attrs.field(init=False, eq=False, repr=False)

    @_hash.default
    def _hash_for_type(self) -> JavaHash:
        return java_hash_of_type(self.key_type)

    def hashes(self, keys: Sequence[TypedValue]) -> list[int]:
        """Return the Java hash code of each key; all must be valid (see :meth:`check`)."""
        if keys and all(type(key) is str for key in keys):
            return java_hashes_of_strings(keys)
        return [self._hash(key) for key in keys]

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
