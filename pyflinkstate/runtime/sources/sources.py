"""Sources: what they read, and how they cut it into epochs that can be replayed.

An epoch is the input between two *offsets*, JSON values that a checkpoint keeps. As with Spark's
``DataSourceStreamReader``, a source says how far it could go and plans what lies between. The same two
offsets must give the same records again, in the same order, which makes a restart exact.

As in Flink's ``FileSource``, a file is identified by its name, not by its place in the order: a file that
comes later with an earlier name is read, and a file may disappear. The position keeps a digest of the name in
16 bytes, and the size in 8. A file that is gone may come back, so it is remembered too. But a job that reads
and archives files for years would remember all of them, so only the newest of those that are gone are kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import itertools
import logging
import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any, TypedDict
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.api import (
    Duration,
    Offset,
    Position,
    Record,
    SparkObject,
    Split,
    TypeInformation,
    Types,
    as_int,
    check_kind,
    positive,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.formats import FORMATS, RecordFormat, Reject, TextLines
from pyflinkstate.runtime.storage import AnyPath, absolute, child_uri, is_uri, open_file_system
from pyflinkstate.runtime.wire import Clock, ColumnBatch, SystemClock

#: The default number of records of a collection in one epoch.
RECORDS_PER_EPOCH = 10_000


@attrs.frozen
class ReadTime:
    """The time that an epoch leaves to who reads a source live.

    Attributes:
        clock: tells the time.
        until_ms: when the epoch ends, in monotonic time.
        buffer_timeout_ms: how long records may wait for more before they are passed on.
    """

    clock: Clock
    until_ms: int
    buffer_timeout_ms: int

    def left_ms(self) -> int:
        """Return how long the epoch still lasts; 0 if it is over."""
        return max(0, self.until_ms - self.clock.monotonic_ms())

    def wait(self, for_ms: int) -> None:
        """Wait, but not beyond the end of the epoch."""
        self.clock.receive(queue.SimpleQueue[None](), min(for_ms, self.left_ms()))


#: Reads a split live; see :class:`SplitEpoch`.
ReadLive = Callable[[Split, Reject, ReadTime], Generator[list[Record], None, Position]]


@attrs.frozen
class SplitEpoch:
    """An epoch of splits, each read by one task with ``read``.

    Attributes:
        splits: the splits to read.
        read: called with a split and a function for rejected records, returns the records of the split.
        is_fresh: whether each record is new and shares no mutable part with another. Otherwise mutable parts
            are copied as they are read.
        is_live: whether splits are read for as long as the epoch lasts. ``read`` gets the :class:`ReadTime`
            too. It is a generator of lists of records, each of which is passed on at once, and which may be
            empty; its result is the position that it has reached.
    """

    splits: Sequence[Split]
    read: Callable[..., Iterable[Record]]
    is_fresh: bool = attrs.field(default=False, eq=False)
    is_live: bool = attrs.field(default=False, eq=False)


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
        is_live: whether the epoch ends where those who read it are when its time is over. Its time is short
            if it is full, too, as another source has more to be planned.
    """

    end: Offset
    is_last: bool = False
    is_full: bool = False
    is_live: bool = False

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
    #: Whether Spark computes its epochs, which are partitions of RDDs: its job runs in stages.
    gives_rdds = False
    #: Seconds that an idle job waits before it asks again.
    poll_s = 0.1

    def open(self, wake_up: Callable[[], None], /) -> None:
        """Start with the job. Call ``wake_up``, from any thread, to make the job ask again at once."""
        return

    def close(self, error: BaseException | None, /) -> None:
        """Close the source after the job has ended, with ``error`` if it failed."""
        return

    @abstractmethod
    def initial_offset(self) -> Offset:
        """Return the offset before the first record: a JSON value."""

    def check_restored(self, position: Offset, /) -> None:
        """Check that a checkpoint's offset belongs to this input, before anything of the job is changed.

        The job calls this, after ``open``, when it is restored. Without it, a source whose ``latest_offset``
        refuses the offset does so when later checkpoints and output have been moved aside.

        Raises:
            IncompatibleCheckpointError: ``position`` is an offset of another input.
        """
        return

    @abstractmethod
    def latest_offset(self, start: Offset, whole: bool, /) -> Available:
        """Return how far an epoch that begins at ``start`` could go now.

        Args:
            start: an offset of this source, or one that a checkpoint had kept.
            whole: whether a bounded source may return all that is left as one epoch, as there are no
                barriers.

        Raises:
            IncompatibleCheckpointError: ``start`` is an offset of another input.
        """

    @abstractmethod
    def plan(self, start: Offset, end: Offset, /) -> Epoch:
        """Return the epoch between two offsets."""

    def live(self, start: Offset, /) -> SplitEpoch | None:
        """Return an epoch that tasks read as records come, or None to have one planned.

        Tasks that stay can read so (the engine ``PIPELINED``). The epoch begins at ``start`` and ends where
        they are when its time is over: see :meth:`reached`.
        """
        return None

    def reached(self, start: Offset, positions: list[Offset], /) -> Offset:
        """Return where a live epoch has ended that began at ``start``, given the positions of its splits."""
        raise NotImplementedError

    def after_flink(self, splits: list[bytes], /) -> object:
        """Return the offset behind what a source of Flink has read; None to begin as the program says.

        Args:
            splits: the splits of the source with the same uid in a savepoint of Flink, each as Flink writes
                it: the version of its serializer, its length, and its content.

        Raises:
            CheckpointError: they are not of a source that this one can follow.
        """
        return None

    def commit(self, end: Offset, /) -> None:
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
    gives_rdds = True

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


class _RateOffset(TypedDict, total=False):
    """An offset of a :class:`RateSource`; ``next`` is there if partitions that were read live are uneven."""

    start_ms: int
    index: int
    rate: int
    next: list[int]


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

    def latest_offset(self, start: _RateOffset, whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        due = max(0, self.now_ms() - start["start_ms"]) * self.rows_per_second // 1000
        end = min(max(due, start["index"]), start["index"] + self.max_records_per_epoch)
        is_full = end - start["index"] == self.max_records_per_epoch
        if "next" in start:  # go on evenly
            end = max(end, *start["next"])
        offset = {"start_ms": start["start_ms"], "index": end, "rate": self.rows_per_second}
        return Available(start if end == start["index"] else offset, is_full=is_full)

    def plan(self, start: _RateOffset, end: _RateOffset) -> Epoch:
        """See :class:`Source`."""
        first, length = start["index"], end["index"] - start["index"]
        cuts = [first + length * part // self.partitions for part in range(self.partitions + 1)]
        splits = [
            (start["start_ms"], self.rows_per_second, begin, stop, start.get("next", (0,)))
            for begin, stop in itertools.pairwise(cuts)
        ]
        return SplitEpoch(splits, _read_rate, is_fresh=True)

    def live(self, start: _RateOffset) -> SplitEpoch | None:
        """See :class:`Source`. Partition ``p`` of ``n`` makes the numbers ``p``, ``p + n`` and so on."""
        count, index = self.partitions, start["index"]
        begin = start.get("next", [index + (part - index) % count for part in range(count)])
        if len(begin) != count:
            return None
        splits = [(start["start_ms"], self.rows_per_second, value, count) for value in begin]
        return SplitEpoch(splits, _read_rate_live, is_fresh=True, is_live=True)

    def reached(self, start: _RateOffset, positions: list[int]) -> Position:
        """See :class:`Source`. ``next`` has the next number of each partition."""
        return {**start, "index": min(positions), "next": positions}


def _read_rate(split: tuple[int, int, int, int, Sequence[int]], _: Reject) -> Iterable[Record]:
    """Yield the records between two numbers that no partition has made that was read live."""
    start_ms, rate, begin, stop, next_values = split
    for value in range(begin, stop):
        if value >= next_values[value % len(next_values)]:
            yield _rated(start_ms, rate, value)


def _rated(start_ms: int, rate: int, value: int) -> Record:
    return {"timestamp_ms": start_ms + value * 1000 // rate, "value": value}


def _read_rate_live(
    split: tuple[int, int, int, int], reject: Reject, time: ReadTime
) -> Generator[list[Record], None, int]:
    start_ms, rate, value, step = split
    while True:
        due = (time.clock.now_ms() - start_ms) * rate // 1000 + 1
        values = range(value, min(due, value + RECORDS_PER_EPOCH * step), step)
        yield [_rated(start_ms, rate, each) for each in values]
        value += len(values) * step
        if not time.left_ms():
            return value
        if due <= value:
            next_ms = start_ms + value * 1000 // rate - time.clock.now_ms()
            time.wait(max(1, time.buffer_timeout_ms if values else next_ms))


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


@attrs.define(eq=False)
class CachedSource(Source):
    """Records that are computed when a job first reads them, and read from the cluster after that.

    Args:
        compute: runs the job that computes them.
    """

    is_bounded = True
    gives_rdds = True
    _compute: Callable[[], CachedRecords]
    _records: CachedRecords | None = attrs.field(default=None, init=False)

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


_log = logging.getLogger("pyflinkstate.sources")

_DIGEST_BYTES = 16
_SIZE_BYTES = 8
_ENTRY_BYTES = _DIGEST_BYTES + _SIZE_BYTES
#: Number of deleted files that are remembered: 1.6 MB of a position.
MAX_GONE = 50_000
_REMEDY = "restore another checkpoint, or start without one, which reads all files again"


@lru_cache(maxsize=200_000)
def digest_of(name: str) -> bytes:
    """Return the digest of a name."""
    return hashlib.blake2b(name.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_BYTES).digest()


@attrs.frozen
class SeenFiles:
    """Digests of names, and the sizes of the files in bytes, in the order of reading."""

    sizes: Mapping[bytes, int] = attrs.Factory(dict)

    def __contains__(self, name: str) -> bool:
        return digest_of(name) in self.sizes

    def changed(self, listing: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
        """Yield the files whose size has changed: name, size when read, and size now."""
        for name, size in listing.items():
            known = self.sizes.get(digest_of(name), size)
            if known != size:
                yield name, known, size

    def plus(self, read: Mapping[str, int], listing: Mapping[str, int]) -> SeenFiles:
        """Return these files and those in ``read``, without those gone from the ``listing`` for longest."""
        sizes = {**self.sizes, **{digest_of(name): size for name, size in read.items()}}
        present = {digest_of(name) for name in listing}
        gone = [digest for digest in sizes if digest not in present]
        for digest in islice(gone, max(0, len(gone) - MAX_GONE)):
            del sizes[digest]
        return SeenFiles(sizes)

    def encode(self) -> str:
        """Return a string for a position."""
        return base64.b64encode(
            b"".join(digest + size.to_bytes(_SIZE_BYTES, "big") for digest, size in self.sizes.items())
        ).decode("ascii")

    @classmethod
    def decode(cls, text: str) -> SeenFiles:
        """Return the files that were encoded.

        Raises:
            IncompatibleCheckpointError: ``text`` is not such a string.
        """
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise IncompatibleCheckpointError(
                f"the list of files in the source position cannot be read: {error}; {_REMEDY}"
            ) from error
        if len(data) % _ENTRY_BYTES:
            raise IncompatibleCheckpointError(
                f"the list of files in the source position is truncated; {_REMEDY}"
            )
        entries = (data[start : start + _ENTRY_BYTES] for start in range(0, len(data), _ENTRY_BYTES))
        return cls({entry[:_DIGEST_BYTES]: int.from_bytes(entry[_DIGEST_BYTES:], "big") for entry in entries})


@attrs.frozen
class DirectorySource(Source):
    """Reads the files of a directory in the order of their names, ``files_per_epoch`` at a time.

    Files whose names begin with ``.`` or ``_`` are skipped, as everywhere in Spark. The offset records which
    files were read (:class:`SeenFiles`), so files with any name may be added while the job is down. If the
    directory is ``growing``, they may also be added while it runs, and the source never ends. A file must be
    complete when it appears: write it under another name and rename it. A file that was read may be deleted;
    if its size changes, that is logged once and the file is not read again.
    """

    directory: str = attrs.field(converter=absolute)
    record_format: RecordFormat
    files_per_epoch: int = 1
    max_files: int | None = None
    growing: bool = False
    #: Whether an epoch has no more files without checkpoints either.
    is_cut: bool = False
    poll_s = 1.0

    @property
    def is_bounded(self) -> bool:  # type: ignore[override]  # an attribute of the class elsewhere
        """Whether it ends by itself."""
        return not self.growing

    #: The files whose change was logged.
    _told: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return self._offset(0, {}, SeenFiles())

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        self._seen_at(position)

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`."""
        count, seen = self._seen_at(start)
        listing = self._listing()
        self._tell_of_changes(seen.changed(listing))
        left = None if self.max_files is None else max(0, self.max_files - count)
        new = [name for name in listing if name not in seen][:left]
        chosen = new if whole and not (self.growing or self.is_cut) else new[: self.files_per_epoch]
        if not chosen:
            return Available(start, is_last=not self.growing)
        read = {name: listing[name] for name in chosen}
        end = self._offset(count + len(chosen), read, seen.plus(read, listing))
        is_last = not self.growing and len(chosen) == len(new)
        return Available(end, is_last, is_full=len(chosen) == self.files_per_epoch)

    def plan(self, start: Position, end: Any) -> Epoch:
        """See :class:`Source`."""
        listing = self._listing()
        for name, size in end["files"]:
            self._check_unchanged(name, size, listing.get(name))
        return SplitEpoch(
            [self._path_of(name) for name, _ in end["files"]],
            self.record_format.read,
            type(self.record_format) in FORMATS.values(),
        )

    def _offset(self, count: int, files: dict[str, int], seen: SeenFiles) -> Position:
        """Return an offset: the number of files read, those of the epoch that ends there, and all of them."""
        return {
            "format": self.record_format.name,
            "count": count,
            "files": [[name, size] for name, size in files.items()],
            "seen": seen.encode(),
        }

    def _seen_at(self, position: Any) -> tuple[int, SeenFiles]:
        """Return how many files, and which, were read up to a position."""
        check_position(position, {"format": self.record_format.name}, "this directory")
        if self.max_files is not None and position["count"] > self.max_files:
            raise IncompatibleCheckpointError(
                f"the checkpoint was taken after {position['count']} files, the last of them "
                f"{position['files'][-1][0]!r}, but max_files is {self.max_files}: set it to "
                f"{position['count']} or more, or leave it out"
            )
        return position["count"], SeenFiles.decode(position["seen"])

    def _tell_of_changes(self, changed: Iterable[tuple[str, int, int]]) -> None:
        for name, was, size in changed:
            if name not in self._told:
                self._told.add(name)
                _log.warning(
                    "file %r of %s had %d bytes when it was read, and has %d now: it is not read again; a "
                    "file must be complete when it appears",
                    name,
                    self.directory,
                    was,
                    size,
                )

    def _check_unchanged(self, name: str, size: int, now: int | None) -> None:
        if now != size:
            has = "is gone" if now is None else f"has {now}"
            raise SourceError(
                f"file {name!r} of {self.directory} had {size} bytes when its epoch was planned, and {has}: "
                f"the files of an epoch must not change until it is committed"
            )

    def _path_of(self, name: str) -> str:
        return child_uri(self.directory, quote(name) if is_uri(self.directory) else name)

    def check(self) -> None:
        """Raise ``ConfigurationError`` if there is no directory, or nothing to read in it."""
        try:
            listing = self._listing()
        except SourceError as error:
            raise ConfigurationError(str(error)) from error
        if not listing and not self.growing:
            raise ConfigurationError(
                f"{self.directory} holds no files to read (names that begin with '.' or '_' are skipped): "
                f"put them there first, or set growing=True to wait for them"
            )

    def _listing(self) -> dict[str, int]:
        """Return the existing files in the order of their names, with their sizes in bytes."""
        with listing_errors(self.directory):
            file_system, path = open_file_system(self.directory)
            files = [
                (info.base_name, info.size)
                for info in file_system.get_file_info(fs.FileSelector(path))
                if info.type == fs.FileType.File
            ]
        return dict(sorted((name, size) for name, size in files if not name.startswith((".", "_"))))


@contextmanager
def listing_errors(directory: str) -> Iterator[None]:
    """Convert errors of listing a directory to a ``SourceError`` that names it."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise SourceError(
            f"cannot list {directory}: the name of a file or folder there is not UTF-8, {error.object!r}: "
            f"rename it"
        ) from error
    except OSError as error:
        raise SourceError(f"cannot list {directory}: {error}") from error


class StreamFormat:
    """The format of records in a file (``pyflink.datastream.connectors.file_system.StreamFormat``)."""

    @staticmethod
    def text_line_format(charset_name: str = "UTF-8") -> TextLines:
        """Return a format of text lines, without their line ends.

        Raises:
            ConfigurationError: no charset has that name.
        """
        return TextLines(charset_name)


@attrs.define
class _FruitlessLook:
    """The last listing without a new file."""

    start: Position = None
    holds_until_ms: int = 0


@attrs.frozen
class FileSource(DirectorySource):
    """Reads files, and all files below folders, in the order of their paths.

    See :meth:`for_record_stream_format`.

    Files and folders whose names begin with ``.`` or ``_`` are skipped, as in Flink.
    """

    paths: tuple[str, ...] = ()
    #: For how long a listing without a new file stays valid.
    discovery_interval_ms: int = attrs.field(default=0, kw_only=True)
    _now_ms: Callable[[], int] = attrs.field(
        default=SystemClock().monotonic_ms, kw_only=True, eq=False, repr=False
    )
    _last_look: _FruitlessLook = attrs.field(factory=_FruitlessLook, init=False, eq=False, repr=False)
    #: Records are strings.
    type_info = Types.STRING()

    @property
    def poll_s(self) -> float:  # type: ignore[override]  # an attribute of the class elsewhere
        """The interval at which an idle job asks, so that it also sees due timers and checkpoints."""
        default_s = DirectorySource.poll_s
        return min(default_s, self.discovery_interval_ms / 1000) if self.discovery_interval_ms else default_s

    @staticmethod
    def for_record_stream_format(stream_format: TextLines, *paths: AnyPath) -> FileSourceBuilder:
        """Return a builder for a source of the files at or below ``paths``.

        Raises:
            ConfigurationError: there is no path, or the format is not supported.
        """
        return FileSourceBuilder(stream_format, paths)

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`. The folders are listed no more often than at the discovery interval."""
        look = self._last_look
        if start == look.start and self._now_ms() < look.holds_until_ms:
            return Available(start)
        found = super().latest_offset(start, whole)
        if found.end == start:
            look.start, look.holds_until_ms = start, self._now_ms() + self.discovery_interval_ms
        return found

    def _listing(self) -> dict[str, int]:
        return dict(sorted({name: size for path in self.paths for name, size in _files_of(path)}.items()))

    def _path_of(self, name: str) -> str:
        return name


def _files_of(path: str) -> Iterator[tuple[str, int]]:
    with listing_errors(path):
        file_system, root = open_file_system(path)
        info = file_system.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            raise FileNotFoundError(f"there is no {path}")
        if info.type == fs.FileType.File:
            yield path, info.size
            return
        files = [
            (found.path, found.size)
            for found in file_system.get_file_info(fs.FileSelector(root, recursive=True))
            if found.type == fs.FileType.File
        ]
    for name, size in files:
        below = name[len(root) :].strip("/")
        if not any(part.startswith((".", "_")) for part in below.split("/")):
            yield child_uri(path, quote(below) if is_uri(path) else below), size


class FileSourceBuilder:
    """Makes a :class:`FileSource`."""

    def __init__(self, stream_format: TextLines, paths: tuple[AnyPath, ...]) -> None:
        check_kind("StreamFormat.text_line_format() is the only format", stream_format, TextLines)
        if not paths:
            raise ConfigurationError("for_record_stream_format() takes at least one path")
        self._format = stream_format
        self._paths = tuple(absolute(path) for path in paths)
        self._interval: Duration | None = None

    def process_static_file_set(self) -> FileSourceBuilder:
        """Read the present files, and end. This is the default."""
        self._interval = None
        return self

    def monitor_continuously(self, discovery_interval: Duration) -> FileSourceBuilder:
        """Read files that appear later as well, without end.

        Args:
            discovery_interval: how long an idle job waits before it looks for new files again.

        Raises:
            ConfigurationError: it is not a ``Duration`` of at least a millisecond.
        """
        check_kind(
            "monitor_continuously() takes a Duration, such as Duration.of_seconds(1)",
            discovery_interval,
            Duration,
        )
        positive("the milliseconds of monitor_continuously()", discovery_interval.to_milliseconds())
        self._interval = discovery_interval
        return self

    def build(self) -> FileSource:
        """Return the source."""
        where, interval = ", ".join(self._paths), self._interval
        if interval is None:
            return FileSource(where, self._format, paths=self._paths)
        return FileSource(
            where,
            self._format,
            growing=True,
            paths=self._paths,
            discovery_interval_ms=interval.to_milliseconds(),
        )
