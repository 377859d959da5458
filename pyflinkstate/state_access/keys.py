"""The keys of one operator: their type, their key groups, and which rows have the same key.

Arrow can only look up simple columns. So a key, or a key with its window, is taken apart into simple columns
that are equal exactly if the keys are, and each distinct combination gets a number: its code.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import chain, repeat

import attrs
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pyflinkstate.api import (
    ArrowObject,
    ExternalTypeInfo,
    Key,
    PickledBytesTypeInfo,
    TypeInformation,
    check_list,
)
from pyflinkstate.backends.keys import KeyHasher, key_group_of_hash
from pyflinkstate.backends.types import decode_column, encode_column
from pyflinkstate.errors import InvalidKeyError, PickledStateError
from pyflinkstate.state_access.columns import Load, has_pickles, loader

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


def distinct(codes: Codes, sizes: Iterable[int]) -> tuple[Codes, list[Codes]]:
    """Return the first row of each code, and for each of several tables where it is among its rows, or -1.

    Args:
        codes: the codes of the rows of all tables, one table after the other.
        sizes: the numbers of rows of the tables.

    >>> first, places = distinct(np.array([5, 6, 6, 7]), [2, 2])
    >>> first.tolist(), [place.tolist() for place in places]
    ([0, 1, 3], [[0, 1, -1], [-1, 0, 1]])
    """
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    places: list[Codes] = []
    start = 0
    for size in sizes:
        found = np.full(len(first), -1)
        found[numbers.reshape(-1)[start : start + size]] = np.arange(size)
        places.append(found)
        start += size
    return first, places


def values_at(values: pa.Array, rows: Codes) -> pa.Array:
    """Return the values of some rows; null for -1."""
    return values.take(pa.array(rows, mask=rows < 0))


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


#: The key group, and its rows: ``key``, ``namespace`` if there is one, and ``value``.
Group = tuple[int, pa.RecordBatch]


@attrs.frozen
class KeySpace:
    """The keys of an operator.

    Attributes:
        uid: the operator.
        key_type: the declared type of its keys.
        max_parallelism: the number of key groups.
        allow_pickle: whether pickled keys may be loaded that are not plain values.
    """

    uid: str
    key_type: TypeInformation
    max_parallelism: int
    allow_pickle: bool = False

    def checked(self, keys: Iterable[Key]) -> list[Key]:
        """Return keys as their type keeps them; raise ``InvalidKeyError`` if one does not fit."""
        hasher = KeyHasher(self.key_type)
        try:
            return [hasher.check(key) for key in keys]
        except InvalidKeyError as error:
            raise InvalidKeyError(
                f"operator {self.uid!r} has keys of {self.key_type}: {error.message}", operator=self.uid
            ) from error

    def written(self, keys: Sequence[Key]) -> pa.Array:
        """Return keys as a column of a state file."""
        return encode_column(self.key_type, keys)

    def groups_of(self, column: pa.Array) -> ArrowObject:
        """Return the key group of each key of a column, as an array of numbers."""
        return self.groups_of_keys(self.decoded(column))

    def groups_of_keys(self, keys: Sequence[Key]) -> ArrowObject:
        """Return the key group of each key, which must be valid."""
        hashes = KeyHasher(self.key_type).hashes(keys)
        return np.array([key_group_of_hash(code, self.max_parallelism) for code in hashes], np.int64)

    def mask(self, column: pa.Array, wanted: pa.Array) -> ArrowObject:
        """Return which rows of a column have one of the keys of another column."""
        codes = self.codes([(self.key_type, pa.concat_arrays([column, wanted.cast(column.type)]))])
        return np.isin(codes[: len(column)], codes[len(column) :])

    def decoded(self, column: pa.Array) -> list[Key]:
        """Return the keys of a column as the program knows them.

        Raises:
            PickledStateError: they are pickled, not plain, and must not be loaded.
        """
        if isinstance(self.key_type, PickledBytesTypeInfo):
            return [self.load(data) for data in column.to_pylist()]
        if has_pickles(self.key_type) and not self.allow_pickle:
            raise PickledStateError(
                f"operator {self.uid!r}: keys of {self.key_type} are pickled in part, and loading them runs "
                f"code: pass allow_pickle=True if you trust whoever wrote the checkpoint"
            )
        return decode_column(self.key_type, column)

    def split(self, batch: pa.RecordBatch) -> Iterator[Group]:
        """Yield the rows of a batch by key group, in order."""
        groups = self.groups_of(batch.column("key"))
        order = np.argsort(groups, kind="stable")
        found, begins = np.unique(groups[order], return_index=True)
        for key_group, rows in zip(found.tolist(), np.split(order, begins[1:]), strict=False):
            yield key_group, batch.take(pa.array(rows))

    def spread(self, batches: Iterable[pa.RecordBatch]) -> dict[int, list[pa.RecordBatch]]:
        """Return the rows of batches by key group, in order."""
        pieces: dict[int, list[pa.RecordBatch]] = {}
        for batch in batches:
            for key_group, rows in self.split(batch):
                pieces.setdefault(key_group, []).append(rows)
        return dict(sorted(pieces.items()))

    def codes(self, columns: Iterable[tuple[TypeInformation | None, pa.Array]]) -> ArrowObject:
        """Return a number for each row, equal for equal rows; see ``identity.row_codes``."""
        return row_codes(list(columns), self.load)

    def head_codes(
        self, namespace_type: TypeInformation, heads: Iterable[pa.Array], *more: Typed
    ) -> ArrowObject:
        """Return the codes of rows by their key, by their namespace if there is one, and by more columns."""
        return self.codes([*zip([self.key_type, namespace_type], heads, strict=False), *more])

    def load(self, data: bytes) -> Key:
        """Return the key of a pickle; raise ``PickledStateError`` if it must not be loaded."""
        try:
            key: Key = loader(self.allow_pickle)(data)
            return key
        except PickledStateError as error:
            raise PickledStateError(f"operator {self.uid!r}: {error.message}", operator=self.uid) from error


@attrs.frozen
class KeyFilter:
    """Selects the rows of some keys.

    Attributes:
        space: the keys of the operator.
        written: the wanted keys, as a column of a state file.
        key_groups: the key groups in which they are.
    """

    space: KeySpace
    written: pa.Array
    key_groups: frozenset[int]

    def mask(self, keys: pa.Array) -> object:
        """Return which rows of a column of keys have one of the wanted keys."""
        return self.space.mask(keys, self.written)


def key_filter(space: KeySpace, keys: Iterable[Key] | None) -> KeyFilter | None:
    """Return the filter of some keys; None if all keys are wanted.

    Raises:
        ConfigurationError: a single key is given, and the letters of a string would be the keys.
        InvalidKeyError: a key does not fit the declared type.
    """
    if keys is None:
        return None
    check_list("keys", keys)
    checked = space.checked(keys)
    groups = space.groups_of_keys(checked).tolist() if checked else ()
    return KeyFilter(space, space.written(checked), frozenset(groups))
