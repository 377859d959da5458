"""Frames, in which records travel: columns, not rows, pickled once for a few thousand records.

Two pickled lists cost a third of a list of pairs, and Spark moves a frame as opaque bytes, without any cost
per record of its own. A frame is pickled by one task of the job and unpickled by another.

Frames are bounded in bytes because whole frames are held in memory: by the task that makes one, by Spark, and
by the slot. Records are taken in *chunks*, and one record of each chunk is roughly measured, which costs a
few nanoseconds per record. A chunk is one record at first and doubles while records are small, so chunks of
large records stay small. The size of an encoded frame corrects the measure for the next one, and a frame that
is too large all the same is cut in two. All of this depends only on the records, so an epoch that is run
again has the same frames.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, overload

import attrs
import numpy as np
import numpy.typing as npt

from pyflinkstate.api import NO_WATERMARK, Key, Record, SelectKey, TimestampAssigner, safe_repr
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.wire.pickling import dumps, loads
from pyflinkstate.runtime.wire.time import FrameTime, TaskTime

RECORDS_PER_FRAME = 4096
#: A frame is complete when it has about this many bytes, whatever the number of its records. PySpark sorts up
#: to a hundred frames at a time in a worker's memory.
FRAME_BYTES = 2 * 1024 * 1024
#: A frame of several records that is larger is cut in two.
MAX_FRAME_BYTES = 2 * FRAME_BYTES
#: A frame of more records is cut in two before it is encoded. Many timers that fire at once can give so many:
#: to encode them all to see how large they are, and then each half again, would take several times as long.
MAX_FRAME_RECORDS = 32_768
#: The greatest size of one record in a frame. Spark writes lengths as signed 32-bit numbers.
MAX_RECORD_BYTES = 1024 * 1024 * 1024
#: One of this many records is measured if they are small.
CHUNK = 256
#: Number of items of a container that are measured.
_MEASURED_ITEMS = 8
_MAX_DEPTH = 6
_MAX_STEP = 1 << 20
#: (subtask, round, branch, sending partition, number in that partition): sorting by it makes input
#: deterministic. Without event time there is one round; with it, each frame of a partition is in a round of
#: its own, so that partitions advance together. Broadcast frames are in an earlier round.
FrameKey = tuple[int, int, int, int, int]


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
        return self.part(range(len(self))[index], 1).rows()[0]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.rows())

    def parts(self, max_records: int, max_bytes: int) -> Iterator[ColumnBatch]:
        """Yield the records in parts, each with at most the given numbers of records and, roughly, bytes."""
        step = max(1, min(max_records, len(self) * max_bytes // max(1, self.size_bytes)))
        yield from (self.part(start, step) for start in range(0, len(self), step))


@attrs.frozen
class InputFrame:
    """Records for a stateful operator, as columns of equal length.

    Attributes:
        key_groups: the key groups as unsigned 16-bit numbers, little-endian; empty if records have no keys.
        keys: the keys of the records; empty if they have no keys.
        values: the records.
        input: the number of the operator's input that they are for, from 0.
        timestamps: the timestamps of the records, in ms since 1970; None if no record has one.
        time: what the frame says about event time.
    """

    key_groups: bytes
    keys: Sequence[Key]
    values: Sequence[Record]
    input: int = 0
    timestamps: Sequence[int | None] | None = None
    time: FrameTime | None = None

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        columns = (self.key_groups, self.keys, self.values)
        if self.input == 0 and self.timestamps is None and self.time is None:
            return _dumps(columns)
        time = None if self.time is None else attrs.astuple(self.time)
        return _dumps((*columns, self.input, self.timestamps, time))

    @classmethod
    def decode(cls, data: bytes) -> InputFrame:
        """Return the frame that ``encode`` was called on."""
        columns: tuple[Any, ...] = loads(data)
        groups, keys, values, *rest = columns
        if isinstance(values, ColumnBatch):
            values = values.rows()
        if not rest:
            return cls(groups, keys, values)
        number, timestamps, time = rest
        return cls(groups, keys, values, number, timestamps, None if time is None else FrameTime(*time))

    def part(self, part: slice) -> InputFrame:
        """Return a frame of some of the records; the caller must set its event time."""
        if part.start == 0 and part.stop >= len(self.values):
            return self
        times = None if self.timestamps is None else self.timestamps[part]
        groups = self.key_groups[2 * part.start : 2 * part.stop]
        return attrs.evolve(
            self, key_groups=groups, keys=self.keys[part], values=self.values[part], timestamps=times
        )

    def halves(self) -> tuple[InputFrame, InputFrame]:
        """Split the frame in two; the first says nothing new about event time."""
        middle = len(self.values) // 2
        first, second = self.part(slice(0, middle)), self.part(slice(middle, len(self.values)))
        if self.time is not None:
            first = attrs.evolve(first, time=attrs.evolve(self.time, watermark=NO_WATERMARK))
        return first, second

    def __len__(self) -> int:
        return len(self.values)


@attrs.frozen
class ValuesFrame:
    """Results of a stage, as columns of equal length.

    Attributes:
        values: the records of the main output.
        timestamps: their timestamps; None if no record has one.
        watermark: the watermark after them; None if the job does not use event time.
        is_idle: whether the stage holds back no other.
        side: records and timestamps of side outputs, by the ids of their tags.
        opening: the watermark at the beginning of the epoch, in the first frame of a partition.
    """

    values: Sequence[Record]
    timestamps: Sequence[int | None] | None = None
    watermark: int | None = None
    is_idle: bool = False
    side: Mapping[str, tuple[Sequence[Record], Sequence[int | None] | None]] = attrs.Factory(dict)
    opening: int | None = None

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        rest = (self.timestamps, self.watermark, self.is_idle, self.side, self.opening)
        return _dumps(list(self.values) if rest == (None, None, False, {}, None) else (self.values, *rest))

    @classmethod
    def decode(cls, data: bytes | ValuesFrame) -> ValuesFrame:
        """Return the frame that ``encode`` was called on; one that stays in its process is not encoded."""
        if isinstance(data, ValuesFrame):
            return data
        columns = loads(data)
        return cls(*columns) if type(columns) is tuple else cls(columns)

    def output(self, tag_id: str | None) -> tuple[Sequence[Record], Sequence[int | None] | None]:
        """Return records and timestamps of the main output (None) or of a side output."""
        if tag_id is None:
            return self.values, self.timestamps
        return self.side.get(tag_id, ((), None))

    def halves(self) -> tuple[ValuesFrame, ValuesFrame]:
        """Split a frame of two or more records in two smaller ones; the first has no watermark."""
        numbers = self._numbers_of_first_half()
        main = _split((self.values, self.timestamps), numbers.get(None, 0))
        sides = {tag_id: _split(columns, numbers.get(tag_id, 0)) for tag_id, columns in self.side.items()}
        first, second = ({tag_id: halves[number] for tag_id, halves in sides.items()} for number in (0, 1))
        return (
            ValuesFrame(*main[0], None, self.is_idle, first, self.opening),
            ValuesFrame(*main[1], self.watermark, self.is_idle, second),
        )

    def _numbers_of_first_half(self) -> dict[str | None, int]:
        """Return how many records of each output go into the first half.

        That is half of them. If no output has two records, the outputs are divided.
        """
        lengths: dict[str | None, int] = {None: len(self.values)}
        lengths.update((tag_id, len(values)) for tag_id, (values, _) in self.side.items())
        if max(lengths.values()) > 1:
            return {tag_id: length // 2 for tag_id, length in lengths.items()}
        filled = [tag_id for tag_id, length in lengths.items() if length]
        return dict.fromkeys(filled[: len(filled) // 2], 1)

    def __len__(self) -> int:
        return len(self.values) + sum(len(values) for values, _ in self.side.values())


#: Records and their timestamps.
_Columns = tuple[Sequence[Record], Sequence[int | None] | None]


def _split(columns: _Columns, number: int) -> tuple[_Columns, _Columns]:
    """Cut columns in two after a number of records."""
    values, timestamps = columns
    if timestamps is None:
        return (values[:number], None), (values[number:], None)
    return (values[:number], timestamps[:number]), (values[number:], timestamps[number:])


def encoded_frames(frame: InputFrame | ValuesFrame, place: str) -> Iterator[bytes]:
    """Yield the bytes of a frame, or of several if one would be too large.

    Args:
        frame: a frame with any number of records.
        place: the operator's name, for errors.

    Raises:
        BadRecordError: a record cannot be pickled, or is larger than ``MAX_RECORD_BYTES``.
    """
    if len(frame) <= MAX_FRAME_RECORDS:
        data = frame.encode()
        if len(frame) < 2:
            _check_single(frame, len(data), place)
        if len(frame) < 2 or len(data) <= MAX_FRAME_BYTES:
            yield data
            return
        del data
    for half in frame.halves():
        yield from encoded_frames(half, place)


def _check_single(frame: InputFrame | ValuesFrame, size_bytes: int, place: str) -> None:
    """Check that the only record of a frame is not too large."""
    if size_bytes <= MAX_RECORD_BYTES:
        return
    sides = [] if isinstance(frame, InputFrame) else [values for values, _ in frame.side.values()]
    record = next(chain(frame.values, *sides), None)
    of_key = f" of key {safe_repr(frame.keys[0])}" if isinstance(frame, InputFrame) and frame.keys else ""
    raise BadRecordError(
        f"{place}: a record{of_key}, a {type(record).__name__}, has {size_bytes} bytes when it is sent, and "
        f"the limit is {MAX_RECORD_BYTES}: keep large objects in files and send their paths, or send them in "
        f"pieces",
        operator=place,
        size_bytes=size_bytes,
    )


def frames_of(records: Iterator[Record], place: str) -> Iterator[bytes]:
    """Yield frames of plain values; the errors are those of :func:`encoded_frames`."""
    cutter = FrameCutter(RECORDS_PER_FRAME)
    while batch := cutter.take(records):
        yield from cutter.encode(ValuesFrame(batch), place)


def decode_values(data: bytes) -> Sequence[Record]:
    """Return the values of a frame that has nothing else, such as those of :func:`frames_of`."""
    return ValuesFrame.decode(data).values


def _dumps(columns: object) -> bytes:
    try:
        return dumps(columns)
    except Exception as error:
        raise BadRecordError(
            f"records between operators must be picklable: {type(error).__name__}: {error}"
        ) from error


def rough_size(value: Any, depth: int = 0) -> int:
    """Estimate how many bytes a value has in a frame; large parts of large containers may be missed."""
    kind = type(value)
    if kind is str or kind is bytes or kind is bytearray:
        return len(value) + 8
    if kind is int or kind is float or value is None:
        return 8
    if depth > _MAX_DEPTH:
        return 8
    if kind is tuple or kind is list:
        return _size_of_items(value, len(value), depth)
    if isinstance(value, dict):
        return _size_of_items(value, len(value), depth) + _size_of_items(value.values(), len(value), depth)
    return _size_of_object(value, depth)


def _size_of_items(items: Iterable[object], number: int, depth: int) -> int:
    measured = [rough_size(item, depth + 1) for item in islice(items, _MEASURED_ITEMS)]
    return 8 if not measured else 8 + sum(measured) * number // len(measured)


def _size_of_object(value: Record, depth: int) -> int:
    fields = getattr(value, "__dict__", None)
    if fields:
        return rough_size(dict(fields), depth + 1)
    size: object = getattr(value, "nbytes", None)
    if type(size) is int:
        return size
    slots = getattr(type(value), "__slots__", ())
    if slots and not isinstance(slots, str):
        return sum(rough_size(getattr(value, name, None), depth + 1) for name in slots)
    return sys.getsizeof(value)


@attrs.define(eq=False)
class FrameCutter:
    """Takes as many of the next records as make up a frame.

    Args:
        max_records: the greatest number of records in a frame.

    Attributes:
        has_ended: whether there were fewer records than were asked for last.
    """

    max_records: int
    has_ended: bool = attrs.field(init=False, default=False)
    _chunk: int = attrs.field(init=False, default=1)
    _measured: int = attrs.field(init=False, default=0)
    #: The ratio of the encoded size of records to their estimated size.
    _factor: float = attrs.field(init=False, default=1.0)

    def take(
        self,
        records: Iterator[Record],
        time: TaskTime | None = None,
        timestamps: list[int | None] | None = None,
    ) -> list[Record]:
        """Return the records of the next frame, none at the end.

        Args:
            records: the records.
            time: has the timestamp of the record that was taken last.
            timestamps: receives the timestamps of the records, if there is a time.
        """
        batch: list[Record] = []
        self._measured = 0
        while number := self._next(len(batch)):
            before = len(batch)
            for_chunk = islice(records, number)
            if time is None or timestamps is None:
                batch.extend(for_chunk)
            else:
                for record in for_chunk:
                    batch.append(record)
                    timestamps.append(time.timestamp)
            self.has_ended = len(batch) < before + number
            if self.has_ended:
                return batch
            self._measure(number, rough_size(batch[-1]))
        return batch

    def _next(self, taken: int) -> int:
        is_full = self._measured * self._factor >= FRAME_BYTES
        return 0 if is_full else min(self._chunk, self.max_records - taken)

    def _measure(self, number: int, size: int) -> None:
        self._measured += number * size
        room = int(FRAME_BYTES / (4 * max(size, 1) * self._factor))
        self._chunk = max(1, min(2 * self._chunk, room, CHUNK))

    def encode(self, frame: ValuesFrame, place: str) -> Iterator[bytes]:
        """Yield the bytes of a frame of the records that were taken last; see :func:`encoded_frames`."""
        size = 0
        for data in encoded_frames(frame, place):
            size += len(data)
            yield data
        self.encoded(size)

    def encoded(self, size_bytes: int) -> None:
        """Record the encoded size of the records that were taken last."""
        if self._measured:
            self._factor = max(1.0, size_bytes / self._measured)


@attrs.define(eq=False)
class OutputSteps:
    """Decides how many records of a frame to process before the results are sent.

    If results are small it is the whole frame; if one record gives some megabytes, a few records at a time.
    """

    _step: int = CHUNK

    def parts(self, number: int) -> Iterator[slice]:
        """Yield which of ``number`` records to process next."""
        start = 0
        while start < number:
            end = min(number, start + self._step)
            yield slice(start, end)
            start = end

    def is_full(self, *outputs: Sequence[Record]) -> bool:
        """Return whether these results are enough for a frame, and learn from their size.

        Args:
            outputs: the results of the main output and of each side output.
        """
        size = sum(rough_size(results[-1]) * len(results) for results in outputs if results)
        self._step = max(1, self._step // 2) if size > FRAME_BYTES else min(2 * self._step, _MAX_STEP)
        return size >= FRAME_BYTES
