"""The keys of one operator: their type, and which key group each is in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import attrs
import numpy as np
import pyarrow as pa

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.api.values import ArrowObject, Key
from pyflinkstate.backends.keys import KeyHasher, key_group_of_hash
from pyflinkstate.backends.types import decode_column, encode_column
from pyflinkstate.errors import InvalidKeyError, PickledStateError
from pyflinkstate.state_access.identity import row_codes
from pyflinkstate.state_access.pickles import has_pickles, loader

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

    def codes(self, columns: Iterable[tuple[TypeInformation | None, pa.Array]]) -> ArrowObject:
        """Return a number for each row, equal for equal rows; see ``identity.row_codes``."""
        return row_codes(list(columns), self.load)

    def load(self, data: bytes) -> Key:
        """Return the key of a pickle; raise ``PickledStateError`` if it must not be loaded."""
        try:
            key: Key = loader(self.allow_pickle)(data)
            return key
        except PickledStateError as error:
            raise PickledStateError(f"operator {self.uid!r}: {error.message}", operator=self.uid) from error
