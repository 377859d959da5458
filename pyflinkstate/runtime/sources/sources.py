"""Sources: what they read, and how they cut it into epochs that can be replayed.

An epoch is the input between two *offsets*, JSON values that a checkpoint keeps. As with Spark's
``DataSourceStreamReader``, a source says how far it could go and plans what lies between. The same two
offsets must give the same records again, in the same order, which makes a restart exact.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs

from pyflinkstate.api import (
    Offset,
    Position,
    Record,
    SparkObject,
    Split,
    TypeInformation,
    Types,
    as_int,
    positive,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError
from pyflinkstate.runtime.sources.formats import Reject
from pyflinkstate.runtime.wire import ColumnBatch

#: The default number of records of a collection in one epoch.
RECORDS_PER_EPOCH = 10_000


@attrs.frozen
class SplitEpoch:
    """An epoch of splits, each read by one Spark task with ``read``.

    Attributes:
        splits: the splits to read.
        read: called with a split and a function for rejected records, returns the records of the split.
        is_fresh: whether each record is new and shares no mutable part with another. Otherwise mutable parts
            are copied as they are read.
    """

    splits: Sequence[Split]
    read: Callable[[Any, Reject], Iterable[Record]]
    is_fresh: bool = attrs.field(default=False, eq=False)


#: Makes batches of records of an item of an RDD.
ReadBatches = Callable[[SparkObject], Iterable[ColumnBatch]]


@attrs.frozen
class RddEpoch:
    """An epoch of some partitions of an RDD, or of all if ``partitions`` is None.

    ``is_fresh`` is as for :class:`SplitEpoch`; it is not known for an RDD that Python has made. With ``read``
    an item of the RDD stands for batches of records.
    """

    rdd: SparkObject
    partitions: range | None = None
    is_fresh: bool = attrs.field(default=False, eq=False)
    read: ReadBatches | None = attrs.field(default=None, eq=False)


@attrs.frozen
class EpochSet:
    """The next epoch of each of several sources; None, or no entry, for a source that has nothing.

    Attributes:
        epochs: the epochs by the names of the sources.
        ended: the sources that end with this epoch, or have ended before.
    """

    epochs: dict[str, SplitEpoch | RddEpoch | None]
    ended: frozenset[str] = frozenset()


Epoch = SplitEpoch | RddEpoch | EpochSet


@attrs.frozen
class Available:
    """How far the next epoch could go.

    Attributes:
        end: the end of the epoch; the start itself if there is nothing now.
        is_last: whether the source ends at ``end``.
        is_full: whether the epoch would end there as well if the source were asked later, because it is as
            large as the source makes an epoch. Such an epoch may be read while the one before it runs.
    """

    end: Offset
    is_last: bool = False
    is_full: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether asking later would not make the epoch any larger."""
        return self.is_full or self.is_last


class Source(ABC):
    """A replayable source; subclass it for ``StreamExecutionEnvironment.from_source``.

    Its offsets are JSON values: None, bool, int, finite float, str, and lists and dicts of these; the keys of
    a dict are str. At any other offset, such as a tuple, a dict with int keys or a ``numpy.int64``, the job
    fails with a ``FunctionResultError``, because a checkpoint could not give it back as it was.
    """

    #: Whether each epoch must be durable before the next one is asked for, as with Structured Streaming.
    commits_every_epoch = False
    #: Whether it can go back to before its last commit, as it must if a damaged checkpoint is skipped.
    is_rewindable = True
    #: Whether it ends by itself.
    is_bounded = False
    #: Whether an epoch may have more than one split.
    is_parallel = True
    #: Seconds that an idle job waits before it asks again.
    poll_s = 0.1

    def open(self, wake_up: Callable[[], None]) -> None:
        """Start with the job. Call ``wake_up``, from any thread, to make the job ask again at once."""
        return

    def close(self, error: BaseException | None) -> None:
        """Close the source after the job has ended, with ``error`` if it failed."""
        return

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Return the offset before the first record: a JSON value."""

    def check_restored(self, position: Offset) -> None:
        """Check that a checkpoint's offset belongs to this input, before anything of the job is changed.

        The job calls this, after ``open``, when it is restored. Without it, a source whose ``latest_offset``
        refuses the offset does so when later checkpoints and output have been moved aside.

        Raises:
            IncompatibleCheckpointError: ``position`` is an offset of another input.
        """
        return

    @abstractmethod
    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """Return how far an epoch that begins at ``start`` could go now.

        Args:
            start: an offset of this source, or one that a checkpoint had kept.
            whole: whether a bounded source may return all that is left as one epoch, as there are no
                barriers.

        Raises:
            IncompatibleCheckpointError: ``start`` is an offset of another input.
        """

    @abstractmethod
    def plan(self, start: Offset, end: Offset) -> Epoch:
        """Return the epoch between two offsets."""

    def commit(self, end: Offset) -> None:
        """Release input before ``end``: it is in a completed checkpoint and never requested again.

        The job calls this after a checkpoint is complete and sinks have committed, and when an attempt begins
        from a checkpoint.
        """
        return


def check_position(position: Position, expected: dict[str, object], source: str) -> None:
    """Raise ``IncompatibleCheckpointError`` unless an offset has the expected entries."""
    found = {name: position.get(name) for name in expected} if isinstance(position, dict) else position
    if found != expected:
        raise IncompatibleCheckpointError(
            f"the checkpoint's source position {safe_repr(position)} does not fit {source} with {expected!r}"
            f": restore with the input that the checkpoint was taken with"
        )


@attrs.frozen
class CollectionSource(Source):
    """Reads a list of records in order.

    Attributes:
        records: the records.
        records_per_epoch: the number of records in an epoch with checkpoints.
        is_fresh: whether they share no mutable part.
        is_cut: whether that also holds without checkpoints.
    """

    records: Sequence[Record]
    records_per_epoch: int = RECORDS_PER_EPOCH
    is_fresh: bool = False
    is_cut: bool = False
    is_bounded = True
    is_parallel = False

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return self._offset(0)

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        check_position(position, {"length": len(self.records)}, "this collection")

    def latest_offset(self, start: Mapping[str, int], whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        length = len(self.records)
        end = length if whole and not self.is_cut else min(start["index"] + self.records_per_epoch, length)
        return Available(self._offset(end), end == length, is_full=end < length)

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        return SplitEpoch([self.records[start["index"] : end["index"]]], _read_list, self.is_fresh)

    def _offset(self, index: int) -> Position:
        return {"index": index, "length": len(self.records)}


def _read_list(split: Sequence[Record], _: Reject) -> Iterable[Record]:
    return split


@attrs.frozen
class RddSource(Source):
    """Reads the partitions of an RDD in order. Evaluating a partition twice must give the same records."""

    rdd: SparkObject
    partitions: int
    partitions_per_epoch: int
    is_fresh: bool = False
    #: See :class:`RddEpoch`.
    read: ReadBatches | None = None
    #: Whether an epoch has no more partitions without checkpoints either.
    is_cut: bool = False
    is_bounded = True

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return self._offset(0)

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        check_position(position, {"partitions": self.partitions}, "this RDD")

    def latest_offset(self, start: Mapping[str, int], whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        most = self.partitions if whole and not self.is_cut else self.partitions_per_epoch
        end = min(start["partition"] + most, self.partitions)
        return Available(self._offset(end), end == self.partitions, is_full=end < self.partitions)

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        return RddEpoch(self.rdd, range(start["partition"], end["partition"]), self.is_fresh, self.read)

    def _offset(self, partition: int) -> Position:
        return {"partition": partition, "partitions": self.partitions}


@attrs.frozen
class RateSource(Source):
    """Generates numbers from 0 at a fixed rate per second, to try out a job that never ends.

    A record is a dict of ``timestamp_ms`` (when it was due) and ``value``. The clock decides how many records
    are due, but not which records are between two offsets.
    """

    rows_per_second: int
    now_ms: Callable[[], int]
    partitions: int = 1
    max_records_per_epoch: int = 1_000_000

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return {"start_ms": self.now_ms(), "index": 0, "rate": self.rows_per_second}

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        check_position(position, {"rate": self.rows_per_second}, "this rate source")

    def latest_offset(self, start: Mapping[str, int], whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        due = max(0, self.now_ms() - start["start_ms"]) * self.rows_per_second // 1000
        end = min(max(due, start["index"]), start["index"] + self.max_records_per_epoch)
        return Available({**start, "index": end}, is_full=end - start["index"] == self.max_records_per_epoch)

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        first, length = start["index"], end["index"] - start["index"]
        cuts = [first + length * part // self.partitions for part in range(self.partitions + 1)]
        splits = [
            (start["start_ms"], self.rows_per_second, begin, stop) for begin, stop in itertools.pairwise(cuts)
        ]
        return SplitEpoch(splits, _read_rate, is_fresh=True)


def _read_rate(split: tuple[int, int, int, int], _: Reject) -> Iterable[Record]:
    start_ms, rate, begin, stop = split
    yield from (
        {"timestamp_ms": start_ms + value * 1000 // rate, "value": value} for value in range(begin, stop)
    )


#: The default length of a sequence of numbers in one epoch.
NUMBERS_PER_EPOCH = 100_000


def _whole_number(number: int) -> int:
    whole = as_int(number)
    if whole is None:
        raise ConfigurationError(
            f"NumberSequenceSource: start and end must be whole numbers, not {safe_repr(number)}"
        )
    return whole


def _records_per_epoch(number: int | None) -> int | None:
    return None if number is None else positive("records_per_epoch", number)


@attrs.frozen
class NumberSequenceSource(Source):
    """The whole numbers from ``start`` to ``end``, both included, in order.

    Args:
        start: the first number.
        end: the last number, which must not be less than the first.
        records_per_epoch: the number of records in one epoch. Default: 100,000 with checkpoints, all without.
    """

    start: int = attrs.field(converter=_whole_number)
    end: int = attrs.field(converter=_whole_number)
    records_per_epoch: int | None = attrs.field(default=None, kw_only=True, converter=_records_per_epoch)
    type_info = Types.LONG()
    is_bounded = True

    def __attrs_post_init__(self) -> None:
        if self.start > self.end:
            raise ConfigurationError(
                f"NumberSequenceSource: the end must not be less than the start: {self.start} to {self.end}"
            )

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return self._offset(self.start)

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        check_position(position, {"start": self.start, "end": self.end}, "this sequence")

    def latest_offset(self, start: Mapping[str, int], whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        stop = self.end + 1
        most = self.records_per_epoch or (stop - self.start if whole else NUMBERS_PER_EPOCH)
        next_stop = min(start["next"] + most, stop)
        return Available(self._offset(next_stop), next_stop == stop, is_full=next_stop < stop)

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        return SplitEpoch([(start["next"], end["next"])], _read_numbers, is_fresh=True)

    def _offset(self, number: int) -> Position:
        return {"start": self.start, "end": self.end, "next": number}


def _read_numbers(split: tuple[int, int], _: Reject) -> Iterable[Record]:
    return itertools.islice(itertools.count(split[0]), split[1] - split[0])


def type_of_source(source: Source, type_info: TypeInformation | None) -> TypeInformation | None:
    """Return the type of a source's records, which the caller or the source declares."""
    own: TypeInformation | None = getattr(source, "type_info", None)
    return own if type_info is None else type_info


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

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return self._source().initial_offset()

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        self._source().check_restored(position)

    def latest_offset(self, start: Mapping[str, int], whole: bool) -> Available:
        """See :class:`Source`."""
        return self._source().latest_offset(start, whole)

    def plan(self, start: Mapping[str, int], end: Mapping[str, int]) -> Epoch:
        """See :class:`Source`."""
        return self._source().plan(start, end)
