"""The records of a running job (``pyflink.datastream.data_stream.CloseableIterator``)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

import attrs

from pyflinkstate.api.type_variables import T
from pyflinkstate.errors import ImpossibleEventError, PyFlinkStateError
from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.program.ending_signals import EndedBySignals

AnyError = TypeVar("AnyError", bound=BaseException)


def run_to_end(job: Job) -> None:
    """Run a job to the end of its input.

    Raises:
        PyFlinkStateError: what made it fail, as of here.
    """
    try:
        with EndedBySignals(job):
            deque(job.run(), maxlen=0)
    except PyFlinkStateError as error:
        raise without_inner_frames(error) from error.__cause__


def without_inner_frames(error: AnyError) -> AnyError:
    """Return ``error``, which no longer shows where in this package it was found out: its message says more.

    Where it is a fault of this package, and where it was caused by another's error, the frames stay.
    """
    found: BaseException | None = error
    while isinstance(found, PyFlinkStateError) and not isinstance(found, ImpossibleEventError):
        found.__traceback__ = None
        found = found.__cause__
    return error


@attrs.define
class CloseableIterator(Generic[T]):
    """Iterates over the records of a running job; ``DataStream.execute_and_collect`` returns one."""

    _job: Job
    _records: deque[T]
    _epochs: Iterator[int] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._epochs = self._job.run()

    def __iter__(self) -> CloseableIterator[T]:
        return self

    def __next__(self) -> T:
        while not self._records:
            if self._next_epoch() is None and not self._records:
                raise StopIteration
        return self._records.popleft()

    def _next_epoch(self) -> int | None:
        try:
            with EndedBySignals(self._job):
                return next(self._epochs, None)
        except PyFlinkStateError as error:
            raise without_inner_frames(error) from error.__cause__

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
