"""The source behind ``DataStream.cache``: results of an earlier job, kept on the cluster."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api.values import Offset
from pyflinkstate.runtime.sources.sources import Available, Epoch, RddSource, Source


@attrs.frozen
class CachedRecords:
    """Records on the cluster, and the function that releases them."""

    source: RddSource
    release: Callable[[], None]


class CachedSource(Source):
    """Records that are computed when a job first reads them, and read from the cluster after that.

    Args:
        compute: runs the job that computes them.
    """

    is_bounded = True

    def __init__(self, compute: Callable[[], CachedRecords]) -> None:
        self._compute = compute
        self._records: CachedRecords | None = None

    def fill(self) -> None:
        """Compute the records, unless they are there."""
        if self._records is None:
            self._records = self._compute()

    def invalidate(self) -> None:
        """Release the records; the next reader computes them again."""
        records, self._records = self._records, None
        if records is not None:
            records.release()

    def _source(self) -> RddSource:
        assert self._records is not None, "it is filled before a job is made"
        return self._records.source

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._source().initial_offset()

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        self._source().check_restored(position)

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        return self._source().latest_offset(start, whole)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        return self._source().plan(start, end)
