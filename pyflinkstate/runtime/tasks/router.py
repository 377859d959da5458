"""Distributes records in frames over the subtasks of the operator that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

import attrs
import numpy as np
import numpy.typing as npt

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Key, Record, SelectKey
from pyflinkstate.backends.keys import operator_index
from pyflinkstate.errors import BadRecordError, PyFlinkStateError
from pyflinkstate.runtime.plan import Partitioning, Sender, Spread, first_only, rebalance, rescale, shuffle
from pyflinkstate.runtime.tasks.batch_keys import KeyGroups, key_groups_of
from pyflinkstate.runtime.tasks.batched_records import BatchedRecords
from pyflinkstate.runtime.tasks.timed_records import FollowedRecords, TimedRecords, has_untold
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
        records: Iterable[Record] | TimedRecords | BatchedRecords,
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
        if self.event_time is not None:
            time = TaskTime() if time is None else time
            timed = FollowedRecords([records], time) if isinstance(records, Iterable) else records
            yield from self._route_timed(partition, timed, time)
            return
        most = max(frames.RECORDS_PER_FRAME, 1024 * self.parallelism)
        if isinstance(records, BatchedRecords):
            batches: Iterable[Sequence[Record]] = records.frames(most)
            yield from self._route_batches(partition, batches, FrameCutter(most))
            return
        assert isinstance(records, Iterable)
        iterator, cutter = iter(records), FrameCutter(most)
        yield from self._route_batches(partition, iter(lambda: cutter.take(iterator), []), cutter)

    def _route_batches(
        self, partition: int, batches: Iterable[Sequence[Record]], cutter: FrameCutter
    ) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield the frames of batches of records; ``cutter`` learns their sizes."""
        round_ = 0 if self.partitioning is Partitioning.BROADCAST else 1
        split = self.splitter(partition)
        for number, batch in enumerate(batches):
            yield from self._sent(split(batch), (round_, self.branch, partition, number), cutter)

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
        first = FrameTime(self.branch, partition, opening, ChannelEvent.OPEN, silent or time.is_idle)
        yield from self._signal(partition, 0, first)
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
        last = FrameTime(self.branch, partition, end, event, is_idle)
        yield from self._signal(partition, number + 1, last)

    def _signal(self, partition: int, number: int, at: FrameTime) -> Iterator[tuple[FrameKey, bytes]]:
        """Yield a frame without records for each subtask."""
        data = attrs.evolve(_NOTHING, time=at, input=self.input).encode()
        place = self._place(partition, number)
        for subtask in range(self.parallelism):
            yield (subtask, *place[:3], place[3] * MAX_PARTS), data

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
            spread = _SPREADS[self.partitioning](self._sender(partition))
            return lambda batch, timestamps=None: self._split_by(spread(len(batch)), batch, timestamps)
        if self.partitioning is Partitioning.FORWARD:
            subtasks: Sequence[int] = (partition % self.parallelism,)
        else:
            subtasks = range(self.parallelism)
        return lambda batch, timestamps=None: (
            (subtask, InputFrame(b"", (), batch, self.input, timestamps)) for subtask in subtasks
        )

    def _sender(self, partition: int) -> Sender:
        return Sender(self.operator_id, self.epoch, self.branch, partition, self.partitions, self.parallelism)

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
        subtasks = operator_index_of(groups, self.max_parallelism, self.parallelism).astype(np.uint16)
        order = np.argsort(
            subtasks, kind="stable"
        )  # records for one subtask stay in their order, as in Flink
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
                groups_of.check(key)
            except BadRecordError as found:
                return user_failure(found, self.operator, record)
        return error


_NOTHING = InputFrame(b"", (), ())


def operator_index_of(
    groups: npt.NDArray[np.uint16], max_parallelism: int, parallelism: int
) -> npt.NDArray[np.int64]:
    """Return :func:`~pyflinkstate.backends.keys.operator_index` for many key groups at once."""
    return operator_index(max_parallelism, parallelism, groups.astype(np.int64))  # type: ignore


def _picker(order: list[int]) -> Callable[[Sequence[Record]], tuple[Record, ...]]:
    if len(order) == 1:
        return lambda values: (values[order[0]],)
    return itemgetter(*order)
