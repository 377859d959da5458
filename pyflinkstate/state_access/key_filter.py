"""Finds given keys: first their key groups, then their rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import attrs
import pyarrow as pa

from pyflinkstate.api.checks import check_list
from pyflinkstate.api.values import ArrowObject, Key
from pyflinkstate.state_access.keyed_state import KeyedState


@attrs.define(slots=False)
class KeyFilter:
    """Selects the rows of some keys.

    Attributes:
        state: the operator's state.
        keys: the wanted keys, of the operator's key type.
    """

    state: KeyedState
    keys: list[Key] = attrs.field()

    def __attrs_post_init__(self) -> None:
        """Check the keys against their declared type; raise ``InvalidKeyError`` if one does not fit."""
        self.keys = self.state.keys.checked(self.keys)

    @cached_property
    def key_groups(self) -> frozenset[int]:
        """The key groups in which the keys are."""
        return frozenset(self.state.keys.groups_of_keys(self.keys).tolist()) if self.keys else frozenset()

    @cached_property
    def _written(self) -> pa.Array:
        return self.state.keys.written(self.keys)

    def mask(self, keys: pa.Array) -> ArrowObject:
        """Return which rows of a column of keys have one of the wanted keys."""
        return self.state.keys.mask(keys, self._written)


def key_filter(state: KeyedState, keys: Iterable[Key] | None) -> KeyFilter | None:
    """Return the filter of some keys; None if all keys are wanted.

    Raises:
        ConfigurationError: a single key is given, and the letters of a string would be the keys.
    """
    if keys is None:
        return None
    check_list("keys", keys)
    return KeyFilter(state, list(keys))
