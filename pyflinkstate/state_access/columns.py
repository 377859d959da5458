"""Columns of state: values without the timestamps of time to live, pickles, and which values are equal.

Pickled keys and values are kept as bytes, told apart without running code, and loaded only on request.
Loading a pickle runs whatever code it names. A pickle of plain Python values (numbers, strings, bytes,
tuples, lists, sets and dicts of these) names none. :func:`load_plain` loads such a pickle and refuses
every other one. So keys without a declared type can be looked up and compared in a checkpoint that is not
trusted.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable, Iterable, Sequence

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import ListTypeInfo, MapTypeInfo, PickledBytesTypeInfo, TypedValue, TypeInformation
from pyflinkstate.backends.types import TtlTypeInfo, decode_column, load_pickle, sealed
from pyflinkstate.errors import PickledStateError, StateTableError

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
    if not expires(stored):
        return array, None
    *keys, items = parts_of(array)
    timestamps, values = items.flatten()
    offsets, kept, rows = _kept(array, expiry.alive(timestamps))
    return nested(offsets, [part.filter(kept) for part in (*keys, values)]), rows


def _kept(array: pa.Array, alive: Mask) -> tuple[Offsets, pa.Array, Mask]:
    """Return the offsets of the elements left in each list or map, and the masks of elements and rows."""
    offsets = offsets_of(array)
    left = np.concatenate(([0], np.cumsum(alive)))[offsets]
    # Values that were empty before stay.
    return left, pa.array(alive), (np.diff(left) > 0) | (np.diff(offsets) == 0)


def offsets_of(array: pa.Array) -> Offsets:
    """Return where each list or map begins among :func:`parts_of`, and the end."""
    if not len(array):  # Arrow may have no offsets then
        return np.zeros(1, np.int64)
    offsets = array.offsets.to_numpy().astype(np.int64)
    begins: Offsets = offsets - offsets[0]
    return begins


def parts_of(array: pa.Array) -> list[pa.Array]:
    """Return the elements of all lists, one after another; of maps, their keys and their values."""
    arrays = [array.keys, array.items] if pa.types.is_map(array.type) else [array.values]
    begin, end = (array.offsets[0].as_py(), array.offsets[-1].as_py()) if len(array) else (0, 0)
    return [each[begin:end] for each in arrays]


def nested(offsets: Offsets, parts: Sequence[pa.Array]) -> pa.Array:
    """Return lists of elements, or maps of keys and values: the opposite of :func:`parts_of`."""
    if len(parts) == 1:
        return pa.LargeListArray.from_arrays(pa.array(offsets), parts[0])
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), *parts)


# --- pickles -----------------------------------------------------------------------------------------------

#: Returns the value of a pickle.
Load = Callable[[bytes], TypedValue]


class _PlainUnpickler(pickle.Unpickler):
    """Loads pickles that name no class and no function."""

    def find_class(self, module: str, name: str) -> TypedValue:
        raise PickledStateError(
            f"a pickled value is of {module}.{name}, and loading it runs code: pass allow_pickle=True if you "
            f"trust whoever wrote the checkpoint"
        )


def load_plain(data: bytes) -> TypedValue:
    """Return the value of a pickle of plain Python values.

    Raises:
        PickledStateError: loading it would run code, or the bytes are not a pickle.
    """
    try:
        return _PlainUnpickler(io.BytesIO(data)).load()
    except PickledStateError:
        raise
    except Exception as error:
        raise PickledStateError(
            f"a pickled value cannot be loaded: {type(error).__name__}: {error}"
        ) from error


def loader(allow_pickle: bool) -> Load:
    """Return the function that loads pickles: all of them if allowed, otherwise those of plain values."""
    return load_pickle if allow_pickle else load_plain


def has_pickles(type_info: TypeInformation) -> bool:
    """Return whether a type is pickled, or one of its parts is."""
    return sealed(type_info) != type_info


def comparable(data: bytes | None) -> Hashable | TypedValue:
    """Return the value by which a pickle is compared: its own if that is plain, otherwise its bytes."""
    try:
        return None if data is None else load_plain(data)
    except PickledStateError:
        return data


def loaded(type_info: TypeInformation, array: pa.Array) -> pa.Array:
    """Return a column with its pickles loaded, in the Arrow types that fit what is in them.

    Raises:
        pa.ArrowException: the values of a column have no common Arrow type.
        StateMigrationError: a pickle cannot be loaded.
    """
    if isinstance(type_info, PickledBytesTypeInfo):
        return pa.array([None if data is None else load_pickle(data) for data in array.to_pylist()])
    if not has_pickles(type_info):
        return array
    parts = type_info.parts()
    if pa.types.is_map(array.type) or pa.types.is_large_list(array.type):
        made = nested(offsets_of(array), list(map(loaded, parts, parts_of(array))))
        if not array.null_count:
            return made
        is_null = array.is_null().to_numpy(zero_copy_only=False)
        return made.take(pa.array(np.arange(len(array)), mask=is_null))
    if pa.types.is_struct(array.type):
        return _loaded_struct(parts, array)
    return loaded(parts[0], array)  # the wrapper of another type


def _loaded_struct(parts: tuple[TypeInformation, ...], array: pa.StructArray) -> pa.Array:
    """Load the fields of parts, which come last in a struct: a row has its kind before them."""
    names = [field.name for field in array.type]
    fields = array.flatten()
    extra = len(fields) - len(parts)
    made = fields[:extra] + [loaded(part, field) for part, field in zip(parts, fields[extra:], strict=True)]
    return pa.StructArray.from_arrays(made, names, mask=array.is_null())


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return the schema that holds loaded values of all batches.

    Raises:
        StateTableError: the values of a column have no Arrow type in common.
    """
    try:
        return pa.unify_schemas(list(dict.fromkeys(schemas)), promote_options="permissive")
    except pa.ArrowException as error:
        raise no_common_type(error) from error


def no_common_type(error: Exception) -> StateTableError:
    """Return the error for pickled values that do not fit into one column."""
    return StateTableError(
        f"the pickled values have no Arrow type in common ({error}): read them with rows(), or leave them "
        f"pickled"
    )


# --- equality ----------------------------------------------------------------------------------------------


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
