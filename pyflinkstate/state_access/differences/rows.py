"""Which rows of two checkpoints belong together, and which of these differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import ArrowObject
from pyflinkstate.state_access.equality import equal_rows
from pyflinkstate.state_access.identity import Typed, row_codes
from pyflinkstate.state_access.pickles import Load

#: The kinds of change, by whether the key is in the old and in the new checkpoint.
_CHANGES = np.array(["added", "removed", "changed"], dtype=object)


def places_of(columns: Sequence[Typed], old_rows: int, load: Load) -> tuple[ArrowObject, list[ArrowObject]]:
    """Return the first row of each distinct key, and where each is among the old and the new rows.

    Args:
        columns: those of keys, the rows of the old checkpoint before those of the new one.
        old_rows: how many are of the old one.
        load: loads pickled keys.

    Returns:
        the rows, and for both checkpoints the positions, which are -1 where a key is not there.
    """
    codes = row_codes(columns, load)
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    numbers = numbers.reshape(-1)
    places = [np.full(len(first), -1) for _ in range(2)]
    places[0][numbers[:old_rows]] = np.arange(old_rows)
    places[1][numbers[old_rows:]] = np.arange(len(numbers) - old_rows)
    return first, places


def rows_of(batch: pa.RecordBatch | None) -> int:
    """Return the number of rows; 0 if there is no batch."""
    return 0 if batch is None else int(batch.num_rows)


def changes_of(places: list[ArrowObject]) -> pa.Array:
    """Return the change of each key: ``added``, ``removed`` or ``changed``."""
    kinds = np.where(places[0] < 0, 0, np.where(places[1] < 0, 1, 2))
    return pa.array(_CHANGES[kinds], pa.string())


def values_at(values: pa.Array, places: ArrowObject) -> pa.Array:
    """Return the values at some positions; null at -1."""
    return values.take(pa.array(places, mask=places < 0))


def alike(
    type_info: TypeInformation | None, places: list[ArrowObject], values: list[pa.Array]
) -> ArrowObject:
    """Return which keys have equal values in both checkpoints."""
    both = (places[0] >= 0) & (places[1] >= 0)
    if both.any():
        old, new = (value.take(pa.array(place[both])) for value, place in zip(values, places, strict=True))
        assert type_info is not None
        both[both] = _equal(type_info, old, new)
    return both


def _equal(type_info: TypeInformation, old: pa.Array, new: pa.Array) -> ArrowObject:
    """Compare values that may be of two types; those that have no common form differ."""
    try:
        old = old if old.type == new.type else old.cast(new.type)
    except pa.ArrowInvalid:  # at least one value does not fit
        half = len(old) // 2
        if not half:
            return np.zeros(len(old), np.bool_)
        halves = _equal(type_info, old[:half], new[:half]), _equal(type_info, old[half:], new[half:])
        return np.concatenate(halves)
    except pa.ArrowException:
        return np.zeros(len(old), np.bool_)
    return equal_rows(type_info, old, new)
