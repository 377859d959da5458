"""Keys: the Java hash code of each, the key group that it belongs to for ever, and the current one."""

from pyflinkstate.backends.keys.key_context import KeyContext, KeySelectionListener
from pyflinkstate.backends.keys.key_groups import (
    UPPER_BOUND_MAX_PARALLELISM,
    KeyGroupRange,
    check_max_parallelism,
    check_parallelism,
    default_max_parallelism,
    key_group_of_hash,
    key_group_range,
    operator_index,
)
from pyflinkstate.backends.keys.key_hashing import KEY_HASH_VERSION, KeyHasher, hash_has_changed

__all__ = [
    "KEY_HASH_VERSION",
    "UPPER_BOUND_MAX_PARALLELISM",
    "KeyContext",
    "KeyGroupRange",
    "KeyHasher",
    "KeySelectionListener",
    "check_max_parallelism",
    "check_parallelism",
    "default_max_parallelism",
    "hash_has_changed",
    "key_group_of_hash",
    "key_group_range",
    "operator_index",
]
