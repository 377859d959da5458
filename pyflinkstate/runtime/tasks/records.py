"""How tasks take records: as batches of columns, from frames, and together with their timestamps.

A chain tells of time record by record: its ``TaskTime`` has the timestamp of the record that was taken last.
Most chains end with the assigner of timestamps, and nothing behind it asks for the time of single records.
The task then takes the records of a whole frame from before the assigner, and assigns their timestamps at
once. The watermark is the same either way: until more is asked for, it is that of the records before the
last one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import chain, repeat
from typing import Protocol

import attrs

from pyflinkstate.api import NO_TIMESTAMP, Record, TimestampAssigner, WatermarkStrategy, safe_repr
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.wire import (
    MAX_WATERMARK,
    TASK_ENDS,
    ColumnBatch,
    FrameCutter,
    TaskTime,
    ValuesFrame,
    frames,
    user_failure,
)

Timestamps = Sequence[int | None]


class TimedRecords(Protocol):
    """Records that are taken in batches, with their timestamps."""

    @property
    def is_over(self) -> bool:
        """Whether the end was reached; it may be seen only when no more records come."""

    def take(self, cutter: FrameCutter) -> tuple[Sequence[Record], Timestamps]:
        """Return the records of the next frame and their timestamps; none at the end of a part."""

    def close(self) -> None:
        """Close the chain that the records come from, before its end."""


class BatchedRecords:
    """Records that come in batches and are passed on in batches; they have no timestamps."""

    def __init__(self, batches: Iterable[ColumnBatch]) -> None:
        self.batches = iter(batches)
        self._parts: Iterator[ColumnBatch] | None = None
        self.is_over = False

    def take(self, cutter: FrameCutter) -> tuple[Sequence[Record], Timestamps]:
        """See :class:`TimedRecords`."""
        if self._parts is None:
            sizes = (cutter.max_records, frames.FRAME_BYTES)
            self._parts = chain.from_iterable(batch.parts(*sizes) for batch in self.batches)
        batch = next(self._parts, None)
        if batch is None:
            cutter.has_ended = self.is_over = True
            return (), []
        return batch, [None] * len(batch)

    def close(self) -> None:
        """See :class:`TimedRecords`."""
        close(self.batches)


@attrs.frozen
class PartedRecords:
    """The records of a source that is read live, in the parts in which they come."""

    _parts: Iterable[Sequence[Record]]

    def parts(self) -> Iterator[Iterator[Record]]:
        """Yield the records of each part."""
        return map(iter, self._parts)


class FramedRecords:
    """The records of frames of values, the results of a stage, in parts: the end of time begins one.

    What reads them can then send the watermark that they had before the end. Readers that have no use for
    it iterate over all records.

    Args:
        frames: the frames, from a partition's first or further ones.
        tag_id: the side output to read; None for the main output.
        time: gets the time of each record.
        begin_at: called at once with the watermark and idleness with which the first frame begins.
    """

    def __init__(
        self,
        frames: Iterable[bytes],
        tag_id: str | None,
        time: TaskTime,
        begin_at: Callable[[int, bool], None],
    ) -> None:
        self._frames = map(ValuesFrame.decode, frames)
        self._tag_id = tag_id
        self._time = time
        self._next = next(self._frames, None)
        if self._next is not None and self._next.opening is not None:
            begin_at(self._next.opening, self._next.is_idle)

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


class FollowedRecords:
    """Records whose time follows them.

    Args:
        parts: the records, in parts: no frame has records of two parts.
        time: has the timestamp of the record that was taken last; None if records have no timestamps.
        is_live: whether a part may be long in coming, so the one before does not wait for it.
    """

    def __init__(
        self, parts: Iterable[Iterable[Record]], time: TaskTime | None, is_live: bool = False
    ) -> None:
        self._parts = iter(parts)
        self._part: Iterator[Record] | None = None
        self._time = time
        self._is_live = is_live
        self.is_over = False

    def close(self) -> None:
        """See :class:`TimedRecords`."""
        if self._part is not None:
            close(self._part)
        close(self._parts)

    def take(self, cutter: FrameCutter) -> tuple[Sequence[Record], Timestamps]:
        """See :class:`TimedRecords`."""
        timestamps: list[int | None] = []
        if self._part is None:
            self._next_part()
        if self._part is None:
            return [], timestamps
        batch = cutter.take(self._part, self._time, timestamps)
        if cutter.has_ended and self._is_live:
            self._part = None
        elif cutter.has_ended:
            self._next_part()
        return batch, timestamps if self._time is not None else [None] * len(batch)

    def _next_part(self) -> None:
        part = None if self.is_over else next(self._parts, None)
        self._part = None if part is None else iter(part)
        self.is_over = part is None


class AssignedRecords:
    """Records that get their timestamps and watermarks a frame at a time.

    Args:
        name: the name of the assigner's operator.
        records: the records before the assigner.
        strategy: returns the strategy, once records have been asked for.
        times: the time before the assigner, and the time behind it, whose watermark is set here.
        end: called once at the end with the watermark, or with None if there were no records.
    """

    def __init__(
        self,
        name: str,
        records: TimedRecords,
        strategy: Callable[[], WatermarkStrategy],
        times: tuple[TaskTime, TaskTime],
        end: Callable[[int | None], None],
    ) -> None:
        self._name = name
        self._records = records
        self._strategy = strategy
        self._before, self._after = times
        self._end: Callable[[int | None], None] | None = end
        self._greatest = self._after.watermark
        self._has_records = False

    def take(self, cutter: FrameCutter) -> tuple[Sequence[Record], Timestamps]:
        """See :class:`TimedRecords`."""
        batch, own = self._records.take(cutter)
        strategy = self._strategy()
        timestamps = self._assigned(strategy.timestamp_assigner, batch, own)
        self._has_records = self._has_records or bool(batch)
        self._advance(strategy.max_out_of_orderness_ms, timestamps)
        if cutter.has_ended:
            self._set_end()
        return batch, timestamps

    @property
    def is_over(self) -> bool:
        """See :class:`TimedRecords`."""
        return self._records.is_over

    def close(self) -> None:
        """See :class:`TimedRecords`."""
        self._records.close()

    def _assigned(
        self, assigner: TimestampAssigner | None, batch: Sequence[Record], own: Timestamps
    ) -> Timestamps:
        if assigner is None:
            return own
        try:
            return assigned(self._name, assigner, batch, own)
        except BaseException:
            self.close()
            raise

    def _advance(self, delay: int | None, timestamps: Timestamps) -> None:
        before_last = self._after_all(delay, timestamps[:-1])
        self._greatest = max(before_last, self._after_all(delay, timestamps[-1:]))
        self._after.watermark = before_last

    def _after_all(self, delay: int | None, timestamps: Timestamps) -> int:
        if delay is None or not timestamps:
            return self._greatest
        latest = max((time for time in timestamps if time is not None), default=NO_TIMESTAMP)
        return max(self._greatest, latest - delay - 1)

    def _set_end(self) -> None:
        self._after.watermark = MAX_WATERMARK if self._before.watermark == MAX_WATERMARK else self._greatest
        if self._end is not None and self.is_over:
            self._end(self._greatest if self._has_records else None)
            self._end = None


def has_untold(time: TaskTime, told: int, ends: bool) -> bool:
    """Return whether the watermark has to be sent on its own, because the end of time comes next.

    Args:
        time: the time after all records until now.
        told: the watermark that was sent last.
        ends: whether the end of time comes next.
    """
    return ends and told < time.watermark < MAX_WATERMARK


def close(records: Iterator[Record]) -> None:
    """Close a generator; other iterators have nothing to close."""
    if isinstance(records, Generator):
        records.close()


def assigned(name: str, assigner: TimestampAssigner, batch: Sequence[Record], own: Timestamps) -> list[int]:
    """Return the timestamps of records.

    Args:
        name: the name of the assigner's operator.
        assigner: assigns them.
        batch: the records.
        own: the timestamps that they already have.

    Raises:
        UserFunctionError: the assigner raised.
        BadRecordError: a timestamp is not a 64-bit int.
    """
    timestamps: list[int] = []
    found = batch.timestamps(assigner) if isinstance(batch, ColumnBatch) else None
    if found is not None:
        _check_all(name, batch, found)
        return found
    error: BaseException = StopIteration()  # extend() takes it for the end
    told = repeat(NO_TIMESTAMP) if own.count(None) == len(own) else map(_told, own)
    try:
        timestamps.extend(map(assigner.extract_timestamp, batch, told))
    except TASK_ENDS:
        raise
    except BaseException as raised:  # noqa: BLE001 - a user's method may raise anything
        error = raised
    _check_all(name, batch, timestamps)
    if len(timestamps) < len(batch):
        raise user_failure(error, name, batch[len(timestamps)]) from error
    return timestamps


def _told(timestamp: int | None) -> int:
    return NO_TIMESTAMP if timestamp is None else timestamp


def _check_all(name: str, batch: Sequence[Record], timestamps: list[int]) -> None:
    if not timestamps:
        return
    are_ints = set(map(type, timestamps)) == {int}
    if not are_ints or min(timestamps) < NO_TIMESTAMP or max(timestamps) > MAX_WATERMARK:
        for record, timestamp in zip(batch, timestamps, strict=False):
            check_timestamp(name, record, timestamp)


def check_timestamp(name: str, record: Record, timestamp: object) -> None:
    """Raise the error that names operator and record unless ``timestamp`` is a 64-bit int."""
    if type(timestamp) is not int or not NO_TIMESTAMP <= timestamp <= MAX_WATERMARK:
        problem = BadRecordError(
            f"a timestamp is a whole number of milliseconds since 1970, from -2**63 to 2**63 - 1, and "
            f"extract_timestamp() returned {safe_repr(timestamp)}"
        )
        raise user_failure(problem, name, record)
