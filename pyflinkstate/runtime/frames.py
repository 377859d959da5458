"""Frames: how records travel. Columns, not rows, pickled once for some thousand records.

Two pickled lists cost a third of a list of pairs, and Spark moves a frame as opaque bytes, so its own
per-record cost vanishes. A frame is pickled by one task of the job and unpickled by another.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any

import attrs
import numpy as np

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation
from pyflinkstate.backends.key_groups import key_group_of_hash, operator_index
from pyflinkstate.backends.key_hashing import KeyHasher
from pyflinkstate.errors import BadRecordError, InvalidKeyError, PyFlinkStateError
from pyflinkstate.runtime import frame_sizes
from pyflinkstate.runtime.failures import user_failure
from pyflinkstate.runtime.frame_sizes import FrameCutter
from pyflinkstate.runtime.partitioners import Sender, Spread, first_only, rebalance, rescale, shuffle
from pyflinkstate.runtime.pickling import dumps, loads, unshipped
from pyflinkstate.runtime.watermarks import MAX_WATERMARK, NO_WATERMARK, ChannelEvent, FrameTime, TaskTime

RECORDS_PER_FRAME = 4096
#: Keys whose group a task remembers; beyond it, the memory is begun anew.
REMEMBERED_KEYS = 500_000

#: A frame that is too large becomes several, at most so many: one for each record.
MAX_PARTS = 1 << 24
#: (subtask, round, branch, partition that sent it, number in that partition): sorting by it makes input
#: deterministic. Without event time all is one round; with it, each frame of a partition is in one of its
#: own, so that partitions advance side by side. What is broadcast is in a round before them.
FrameKey = tuple[int, int, int, int, int]


@attrs.frozen
class KeyedFrame:
    """Records on their way to a stateful operator, as columns of one length.

    Attributes:
        key_groups: unsigned 16-bit numbers, little-endian; nothing where records have no keys.
        keys: of the records; none where they have no keys.
        values: the records.
        input: which of the operator's inputs they are for, from 0.
        timestamps: of the records, in ms since 1970; None where none has one.
        time: what the frame says about event time.
    """

    key_groups: bytes
    keys: Sequence[Any]
    values: Sequence[Any]
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
    def decode(cls, data: bytes) -> KeyedFrame:
        """Return the frame that ``encode`` was called on."""
        columns: tuple[Any, ...] = loads(data)
        groups, keys, values, *rest = columns
        if not rest:
            return cls(groups, keys, values)
        number, timestamps, time = rest
        return cls(groups, keys, values, number, timestamps, None if time is None else FrameTime(*time))

    def part(self, part: slice) -> KeyedFrame:
        """Return some of the records; what the frame says about event time is left to the caller."""
        if part.start == 0 and part.stop >= len(self.values):
            return self
        times = None if self.timestamps is None else self.timestamps[part]
        groups = self.key_groups[2 * part.start : 2 * part.stop]
        return attrs.evolve(
            self, key_groups=groups, keys=self.keys[part], values=self.values[part], timestamps=times
        )

    def halves(self) -> tuple[KeyedFrame, KeyedFrame]:
        """Return two frames for one; the first says nothing new about event time."""
        middle = len(self.values) // 2
        first, second = self.part(slice(0, middle)), self.part(slice(middle, len(self.values)))
        if self.time is not None:
            first = attrs.evolve(first, time=attrs.evolve(self.time, watermark=NO_WATERMARK))
        return first, second

    def __len__(self) -> int:
        return len(self.values)


@attrs.frozen
class ValuesFrame:
    """What comes out of a stage, as columns of one length.

    Attributes:
        values: the records of the main output.
        timestamps: theirs; None where none has one.
        watermark: behind them; None in a job without event time.
        is_idle: the stage holds back no other.
        side: records and timestamps of side outputs, by the ids of their tags.
        opening: the watermark that the epoch begins with, in the first frame of a partition.
    """

    values: Sequence[Any]
    timestamps: Sequence[int | None] | None = None
    watermark: int | None = None
    is_idle: bool = False
    side: Mapping[str, tuple[Sequence[Any], Sequence[int | None] | None]] = attrs.Factory(dict)
    opening: int | None = None

    def encode(self) -> bytes:
        """Return the frame's bytes."""
        if self.timestamps is None and self.watermark is None and not self.side:
            return _dumps(list(self.values))
        columns = (self.values, self.timestamps, self.watermark, self.is_idle, self.side, self.opening)
        return _dumps(columns)

    @classmethod
    def decode(cls, data: bytes) -> ValuesFrame:
        """Return the frame that ``encode`` was called on."""
        columns = loads(data)
        return cls(*columns) if type(columns) is tuple else cls(columns)

    def output(self, tag_id: str | None) -> tuple[Sequence[Any], Sequence[int | None] | None]:
        """Return records and timestamps of the main output (None) or of a side output."""
        if tag_id is None:
            return self.values, self.timestamps
        return self.side.get(tag_id, ((), None))

    def halves(self) -> tuple[ValuesFrame, ValuesFrame]:
        """Return two frames for one; the first says no watermark."""
        main = _halved((self.values, self.timestamps))
        sides = {tag_id: _halved(columns) for tag_id, columns in self.side.items()}
        first, second = ({tag_id: halves[number] for tag_id, halves in sides.items()} for number in (0, 1))
        return (
            ValuesFrame(*main[0], None, self.is_idle, first, self.opening),
            ValuesFrame(*main[1], self.watermark, self.is_idle, second),
        )

    def __len__(self) -> int:
        return len(self.values) + sum(len(values) for values, _ in self.side.values())


#: Records and their timestamps.
_Columns = tuple[Sequence[Any], Sequence[int | None] | None]


def _halved(columns: _Columns) -> tuple[_Columns, _Columns]:
    """Return the halves; of a single record the second half has it."""
    values, timestamps = columns
    middle = len(values) // 2
    if timestamps is None:
        return (values[:middle], None), (values[middle:], None)
    return (values[:middle], timestamps[:middle]), (values[middle:], timestamps[middle:])


def encoded_frames(frame: KeyedFrame | ValuesFrame, place: str) -> Iterator[bytes]:
    """Yield the bytes of a frame, or of several where one would be too large.

    Args:
        frame: with any number of records.
        place: the operator's name, for errors.

    Raises:
        BadRecordError: a record cannot be pickled, or is larger than ``frame_sizes.MAX_RECORD_BYTES``.
    """
    data = frame.encode()
    if len(data) <= frame_sizes.MAX_FRAME_BYTES:
        yield data
    elif len(frame) < 2:
        _check_single(frame, len(data), place)
        yield data
    else:
        del data
        for half in frame.halves():
            yield from encoded_frames(half, place)


def _check_single(frame: KeyedFrame | ValuesFrame, size_bytes: int, place: str) -> None:
    values = [*frame.values]
    key = None
    if isinstance(frame, KeyedFrame):
        key = frame.keys[0] if frame.keys else None
    else:
        values += [value for side, _ in frame.side.values() for value in side]
    frame_sizes.check_record(size_bytes, place, values[0] if values else None, key)


def encode_values(values: Sequence[Any]) -> bytes:
    """Return a frame of plain values."""
    return _dumps(values)


def frames_of(records: Iterator[Any], place: str) -> Iterator[bytes]:
    """Yield frames of plain values; errors as of :func:`encoded_frames`."""
    cutter = FrameCutter(RECORDS_PER_FRAME)
    while batch := cutter.take(records):
        size = 0
        for data in encoded_frames(ValuesFrame(batch), place):
            size += len(data)
            yield data
        cutter.encoded(size)


def decode_values(data: bytes) -> Sequence[Any]:
    """Return the values that ``encode_values`` was given."""
    values: Sequence[Any] = loads(data)
    return values


def _dumps(columns: Any) -> bytes:
    try:
        return dumps(columns)
    except Exception as error:
        raise BadRecordError(
            f"records between operators must be picklable: {type(error).__name__}: {error}"
        ) from error


#: Types for which membership of a whole batch is told by ``type`` alone, so the check is one set.
_EXACT_TYPES: dict[str, type] = {
    "STRING": str,
    "BYTES": bytes,
    "BOOLEAN": bool,
    **dict.fromkeys(("BYTE", "SHORT", "INT", "LONG", "BIG_INT"), int),
}


class _KeyGroups(dict[Any, int]):
    """Key -> key group, remembered; only keys that were found valid are in it."""

    def __init__(self, key_type: TypeInformation, max_parallelism: int) -> None:
        self._hasher = KeyHasher(key_type)
        self._max_parallelism = max_parallelism
        self._exact_type = _EXACT_TYPES.get(key_type.kind)
        self._converts = not isinstance(key_type, PickledBytesTypeInfo) and self._exact_type is None

    def of_batch(self, keys: Sequence[Any]) -> tuple[Sequence[Any], list[int]]:
        """Return the keys as their type keeps them, and their key groups.

        Raises:
            InvalidKeyError: one of the keys; :meth:`check` tells which.
        """
        if self._converts or (self._exact_type and set(map(type, keys)) != {self._exact_type}):
            keys = [self._hasher.check(key) for key in keys]
        try:
            groups = list(map(self.get, keys))
        except TypeError as error:
            self._check_all(keys)
            raise InvalidKeyError(f"keys of one stream that cannot be compared: {error}") from error
        if None in groups:
            self._learn(keys, groups)
            groups = list(map(self.__getitem__, keys))
        return keys, groups  # type: ignore[return-value]

    def _learn(self, keys: Sequence[Any], groups: Sequence[int | None]) -> None:
        missing = [key for key, group in zip(keys, groups, strict=True) if group is None]
        if self._exact_type is not str or not "".join(missing).isascii():
            self._check_all(missing)
        if len(self) + len(missing) > REMEMBERED_KEYS:
            self.clear()
            missing = list(keys)
        for key, code in zip(missing, self._hasher.hashes(missing), strict=True):
            self[key] = key_group_of_hash(code, self._max_parallelism)

    def _check_all(self, keys: Iterable[Any]) -> None:
        for key in keys:
            self._hasher.check(key)

    def check(self, key: Any) -> None:
        """Raise ``InvalidKeyError`` if ``key`` is not a valid key."""
        self._hasher.check(key)


#: One memory per key type and max parallelism, for as long as the Spark worker lives.
_REMEMBERED: dict[tuple[TypeInformation, int], _KeyGroups] = {}


class Partitioning(enum.Enum):
    """How the records of an input find their subtasks."""

    #: By key group.
    KEY = "key"
    #: Those of a partition stay together.
    FORWARD = "forward"
    #: Each goes to every subtask.
    BROADCAST = "broadcast"
    #: One after the other to all subtasks.
    REBALANCE = "rebalance"
    #: One after the other to those subtasks that belong to the partition.
    RESCALE = "rescale"
    #: Each to any subtask.
    SHUFFLE = "shuffle"
    #: All to the first subtask.
    GLOBAL = "global_"
    #: Each to the subtask that comes with it: "records" are pairs of a subtask and the record.
    CUSTOM = "partition_custom"


#: How the records of a partition are spread where neither a key nor they themselves say it.
_SPREADS: dict[Partitioning, Callable[[Sender], Spread]] = {
    Partitioning.REBALANCE: rebalance,
    Partitioning.RESCALE: rescale,
    Partitioning.SHUFFLE: shuffle,
    Partitioning.GLOBAL: first_only,
}


@attrs.frozen
class EventTimeSettings:
    """What a task that sends watermarks along must know.

    Attributes:
        is_final: the source has ended with this epoch.
        is_idle: the stream has been silent for longer than it may hold back others.
        watermarks: where those of the assigners stood when the epoch began, by their ids.
    """

    is_final: bool = False
    is_idle: bool = False
    watermarks: dict[str, int] = attrs.Factory(dict)


@attrs.frozen
class Router:
    """Spreads the records of one branch over the subtasks of an operator, in frames."""

    operator: str
    select_key: Callable[[Any], Any]
    key_type: TypeInformation
    parallelism: int
    max_parallelism: int
    partitioning: Partitioning = Partitioning.KEY
    input: int = 0
    branch: int = 0
    #: None in a job without event time.
    event_time: EventTimeSettings | None = None
    #: Of the operator; the epoch, and how many partitions the branch has: what spreads records evenly.
    operator_id: str = ""
    epoch: int = 1
    partitions: int = 1

    def route(
        self, partition: int, records: Iterable[Any], time: TaskTime | None = None
    ) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield the frames of one partition's records.

        Args:
            partition: its number.
            records: what it holds.
            time: tells timestamp and watermark of the record that was taken last.

        Raises:
            InvalidKeyError: a record's key cannot be one; names operator and record.
        """
        if self.event_time is not None:
            yield from self._route_timed(partition, records, TaskTime() if time is None else time)
            return
        round_ = 0 if self.partitioning is Partitioning.BROADCAST else 1
        iterator = iter(records)
        cutter = FrameCutter(max(RECORDS_PER_FRAME, 1024 * self.parallelism))
        split = self.splitter(partition)
        number = 0
        while batch := cutter.take(iterator):
            size = 0
            for subtask, frame in split(batch):
                for data in self._numbered(frame, (subtask, round_, self.branch, partition, number)):
                    size += len(data[1])
                    yield data
            cutter.encoded(size)
            number += 1

    def _numbered(self, frame: KeyedFrame, key: FrameKey) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield a frame in as many as it takes; they stay in their order, and before the next one."""
        for number, data in enumerate(encoded_frames(frame, self.operator)):
            yield (*key[:4], key[4] * MAX_PARTS + number), data

    def _route_timed(
        self, partition: int, records: Iterable[Any], time: TaskTime
    ) -> Iterator[tuple[FrameKey, bytes]]:
        assert self.event_time is not None
        iterator = iter(records)
        split = self.splitter(partition)
        cutter = FrameCutter(RECORDS_PER_FRAME)
        silent, opening = self.event_time.is_idle, time.watermark
        yield from self._signal(
            partition,
            0,
            FrameTime(self.branch, partition, opening, ChannelEvent.OPEN, silent or time.is_idle),
        )
        number = 0
        while True:
            batch, timestamps = timed_batch(iterator, time, cutter)
            if not batch:
                break
            number += 1
            size = 0
            frames = dict(split(batch, timestamps))
            at = FrameTime(self.branch, partition, time.watermark, is_idle=time.is_idle)
            for subtask in range(self.parallelism):
                frame = attrs.evolve(frames.get(subtask, _NOTHING), time=at, input=self.input)
                for data in self._numbered(frame, self._key(subtask, partition, number)):
                    size += len(data[1])
                    yield data
            cutter.encoded(size)
        end = MAX_WATERMARK if self.event_time.is_final else time.watermark
        event = ChannelEvent.CLOSE if number or end > opening else ChannelEvent.CLOSE_EMPTY
        is_idle = time.is_idle or (silent and not number and time.watermark == opening)
        yield from self._signal(partition, number + 1, FrameTime(self.branch, partition, end, event, is_idle))

    def _signal(self, partition: int, number: int, at: FrameTime) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield a frame without records for each subtask."""
        data = attrs.evolve(_NOTHING, time=at, input=self.input).encode()
        for subtask in range(self.parallelism):
            key = self._key(subtask, partition, number)
            yield (*key[:4], key[4] * MAX_PARTS), data

    def _key(self, subtask: int, partition: int, number: int) -> FrameKey:
        """Openings come first, then what is broadcast, then the others side by side."""
        is_early = self.partitioning is Partitioning.BROADCAST
        return subtask, min(number, 1) if is_early else number + (number > 0), self.branch, partition, number

    def splitter(self, partition: int) -> Callable[..., Iterator[tuple[int, KeyedFrame]]]:
        """Return what makes frames of a batch of records, and their timestamps, each with its subtask."""
        if self.partitioning is Partitioning.KEY:
            groups_of, select_key = self._key_groups(), unshipped(self.select_key)
            return lambda batch, timestamps=None: self._split(batch, timestamps, select_key, groups_of)
        if self.partitioning is Partitioning.CUSTOM:
            return self._split_pairs
        if self.partitioning in _SPREADS:
            spread = _SPREADS[self.partitioning](self._sender(partition))
            return lambda batch, timestamps=None: self._split_by(spread(len(batch)), batch, timestamps)
        if self.partitioning is Partitioning.FORWARD:
            subtasks: Sequence[int] = (partition % self.parallelism,)
        else:
            subtasks = range(self.parallelism)
        return lambda batch, timestamps=None: (
            (subtask, KeyedFrame(b"", (), batch, self.input, timestamps)) for subtask in subtasks
        )

    def _sender(self, partition: int) -> Sender:
        return Sender(self.operator_id, self.epoch, self.branch, partition, self.partitions, self.parallelism)

    def _split_pairs(
        self, pairs: Sequence[tuple[int, Any]], timestamps: Sequence[int | None] | None = None
    ) -> Iterator[tuple[int, KeyedFrame]]:
        subtasks, batch = zip(*pairs, strict=True)
        return self._split_by(subtasks, batch, timestamps)

    def _split_by(
        self, subtasks: Sequence[int], batch: Sequence[Any], timestamps: Sequence[int | None] | None
    ) -> Iterator[tuple[int, KeyedFrame]]:
        places: dict[int, list[int]] = {}
        for place, subtask in enumerate(subtasks):
            places.setdefault(subtask, []).append(place)
        for subtask in sorted(places):
            pick = _picker(places[subtask])
            times = None if timestamps is None else pick(timestamps)
            yield subtask, KeyedFrame(b"", (), pick(batch), self.input, times)

    def _key_groups(self) -> _KeyGroups:
        identity = (self.key_type, self.max_parallelism)
        if identity not in _REMEMBERED:
            _REMEMBERED[identity] = _KeyGroups(*identity)
        return _REMEMBERED[identity]

    def _split(
        self,
        batch: list[Any],
        timestamps: Sequence[int | None] | None,
        select_key: Callable[[Any], Any],
        groups_of: _KeyGroups,
    ) -> Iterator[tuple[int, KeyedFrame]]:
        keys, groups = self._keys_and_groups(batch, select_key, groups_of)
        if self.parallelism == 1:
            yield 0, KeyedFrame(groups.tobytes(), keys, batch, self.input, timestamps)
            return
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        pick = _picker(order.tolist())
        keys, values = pick(keys), pick(batch)
        times = None if timestamps is None else pick(timestamps)
        subtasks = operator_index_of(groups, self.max_parallelism, self.parallelism)
        starts = np.searchsorted(subtasks, np.arange(self.parallelism + 1)).tolist()
        for subtask, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                part = slice(start, end)
                own = None if times is None else times[part]
                yield (
                    subtask,
                    KeyedFrame(groups[part].tobytes(), keys[part], values[part], self.input, own),
                )

    def _keys_and_groups(
        self, batch: list[Any], select_key: Callable[[Any], Any], groups_of: _KeyGroups
    ) -> tuple[Sequence[Any], np.ndarray[Any, np.dtype[np.uint16]]]:
        selected: list[Any] = []
        try:
            selected.extend(map(select_key, batch))
        except Exception as error:
            # extend() keeps what came before the failure, so its length points at the record.
            raise user_failure(error, self.operator, batch[len(selected)]) from error
        if len(selected) != len(batch):
            # extend() takes a StopIteration out of the selector for the end of the batch.
            raise user_failure(StopIteration(), self.operator, batch[len(selected)])
        try:
            keys, groups = groups_of.of_batch(selected)
        except BadRecordError as error:
            raise self._with_record(error, batch, selected, groups_of) from None
        return keys, np.array(groups, dtype=np.uint16)

    def _with_record(
        self, error: BadRecordError, batch: list[Any], keys: Sequence[Any], groups_of: _KeyGroups
    ) -> PyFlinkStateError:
        for record, key in zip(batch, keys, strict=True):
            try:
                groups_of.check(key)
            except BadRecordError as found:
                return user_failure(found, self.operator, record)
        return error


_NOTHING = KeyedFrame(b"", (), ())


def timed_batch(
    records: Iterator[Any], time: TaskTime, cutter: FrameCutter
) -> tuple[list[Any], list[int | None]]:
    """Take records and their timestamps: ``time`` is about the one taken last."""
    timestamps: list[int | None] = []
    batch = cutter.take(records, lambda _: timestamps.append(time.timestamp))
    return batch, timestamps


def operator_index_of(
    groups: np.ndarray[Any, np.dtype[np.uint16]], max_parallelism: int, parallelism: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """:func:`~pyflinkstate.backends.key_groups.operator_index` of many key groups at once."""
    return operator_index(max_parallelism, parallelism, groups.astype(np.int64))  # type: ignore


def _picker(order: list[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    if len(order) == 1:
        return lambda values: (values[order[0]],)
    return itemgetter(*order)
