"""Pickled keys and values: kept as bytes, told apart without running code, and loaded only on request.

Loading a pickle runs whatever code it names. A pickle of plain Python values (numbers, texts, bytes, tuples,
lists, sets and dicts of these) names none. :func:`load_plain` loads such a pickle and refuses every other
one, so keys without a declared type can be looked up and compared in a checkpoint that is not trusted.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Hashable, Iterable

import numpy as np
import pyarrow as pa

from pyflinkstate.api.types import ListTypeInfo, MapTypeInfo, PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.backends.types import load_pickle, sealed
from pyflinkstate.errors import PickledStateError, StateTableError
from pyflinkstate.state_access.expiry import elements_of, entries_of, offsets_of

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
    if isinstance(type_info, MapTypeInfo):
        keys, items = map(loaded, parts, entries_of(array))
        offsets = pa.array(offsets_of(array), pa.int32())
        return _with_nulls_of(array, pa.MapArray.from_arrays(offsets, keys, items))
    if pa.types.is_large_list(array.type) or isinstance(type_info, ListTypeInfo):
        elements = loaded(parts[0], elements_of(array))
        offsets = pa.array(offsets_of(array))
        return _with_nulls_of(array, pa.LargeListArray.from_arrays(offsets, elements))
    if pa.types.is_struct(array.type):
        return _loaded_struct(parts, array)
    return loaded(parts[0], array)  # the wrapper of another type


def _with_nulls_of(array: pa.Array, made: pa.Array) -> pa.Array:
    """Return converted lists or maps, with null where the column has null."""
    if not array.null_count:
        return made
    return made.take(pa.array(np.arange(len(array)), mask=array.is_null().to_numpy(zero_copy_only=False)))


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
