"""Rows that fill the state of a job before it reads its input."""

from __future__ import annotations

from collections.abc import Callable

from pyflinkstate.api.values import JsonObject, Offset
from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.sources.sources import Available, Epoch, EpochSet, RddEpoch, Source, SplitEpoch
from pyflinkstate.runtime.wire import spark_cause, told_by_spark

#: In the offset of a job that has not read its initial rows.
UNREAD = "initial_rows"


class InitialRows(Source):
    """Rows that are read once, before the other source of a job: see :class:`SeededSource`.

    Args:
        read: returns an epoch of all rows. It is called only if they are read, and again after a restart.
    """

    is_bounded = True

    def __init__(self, read: Callable[[], SplitEpoch | RddEpoch]) -> None:
        self._read = read

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return 0

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        return Available(1, is_last=True)

    def plan(self, start: Offset, end: Offset) -> SplitEpoch | RddEpoch:
        """See :class:`Source`; raise ``SourceError`` if the rows cannot be read."""
        try:
            return self._read()
        except Exception as error:  # noqa: BLE001 - whatever Spark or the user's code raises
            raise SourceError(
                f"initial_state cannot be read: {type(error).__name__}: {told_by_spark(error)}"
            ) from spark_cause(error)


class SeededSource(Source):
    """Reads initial rows in an epoch of their own, and after that another source.

    From the end of that epoch on, an offset is one of the other source. So the checkpoint after it fits what
    the other source begins with, such as the first batch of a streaming query, and a job that is restored
    from it, or from any later one, does not read the rows again. Before, the offset is the other source's
    first one, with a mark. An attempt that fails in the first epoch leaves no state behind, and the next one
    begins with the rows.

    Args:
        rows: the key in an :class:`EpochSet` and the source of the initial rows.
        rest: the same of the other source, whose offsets are JSON objects.
    """

    def __init__(self, rows: tuple[str, InitialRows], rest: tuple[str, Source]) -> None:
        self._rows_key, self._rows = rows
        self._rest_key, self._rest = rest
        self.commits_every_epoch = self._rest.commits_every_epoch
        self.is_rewindable = self._rest.is_rewindable
        self.poll_s = self._rest.poll_s

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        self._rest.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`."""
        self._rest.close(error)

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return {**self._rest.initial_offset(), UNREAD: True}

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        self._rest.check_restored(_without_mark(position) if isinstance(position, dict) else position)

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        if UNREAD in start:
            return Available(_without_mark(start), is_full=True)
        return self._rest.latest_offset(start, whole)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        if UNREAD in start:
            return EpochSet({self._rows_key: self._rows.plan(0, 1)})
        epoch = self._rest.plan(start, end)
        assert not isinstance(epoch, EpochSet), "initial rows come before a single source"
        return EpochSet({self._rest_key: epoch})

    def commit(self, end: Offset) -> None:
        """See :class:`Source`."""
        self._rest.commit(_without_mark(end))


def _without_mark(offset: JsonObject) -> JsonObject:
    return {name: value for name, value in offset.items() if name != UNREAD}
