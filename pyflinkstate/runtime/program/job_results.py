"""The records of a running job (``pyflink.datastream.data_stream.CloseableIterator``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic

import attrs

from pyflinkstate.api.type_variables import T
from pyflinkstate.runtime.job import Job


@attrs.define
class CloseableIterator(Generic[T]):
    """Iterates over the records of a running job; ``DataStream.execute_and_collect`` returns one."""

    _job: Job
    _records: deque[T]
    _limit: int | None
    _epochs: Iterator[int] = attrs.field(init=False)
    _returned: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        self._epochs = self._job.run()

    def __iter__(self) -> CloseableIterator[T]:
        return self

    def __next__(self) -> T:
        if self._limit is not None and self._returned >= self._limit:
            self.close()
            raise StopIteration
        while not self._records:
            if next(self._epochs, None) is None and not self._records:
                raise StopIteration
        self._returned += 1
        return self._records.popleft()

    def next(self) -> T:
        """Return the next record, or raise ``StopIteration`` if there is none."""
        return next(self)

    def __enter__(self) -> CloseableIterator[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the job and its slots. Idempotent."""
        self._epochs.close()  # type: ignore[attr-defined]  # it is a generator
