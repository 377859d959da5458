"""Frames, in which records travel: columns, not rows, pickled once for a few thousand records.

Two pickled lists cost a third of a list of pairs, and Spark moves a frame as opaque bytes, without any cost
per record of its own. A frame is pickled by one task of the job and unpickled by another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from pyflinkstate.api.time import NO_WATERMARK
from pyflinkstate.api.values import Key, Record
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.wire import frame_sizes
from pyflinkstate.runtime.wire.column_batches import ColumnBatch
from pyflinkstate.runtime.wire.frame_sizes import FrameCutter
from pyflinkstate.runtime.wire.pickling import dumps, loads
from pyflinkstate.runtime.wire.watermarks import FrameTime

RECORDS_PER_FRAME = 4096
#: (subtask, round, branch, sending partition, number in that partition): sorting by it makes input
#: deterministic. Without event time there is one round; with it, each frame of a partition is in a round of
#: its own, so that partitions advance together. Broadcast frames are in an earlier round.
FrameKey = tuple[int, int, int, int, int]


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
        if not (self._has_times or self.side):
            return _dumps(list(self.values))
        columns = (self.values, self.timestamps, self.watermark, self.is_idle, self.side, self.opening)
        return _dumps(columns)

    @property
    def _has_times(self) -> bool:
        """Whether the frame says anything about event time."""
        times = (self.timestamps, self.watermark, self.opening)
        return self.is_idle or any(time is not None for time in times)

    @classmethod
    def decode(cls, data: bytes) -> ValuesFrame:
        """Return the frame that ``encode`` was called on."""
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
    """Return the first records, so many, and the others."""
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
        BadRecordError: a record cannot be pickled, or is larger than ``frame_sizes.MAX_RECORD_BYTES``.
    """
    if len(frame) <= frame_sizes.MAX_FRAME_RECORDS:
        data = frame.encode()
        if len(frame) < 2:
            _check_single(frame, len(data), place)
        if len(frame) < 2 or len(data) <= frame_sizes.MAX_FRAME_BYTES:
            yield data
            return
        del data
    for half in frame.halves():
        yield from encoded_frames(half, place)


def _check_single(frame: InputFrame | ValuesFrame, size_bytes: int, place: str) -> None:
    values = [*frame.values]
    key = None
    if isinstance(frame, InputFrame):
        key = frame.keys[0] if frame.keys else None
    else:
        values += [value for side, _ in frame.side.values() for value in side]
    frame_sizes.check_record(size_bytes, place, values[0] if values else None, key)


def frames_of(records: Iterator[Record], place: str) -> Iterator[bytes]:
    """Yield frames of plain values; the errors are those of :func:`encoded_frames`."""
    cutter = FrameCutter(RECORDS_PER_FRAME)
    while batch := cutter.take(records):
        size = 0
        for data in encoded_frames(ValuesFrame(batch), place):
            size += len(data)
            yield data
        cutter.encoded(size)


def decode_values(data: bytes) -> Sequence[Record]:
    """Return the values of a frame that has nothing else, such as those of :func:`frames_of`."""
    values: Sequence[Record] = loads(data)
    return values


def _dumps(columns: object) -> bytes:
    try:
        return dumps(columns)
    except Exception as error:
        raise BadRecordError(
            f"records between operators must be picklable: {type(error).__name__}: {error}"
        ) from error
