"""Time to live: takes timestamps off values, and leaves out what has expired."""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pyflinkstate.api.types import ListTypeInfo, MapTypeInfo, TypeInformation
from pyflinkstate.backends.types import TtlTypeInfo

Mask = npt.NDArray[np.bool_]
Offsets = npt.NDArray[np.int64]


@attrs.frozen
class Expiry:
    """Decides which values have expired.

    Attributes:
        now_ms: the present, in ms since 1970.
        ttl_ms: how long a value lives after its timestamp; None if nothing is left out.
    """

    now_ms: int
    ttl_ms: int | None = None

    def alive(self, timestamps: pa.Array) -> Mask:
        """Return which values still live; one written at 0 with a time to live of 100 ms expires at 100."""
        times = timestamps.to_numpy(zero_copy_only=False)
        if self.ttl_ms is None:
            return np.ones(len(times), np.bool_)
        kept: Mask = times > self.now_ms - self.ttl_ms
        return kept


def user_type(stored: TypeInformation) -> TypeInformation:
    """Return the type of a state as the program declares it, without the timestamps of time to live."""
    if isinstance(stored, TtlTypeInfo):
        return stored.value_type
    if isinstance(stored, ListTypeInfo):
        return ListTypeInfo(user_type(stored.element_type))
    if isinstance(stored, MapTypeInfo):
        return MapTypeInfo(stored.key_type_info, user_type(stored.value_type_info))
    return stored


def expires(stored: TypeInformation) -> bool:
    """Return whether the values of a state, or its elements, have timestamps."""
    return user_type(stored) != stored


def user_values(stored: TypeInformation, array: pa.Array, expiry: Expiry) -> tuple[pa.Array, Mask | None]:
    """Return the values as the program knows them, and which rows still live; None stands for all."""
    if isinstance(stored, TtlTypeInfo):
        timestamps, values = array.flatten()
        return values, expiry.alive(timestamps)
    if isinstance(stored, ListTypeInfo) and isinstance(stored.element_type, TtlTypeInfo):
        timestamps, values = elements_of(array).flatten()
        offsets, kept, rows = _kept(array, expiry.alive(timestamps))
        return pa.LargeListArray.from_arrays(pa.array(offsets), values.filter(kept)), rows
    if isinstance(stored, MapTypeInfo) and isinstance(stored.value_type_info, TtlTypeInfo):
        keys, items = entries_of(array)
        timestamps, values = items.flatten()
        offsets, kept, rows = _kept(array, expiry.alive(timestamps))
        ends = pa.array(offsets, pa.int32())
        return pa.MapArray.from_arrays(ends, keys.filter(kept), values.filter(kept)), rows
    return array, None


def _kept(array: pa.Array, alive: Mask) -> tuple[Offsets, pa.Array, Mask]:
    """Return the offsets of the elements left in each list or map, and the masks of elements and rows."""
    offsets = offsets_of(array)
    left = np.concatenate(([0], np.cumsum(alive)))[offsets]
    # Values that were empty before stay.
    return left, pa.array(alive), (np.diff(left) > 0) | (np.diff(offsets) == 0)


def offsets_of(array: pa.Array) -> Offsets:
    """Return where each list or map begins among :func:`elements_of` or :func:`entries_of`, and the end."""
    if not len(array):  # Arrow may have no offsets then
        return np.zeros(1, np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    begins: Offsets = offsets - offsets[0]
    return begins


def elements_of(array: pa.LargeListArray) -> pa.Array:
    """Return the elements of all lists, one after another."""
    begin, end = _bounds(array)
    return array.values[begin:end]


def entries_of(array: pa.MapArray) -> tuple[pa.Array, pa.Array]:
    """Return the keys and the values of all maps, one after another."""
    begin, end = _bounds(array)
    return array.keys[begin:end], array.items[begin:end]


def _bounds(array: pa.Array) -> tuple[int, int]:
    return (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
