"""Which values of two columns are equal, row by row, for columns of any type."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types import decode_column, sealed
from pyflinkstate.state_access.pickles import comparable

Mask = npt.NDArray[np.bool_]


def equal_rows(type_info: TypeInformation, old: pa.Array, new: pa.Array) -> Mask:
    """Return for each row whether the two columns of ``type_info``, equally long, have equal values there.

    NaN equals NaN. Maps are equal if they have the same entries in any order. Pickled values are equal if
    their bytes are, or if both are plain values and these are.
    """
    same = _written_alike(old, new)
    rows = np.flatnonzero(~same)
    if len(rows) and _may_be_written_differently(old.type):
        picked = pa.array(rows)
        pairs = zip(
            decode_column(sealed(type_info), old.take(picked)),
            decode_column(sealed(type_info), new.take(picked)),
            strict=True,
        )
        same[rows] = [_plain(one) == _plain(other) for one, other in pairs]
    return same


def _may_be_written_differently(arrow: pa.DataType) -> bool:
    """Return whether equal values may differ as they are written: maps, and bytes that may be pickles."""
    if pa.types.is_map(arrow) or pa.types.is_large_binary(arrow):
        return True
    return any(_may_be_written_differently(arrow.field(i).type) for i in range(arrow.num_fields))


def _plain(value: TypedValue) -> TypedValue:
    """Return a value with the plain pickles in it loaded."""
    if isinstance(value, bytes):
        return comparable(value)
    if isinstance(value, dict):
        return {_plain_key(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _plain_key(key: TypedValue) -> TypedValue:
    loaded = _plain(key)
    return loaded if loaded.__hash__ is not None and not isinstance(loaded, list) else key


def _written_alike(old: pa.Array, new: pa.Array) -> Mask:
    if pa.types.is_struct(old.type):
        return _structs_alike(old, new)
    if pa.types.is_map(old.type) or pa.types.is_large_list(old.type):
        return _lists_alike(old, new)
    nulls = _mask(old.is_null()) & _mask(new.is_null())
    same = _mask(pc.fill_null(pc.equal(old, new), False))
    if pa.types.is_floating(old.type):
        same |= _mask(pc.fill_null(pc.and_(pc.is_nan(old), pc.is_nan(new)), False))
    return np.logical_or(same, nulls)


def _structs_alike(old: pa.StructArray, new: pa.StructArray) -> Mask:
    same = np.array(_mask(old.is_null()) == _mask(new.is_null()), np.bool_)
    for one, other in zip(old.flatten(), new.flatten(), strict=True):
        np.logical_and(same, _written_alike(one, other), out=same)
    return same


def _lists_alike(old: pa.Array, new: pa.Array) -> Mask:
    """Compare lists, or maps as lists of entries, of the same length element by element."""
    starts, ends = (_bounds(array) for array in (old, new))
    lengths = starts[1] - starts[0]
    same: Mask = (_mask(old.is_null()) == _mask(new.is_null())) & (lengths == ends[1] - ends[0])
    rows = np.flatnonzero(same & (lengths > 0))
    if len(rows):
        alike = _written_alike(
            _elements(old).take(pa.array(_positions(starts[0][rows], lengths[rows]))),
            _elements(new).take(pa.array(_positions(ends[0][rows], lengths[rows]))),
        )
        begins = np.concatenate(([0], np.cumsum(lengths[rows])[:-1]))
        same[rows] = np.logical_and.reduceat(alike, begins)
    return same


def _elements(array: pa.Array) -> pa.Array:
    if pa.types.is_map(array.type):
        return pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
    return array.values


def _bounds(array: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return where each list begins and ends; a null has no elements."""
    offsets = array.offsets.to_numpy().astype(np.int64)
    begins, ends = offsets[:-1], offsets[1:]
    return begins, np.where(_mask(array.is_null()), begins, ends)


def _positions(begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions of all elements of lists that begin at ``begins``."""
    found: npt.NDArray[np.int64] = np.repeat(begins - (np.cumsum(lengths) - lengths), lengths)
    return found + np.arange(len(found))


def _mask(array: pa.Array) -> Mask:
    return np.array(array.to_numpy(zero_copy_only=False), dtype=np.bool_)
