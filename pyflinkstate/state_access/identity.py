"""Which rows have the same key, found for whole columns at once.

Arrow can only look up simple columns. So a key, or a key with its window, is taken apart into simple columns
that are equal exactly if the keys are, and each distinct combination gets a number: its code.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api.types import ExternalTypeInfo, PickledBytesTypeInfo, TypeInformation
from pyflinkstate.state_access.pickles import Load

#: A number for each row; equal rows have equal numbers.
Codes = npt.NDArray[np.int64]
#: A column and the type of its values; None for a plain part of a type that is written as several columns.
Typed = tuple[TypeInformation | None, pa.Array]


def row_codes(columns: Sequence[Typed], load: Load) -> Codes:
    """Return a code for each row; two rows have the same code if they are equal in all columns.

    Args:
        columns: one or more columns of the same length.
        load: loads pickled keys, which may be equal though their bytes differ.

    Raises:
        PickledStateError: a pickled key cannot be loaded, or must not be.

    >>> row_codes([(None, pa.array(["a", "b", "a"])), (None, pa.array([1, 1, 1]))], bytes).tolist()
    [0, 1, 0]
    """
    codes: Codes | None = None
    for leaf in chain.from_iterable(_leaves(type_info, array, load) for type_info, array in columns):
        found, count = _numbered(leaf)
        codes = found if codes is None else _dense(codes * count + found)
    assert codes is not None
    return codes


def last_of_each(codes: Codes) -> Codes:
    """Return the position of the last row of each code, in order.

    >>> last_of_each(np.array([5, 6, 5])).tolist()
    [1, 2]
    """
    _, from_end = np.unique(codes[::-1], return_index=True)
    return np.sort(len(codes) - 1 - from_end)


def _dense(codes: Codes) -> Codes:
    """Return smaller codes that tell the same rows apart, so that codes of many columns do not overflow."""
    return np.unique(codes, return_inverse=True)[1].reshape(-1).astype(np.int64)


def _numbered(leaf: pa.Array) -> tuple[Codes, int]:
    encoded = leaf.dictionary_encode()
    nulls = len(encoded.dictionary)
    return pc.fill_null(encoded.indices, nulls).to_numpy(zero_copy_only=False).astype(np.int64), nulls + 1


def _leaves(type_info: TypeInformation | None, array: pa.Array, load: Load) -> Iterator[pa.Array]:
    """Yield simple columns that are equal together exactly if the values of ``array`` are."""
    while isinstance(type_info, ExternalTypeInfo):
        type_info = type_info.type_info
    arrow = array.type
    if isinstance(type_info, PickledBytesTypeInfo):
        yield _by_value(array, load)
    elif type_info is not None and type_info.kind == "BIG_DEC":
        yield _by_value(array, decimal.Decimal)
    elif pa.types.is_struct(arrow):
        yield array.is_null()
        yield from chain.from_iterable(_leaves(*field, load) for field in _fields(type_info, array))
    elif pa.types.is_floating(arrow):
        yield pc.add(array, 0.0)  # makes one zero of both
    elif pa.types.is_nested(arrow):
        yield pa.array([repr(value) for value in array.to_pylist()], pa.large_string())
    else:
        yield array


def _fields(type_info: TypeInformation | None, array: pa.StructArray) -> Iterable[Typed]:
    """Return the fields of a struct with their types; what a type writes besides its parts comes first."""
    fields = array.flatten()
    parts = () if type_info is None else type_info.parts()
    return zip(chain(repeat(None, len(fields) - len(parts)), parts), fields, strict=True)


def _by_value(array: pa.Array, convert: Callable[..., Hashable]) -> pa.Array:
    """Return a number for each distinct value that ``convert`` makes; equal ones may differ as bytes."""
    encoded = array.dictionary_encode()
    numbers: dict[Hashable, int] = {}
    found = [numbers.setdefault(convert(written), len(numbers)) for written in encoded.dictionary.to_pylist()]
    return pa.array(found, pa.int64()).take(encoded.indices)
