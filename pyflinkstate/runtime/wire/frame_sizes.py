"""How many records go into a frame: a few thousand, or as many as make up a few megabytes.

Frames are bounded in bytes because whole frames are held in memory: by the task that makes one, by Spark, and
by the slot. Records are taken in *chunks*, and one record of each chunk is roughly measured, which costs a
few nanoseconds per record. A chunk is one record at first and doubles while records are small, so chunks of
large records stay small. The size of an encoded frame corrects the measure for the next one, and a frame that
is too large all the same is cut in two. All of this depends only on the records, so an epoch that is run
again has the same frames.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import islice

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import Key, Record
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.wire.watermarks import TaskTime

#: A frame is complete when it has about this many bytes, whatever the number of its records. PySpark sorts up
#: to a hundred frames at a time in a worker's memory.
FRAME_BYTES = 2 * 1024 * 1024
#: A frame of several records that is larger is cut in two.
MAX_FRAME_BYTES = 2 * FRAME_BYTES
#: A frame of more records is cut in two before it is encoded. So many come if many timers fire at once: to
#: encode them all only to see how large they are, and then each half again, would take several times as long.
MAX_FRAME_RECORDS = 32_768
#: The greatest size of one record in a frame. Spark writes lengths as signed 32-bit numbers.
MAX_RECORD_BYTES = 1024 * 1024 * 1024
#: One of this many records is measured if they are small.
CHUNK = 256
#: Number of items of a container that are measured.
_MEASURED_ITEMS = 8
_MAX_DEPTH = 6
_MAX_STEP = 1 << 20


def rough_size(value: Record, depth: int = 0) -> int:
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


def _size_of_items(items: Record, number: int, depth: int) -> int:
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


class FrameCutter:
    """Takes as many of the next records as make up a frame.

    Args:
        max_records: the greatest number of records in a frame.

    Attributes:
        has_ended: whether there were fewer records than were asked for last.
    """

    def __init__(self, max_records: int) -> None:
        self._max_records = max_records
        self.has_ended = False
        self._chunk = 1
        self._measured = 0
        #: The ratio of the encoded size of records to their estimated size.
        self._factor = 1.0

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
        return 0 if is_full else min(self._chunk, self._max_records - taken)

    def _measure(self, number: int, size: int) -> None:
        self._measured += number * size
        room = int(FRAME_BYTES / (4 * max(size, 1) * self._factor))
        self._chunk = max(1, min(2 * self._chunk, room, CHUNK))

    def encoded(self, size_bytes: int) -> None:
        """Record the encoded size of the records that were taken last."""
        if self._measured:
            self._factor = max(1.0, size_bytes / self._measured)


class OutputSteps:
    """Decides how many records of a frame to process before the results are sent.

    If results are small it is the whole frame; if one record gives some megabytes, a few records at a time.
    """

    def __init__(self) -> None:
        self._step = CHUNK

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


def check_record(size_bytes: int, place: str, value: Record, key: Key = None) -> None:
    """Check that a record is not too large for a frame.

    Raises:
        BadRecordError: the record has more than ``MAX_RECORD_BYTES``.
    """
    if size_bytes > MAX_RECORD_BYTES:
        of_key = "" if key is None else f" of key {safe_repr(key)}"
        raise BadRecordError(
            f"{place}: a record{of_key}, a {type(value).__name__}, has {size_bytes} bytes when it is sent, "
            f"and the limit is {MAX_RECORD_BYTES}: keep large objects in files and send their paths, or "
            f"send them in pieces",
            operator=place,
            size_bytes=size_bytes,
        )
