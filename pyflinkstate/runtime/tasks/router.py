"""Distributes records in frames over the subtasks of the operator that reads them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from operator import itemgetter
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt

from pyflinkstate.api import (
    Key,
    KeySelector,
    PickledBytesTypeInfo,
    Record,
    SelectKey,
    T,
    TypeInformation,
)
from pyflinkstate.backends.keys import KeyHasher, operator_index
from pyflinkstate.backends.types import exact_class
from pyflinkstate.errors import BadRecordError, InvalidKeyError, PyFlinkStateError
from pyflinkstate.runtime.operators import closed_at_end
from pyflinkstate.runtime.plan import (
    ChainedOperator,
    Partitioning,
    Sender,
    Spread,
    first_only,
    rebalance,
    rescale,
    shuffle,
)
from pyflinkstate.runtime.tasks.chain import Chain, TaskInfo
from pyflinkstate.runtime.tasks.records import FollowedRecords, TimedRecords, has_untold
from pyflinkstate.runtime.wire import (
    MAX_WATERMARK,
    TASK_ENDS,
    ChannelEvent,
    ColumnBatch,
    FrameCutter,
    FrameKey,
    FrameTime,
    InputFrame,
    TaskTime,
    encoded_frames,
    frames,
    unshipped,
    user_failure,
)

#: Maximum number of keys that a task remembers with their group; then the memory is cleared.
REMEMBERED_KEYS = 500_000
#: A frame that is too large is split into at most this many frames, one for each record.
MAX_PARTS = 1 << 24

#: The partitioners for records whose subtask neither a key nor the record itself determines.
_SPREADS: dict[Partitioning, Callable[[Sender], Spread]] = {
    Partitioning.REBALANCE: rebalance,
    Partitioning.RESCALE: rescale,
    Partitioning.SHUFFLE: shuffle,
    Partitioning.GLOBAL: first_only,
}


@attrs.frozen
class EventTimeSettings:
    """The settings of a task that sends watermarks.

    Attributes:
        is_final: whether the source ends with this epoch.
        is_idle: whether the stream has had no records for longer than its idle timeout.
        watermarks: the watermarks at the beginning of the epoch, by the ids of assigners.
    """

    is_final: bool = False
    is_idle: bool = False
    watermarks: dict[str, int] = attrs.Factory(dict)


@attrs.frozen
class Router:
    """Distributes the records of one branch in frames over the subtasks of an operator."""

    operator: str
    select_key: SelectKey
    key_type: TypeInformation
    parallelism: int
    max_parallelism: int
    partitioning: Partitioning = Partitioning.KEY
    input: int = 0
    branch: int = 0
    #: None if the job does not use event time.
    event_time: EventTimeSettings | None = None
    #: The operator's id, the epoch and the number of the branch's partitions, from which partitioners start.
    operator_id: str = ""
    epoch: int = 1
    partitions: int = 1

    def route(
        self,
        partition: int,
        records: Iterable[Record] | TimedRecords,
        time: TaskTime | None = None,
    ) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield the frames with one partition's records.

        Args:
            partition: the number of the partition.
            records: its records, which know their timestamps or are followed by ``time``.
            time: has the timestamp and the watermark of the record that was taken last.

        Raises:
            InvalidKeyError: the key of a record is not valid; the error names operator and record.
        """
        known = None if self.event_time is None else time or TaskTime()
        taken = FollowedRecords([records], known) if isinstance(records, Iterable) else records
        return (
            self._route_untimed(partition, taken)
            if known is None
            else self._route_timed(partition, taken, known)
        )

    def _route_untimed(self, partition: int, records: TimedRecords) -> Iterator[tuple[FrameKey, bytes]]:
        cutter = FrameCutter(max(frames.RECORDS_PER_FRAME, 1024 * self.parallelism))
        round_ = 0 if self.partitioning is Partitioning.BROADCAST else 1
        split = self.splitter(partition)
        for number in count():
            batch, _ = records.take(cutter)
            if not batch and records.is_over:
                return
            yield from self._sent(
                split(batch) if batch else (), (round_, self.branch, partition, number), cutter
            )

    def _sent(
        self, parts: Iterable[tuple[int, InputFrame]], place: tuple[int, int, int, int], cutter: FrameCutter
    ) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield the parts of a frame for their subtasks, in order by ``place``; ``cutter`` learns the size.

        A part that is too large is split further; the frames stay in order and come before the next frame.
        """
        size = 0
        for subtask, frame in parts:
            for number, data in enumerate(encoded_frames(frame, self.operator)):
                size += len(data)
                yield (subtask, *place[:3], place[3] * MAX_PARTS + number), data
        cutter.encoded(size)

    def _route_timed(
        self, partition: int, records: TimedRecords, time: TaskTime
    ) -> Iterator[tuple[FrameKey, bytes]]:
        assert self.event_time is not None
        split, subtasks = self.splitter(partition), range(self.parallelism)
        cutter = FrameCutter(frames.RECORDS_PER_FRAME)
        silent, opening = self.event_time.is_idle, time.watermark
        yield from self._signal(
            partition,
            0,
            FrameTime(self.branch, partition, opening, ChannelEvent.OPEN, silent or time.is_idle),
        )
        number, told = 0, opening
        while True:
            batch, timestamps = records.take(cutter)
            ends = self.event_time.is_final or not records.is_over
            if not batch and not has_untold(time, told, ends):
                if records.is_over:
                    break
                continue
            told = time.watermark
            number += 1
            parts = dict(split(batch, timestamps)) if batch else {}
            at = FrameTime(self.branch, partition, time.watermark, is_idle=time.is_idle)
            told_all = (
                (n, attrs.evolve(parts.get(n, _NOTHING), time=at, input=self.input)) for n in subtasks
            )
            yield from self._sent(told_all, self._place(partition, number), cutter)
        end = MAX_WATERMARK if self.event_time.is_final else time.watermark
        event = ChannelEvent.CLOSE if number or end > opening else ChannelEvent.CLOSE_EMPTY
        is_idle = time.is_idle or (silent and not number and time.watermark == opening)
        yield from self._signal(partition, number + 1, FrameTime(self.branch, partition, end, event, is_idle))

    def _signal(self, partition: int, number: int, at: FrameTime) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield a frame without records for each subtask."""
        data = attrs.evolve(_NOTHING, time=at, input=self.input).encode()
        place = self._place(partition, number)
        yield from (
            ((subtask, *place[:3], place[3] * MAX_PARTS), data) for subtask in range(self.parallelism)
        )

    def _place(self, partition: int, number: int) -> tuple[int, int, int, int]:
        """Return where a frame is in the order of all: openings, then broadcast frames, then the others."""
        is_early = self.partitioning is Partitioning.BROADCAST
        return min(number, 1) if is_early else number + (number > 0), self.branch, partition, number

    def splitter(self, partition: int) -> Callable[..., Iterator[tuple[int, InputFrame]]]:
        """Return the function that turns records and timestamps into frames with their subtasks."""
        if self.partitioning is Partitioning.KEY:
            groups_of = key_groups_of(self.key_type, self.max_parallelism)
            select_key = unshipped(self.select_key)
            return lambda batch, timestamps=None: self._split(batch, timestamps, select_key, groups_of)
        if self.partitioning is Partitioning.CUSTOM:
            return self._split_pairs
        if self.partitioning in _SPREADS:
            spread = _SPREADS[self.partitioning](
                Sender(
                    self.operator_id, self.epoch, self.branch, partition, self.partitions, self.parallelism
                )
            )
            return lambda batch, timestamps=None: self._split_by(spread(len(batch)), batch, timestamps)
        if self.partitioning is Partitioning.FORWARD:
            subtasks: Sequence[int] = (partition % self.parallelism,)
        else:
            subtasks = range(self.parallelism)
        return lambda batch, timestamps=None: (
            (subtask, InputFrame(b"", (), batch, self.input, timestamps)) for subtask in subtasks
        )

    def _split_pairs(
        self, pairs: Sequence[tuple[int, Record]], timestamps: Sequence[int | None] | None = None
    ) -> Iterator[tuple[int, InputFrame]]:
        subtasks, batch = zip(*pairs, strict=True)
        return self._split_by(subtasks, batch, timestamps)

    def _split_by(
        self, subtasks: Sequence[int], batch: Sequence[Record], timestamps: Sequence[int | None] | None
    ) -> Iterator[tuple[int, InputFrame]]:
        places: dict[int, list[int]] = {}
        for place, subtask in enumerate(subtasks):
            places.setdefault(subtask, []).append(place)
        for subtask in sorted(places):
            pick = _picker(places[subtask])
            times = None if timestamps is None else pick(timestamps)
            values = batch.take(np.array(places[subtask])) if isinstance(batch, ColumnBatch) else pick(batch)
            yield subtask, InputFrame(b"", (), values, self.input, times)

    def _split(
        self,
        batch: Sequence[Record],
        timestamps: Sequence[int | None] | None,
        select_key: SelectKey,
        groups_of: KeyGroups,
    ) -> Iterator[tuple[int, InputFrame]]:
        keys, groups = self._keys_and_groups(batch, select_key, groups_of)
        if self.parallelism == 1:
            yield 0, InputFrame(groups.tobytes(), keys, batch, self.input, timestamps)
            return
        wide: Any = groups.astype(np.int64)
        subtasks = np.asarray(operator_index(self.max_parallelism, self.parallelism, wide), np.uint16)
        # Records for one subtask stay in their order, as in Flink.
        order = np.argsort(subtasks, kind="stable")
        groups = groups[order]
        pick = _picker(order.tolist())
        keys = pick(keys)
        values = batch.take(order) if isinstance(batch, ColumnBatch) else pick(batch)
        times = None if timestamps is None else pick(timestamps)
        starts = np.searchsorted(subtasks[order], np.arange(self.parallelism + 1)).tolist()
        for subtask, (start, end) in enumerate(pairwise(starts)):
            if start < end:
                part = slice(start, end)
                own = None if times is None else times[part]
                yield (
                    subtask,
                    InputFrame(groups[part].tobytes(), keys[part], values[part], self.input, own),
                )

    def _keys_and_groups(
        self, batch: Sequence[Record], select_key: SelectKey, groups_of: KeyGroups
    ) -> tuple[Sequence[Record], npt.NDArray[np.uint16]]:
        selected = batch.keys(select_key) if isinstance(batch, ColumnBatch) else None
        if selected is None:
            selected = self._selected(batch, select_key)
        try:
            keys, groups = groups_of.of_batch(selected)
        except BadRecordError as error:
            raise self._with_record(error, batch, selected, groups_of) from None
        return keys, np.array(groups, dtype=np.uint16)

    def _selected(self, batch: Sequence[Record], select_key: SelectKey) -> list[Key]:
        selected: list[Key] = []
        try:
            selected.extend(map(select_key, batch))
        except TASK_ENDS:
            raise
        except BaseException as error:
            # extend() keeps the keys before the failure, so their number is the index of the record.
            raise user_failure(error, self.operator, batch[len(selected)]) from error
        if len(selected) != len(batch):
            # extend() mistakes a StopIteration from the selector for the end of the batch.
            raise user_failure(StopIteration(), self.operator, batch[len(selected)])
        return selected

    def _with_record(
        self, error: BadRecordError, batch: Sequence[Record], keys: Sequence[Key], groups_of: KeyGroups
    ) -> PyFlinkStateError:
        for record, key in zip(batch, keys, strict=True):
            try:
                groups_of.check((key,))
            except BadRecordError as found:
                return user_failure(found, self.operator, record)
        return error


_NOTHING = InputFrame(b"", (), ())


def _picker(order: list[int]) -> Callable[[Sequence[T]], tuple[T, ...]]:
    if len(order) == 1:
        return lambda values: (values[order[0]],)
    return itemgetter(*order)


class KeyGroups(dict[Key, int]):
    """Finds key groups, and remembers those that take long to compute; it contains only valid keys."""

    def __init__(self, key_type: TypeInformation, max_parallelism: int) -> None:
        self._learning = threading.Lock()
        self._hasher = KeyHasher(key_type)
        self._max_parallelism = max_parallelism
        self._is_quick = self._hasher.is_quick
        self._exact_type = exact_class(key_type)  # with it, one set checks a whole batch
        self._converts = not isinstance(key_type, PickledBytesTypeInfo) and self._exact_type is None

    def of_batch(self, keys: Sequence[Key]) -> tuple[Sequence[Key], list[int]]:
        """Return the keys in the form of their type, and their key groups.

        Raises:
            InvalidKeyError: a key is not valid; :meth:`check` tells which.
        """
        if self._converts or (self._exact_type and set(map(type, keys)) != {self._exact_type}):
            keys = [self._hasher.check(key) for key in keys]
        if self._is_quick:
            return keys, self._hasher.key_groups(keys, self._max_parallelism)
        try:
            groups = list(map(self.get, keys))
        except TypeError as error:
            self.check(keys)
            raise InvalidKeyError(f"keys of one stream that cannot be compared: {error}") from error
        if None in groups:
            with self._learning:
                self._learn(keys, groups)
                groups = list(map(self.__getitem__, keys))
        return keys, groups  # type: ignore[return-value]

    def _learn(self, keys: Sequence[Key], groups: Sequence[int | None]) -> None:
        missing: list[Any] = [key for key, group in zip(keys, groups, strict=True) if group is None]
        if self._exact_type is not str or not "".join(missing).isascii():
            self.check(missing)
        if len(self) + len(missing) > REMEMBERED_KEYS:
            self.clear()
            missing = list(keys)
        self.update(zip(missing, self._hasher.key_groups(missing, self._max_parallelism), strict=True))

    def check(self, keys: Iterable[Key]) -> None:
        """Raise ``InvalidKeyError`` if a key is not valid."""
        for key in keys:
            self._hasher.check(key)


#: One memory for each key type and max parallelism, which lives as long as the Spark worker.
_REMEMBERED: dict[tuple[TypeInformation, int], KeyGroups] = {}


def key_groups_of(key_type: TypeInformation, max_parallelism: int) -> KeyGroups:
    """Return the worker's memory for keys of a type."""
    identity = (key_type, max_parallelism)
    if identity not in _REMEMBERED:
        _REMEMBERED[identity] = KeyGroups(*identity)
    return _REMEMBERED[identity]


@contextmanager
def opened_selector(
    select_key: SelectKey | KeySelector, operator: str, info_of: Callable[[], TaskInfo]
) -> Iterator[SelectKey]:
    """Lend what selects the keys of records; a ``KeySelector`` is open meanwhile.

    Args:
        select_key: a ``KeySelector``, or a function of the record, which has nothing to open.
        operator: the name of the operator that the records are for.
        info_of: returns the context in which a selector runs.

    Raises:
        PyFlinkStateError: the selector could not be opened or closed; the error is ready to be reported.
    """
    if not isinstance(select_key, KeySelector):
        yield select_key
        return
    info = info_of()
    # A chain knows how functions are opened and closed. No record goes through this one.
    alone = Chain([ChainedOperator("key_by", f"key_by before {operator}", select_key)], info, Counter())
    with closed_at_end(alone.close):
        alone.open()
        yield select_key.get_key
        info.report_metrics(info.report)
