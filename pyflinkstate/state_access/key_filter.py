"""Finds given keys: first their key groups, then their rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api.values import ArrowObject, Key
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.backends.types import encode_column
from pyflinkstate.errors import ConfigurationError, InvalidKeyError
from pyflinkstate.state_access.identity import row_codes
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
        hasher, uid = KeyHasher(self.state.key_type), self.state.operator.operator_id
        try:
            self.keys = [hasher.check(key) for key in self.keys]
        except InvalidKeyError as error:
            raise InvalidKeyError(
                f"operator {uid!r} has keys of {self.state.key_type}: {error.message}", operator=uid
            ) from error

    @cached_property
    def key_groups(self) -> frozenset[int]:
        """The key groups in which the keys are."""
        return frozenset(self.state.key_groups_of(self.keys).tolist()) if self.keys else frozenset()

    @cached_property
    def _written(self) -> pa.Array:
        return encode_column(self.state.key_type, self.keys)

    def mask(self, keys: pa.Array) -> ArrowObject:
        """Return which rows of a column of keys have one of the wanted keys."""
        column = pa.concat_arrays([keys, self._written])
        codes = row_codes([(self.state.key_type, column)], self.state.load)
        return np.isin(codes[: len(keys)], codes[len(keys) :])


def key_filter(state: KeyedState, keys: Iterable[Key] | None) -> KeyFilter | None:
    """Return the filter of some keys; None if all keys are wanted.

    Raises:
        ConfigurationError: a single text is given, whose letters would be the keys.
    """
    if isinstance(keys, (str, bytes)):
        raise ConfigurationError(f"keys is a list of keys, not {keys!r}: give [{keys!r}]")
    return None if keys is None else KeyFilter(state, list(keys))
