"""Records that travel as columns: what makes them is known where they are read, and not here."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
import numpy.typing as npt

from pyflinkstate.api.time import TimestampAssigner
from pyflinkstate.api.values import Key, Record, SelectKey


class ColumnBatch(Sequence[Record]):
    """Records as columns; it is pickled as columns, and a record is made of them where one is asked for."""

    @property
    @abstractmethod
    def size_bytes(self) -> int:
        """The memory of the columns."""

    @abstractmethod
    def rows(self) -> list[Record]:
        """Return the records; each is new."""

    @abstractmethod
    def keys(self, select_key: SelectKey) -> list[Key] | None:
        """Return the keys of all records, or None if ``select_key`` must see the records."""

    @abstractmethod
    def timestamps(self, assigner: TimestampAssigner) -> list[int] | None:
        """Return the timestamps of all records, or None if ``assigner`` must see the records."""

    @abstractmethod
    def take(self, order: npt.NDArray[np.int64]) -> ColumnBatch:
        """Return the records at these positions, in this order."""

    @abstractmethod
    def part(self, start: int, length: int) -> ColumnBatch:
        """Return ``length`` records from ``start`` on, or as many as there are."""

    @overload
    def __getitem__(self, index: int) -> Record: ...

    @overload
    def __getitem__(self, index: slice) -> ColumnBatch: ...

    def __getitem__(self, index: int | slice) -> Record:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return self.part(start, max(0, stop - start))
            return self.take(np.arange(start, stop, step))
        position = range(len(self))[index]
        return self.part(position, 1).rows()[0]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rows())

    def parts(self, max_records: int, max_bytes: int) -> Iterator[ColumnBatch]:
        """Yield the records in parts, each with at most the given numbers of records and, roughly, bytes."""
        size = max(1, self.size_bytes)
        step = max(1, min(max_records, len(self) * max_bytes // size))
        for start in range(0, len(self), step):
            yield self.part(start, step)
