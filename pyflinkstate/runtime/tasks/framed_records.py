"""The records of frames of values, which are the results of a stage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from pyflinkstate.api.values import Record
from pyflinkstate.runtime.wire import MAX_WATERMARK, TaskTime, ValuesFrame


class Follower(Protocol):
    """A chain, whose time follows the records that it reads."""

    source_time: TaskTime

    def begin_at(self, watermark: int, is_idle: bool) -> None:
        """Set the watermark and idleness before the first record."""


class FramedRecords:
    """Records in one or two parts: the end of time begins a part.

    What reads them can then send the watermark that they had before the end. Readers that have no use for
    it iterate over all records.

    Args:
        frames: the frames, from a partition's first or further ones.
        tag_id: the side output to read; None for the main output.
        follower: gets the time of the first frame at once, and that of each record.
    """

    def __init__(self, frames: Iterable[bytes], tag_id: str | None, follower: Follower) -> None:
        self._frames = map(ValuesFrame.decode, frames)
        self._tag_id = tag_id
        self._time = follower.source_time
        self._next = next(self._frames, None)
        if self._next is not None and self._next.opening is not None:
            follower.begin_at(self._next.opening, self._next.is_idle)

    def __iter__(self) -> Iterator[Record]:
        return chain.from_iterable(self.parts())

    def parts(self) -> Iterator[Iterator[Record]]:
        """Yield the records of each part; each must be taken before the next part."""
        yield chain.from_iterable(self._columns())
        while self._next is not None:
            yield chain.from_iterable(self._columns())

    def _columns(self) -> Iterator[Iterable[Record]]:
        time = self._time
        while (frame := self._next) is not None:
            values, timestamps = frame.output(self._tag_id)
            time.is_idle = frame.is_idle
            yield values if timestamps is None else _followed(values, timestamps, time)
            if frame.watermark is not None:
                time.watermark = frame.watermark
            self._next = next(self._frames, None)
            if self._next is not None and time.watermark < MAX_WATERMARK == self._next.watermark:
                return


def _followed(values: Sequence[Record], timestamps: Sequence[int | None], time: TaskTime) -> Iterator[Record]:
    """Yield values; ``time`` has the timestamp of the one that was taken last."""
    for value, time.timestamp in zip(values, timestamps, strict=True):
        yield value
