"""Sources: what they read, and how they cut it into epochs that can be replayed.

An epoch is the input between two *offsets*, JSON values that a checkpoint keeps. As with Spark's
``DataSourceStreamReader``, a source says how far it could go and plans what lies between. The same two
offsets must give the same records again, in the same order, which makes a restart exact.
"""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import Offset, Record, SparkObject, Split
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.formats import FORMATS, RecordFormat, Reject
from pyflinkstate.runtime.sources.seen_files import SeenFiles
from pyflinkstate.runtime.storage import absolute, child_uri, is_uri, open_file_system
from pyflinkstate.runtime.wire import ColumnBatch

_log = logging.getLogger("pyflinkstate.sources")

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
    read: Callable[[Split, Reject], Iterable[Record]]
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


def check_position(position: Offset, expected: dict[str, object], source: str) -> None:
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

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._offset(0)

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        check_position(position, {"length": len(self.records)}, "this collection")

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        length = len(self.records)
        is_whole = whole and not self.is_cut
        end = length if is_whole else min(start["index"] + self.records_per_epoch, length)
        return Available(self._offset(end), end == length, is_full=end < length)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        return SplitEpoch([self.records[start["index"] : end["index"]]], _read_list, self.is_fresh)

    def _offset(self, index: int) -> Offset:
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

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._offset(0)

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        check_position(position, {"partitions": self.partitions}, "this RDD")

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        is_whole = whole and not self.is_cut
        most = self.partitions if is_whole else self.partitions_per_epoch
        end = min(start["partition"] + most, self.partitions)
        return Available(self._offset(end), end == self.partitions, is_full=end < self.partitions)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        return RddEpoch(self.rdd, range(start["partition"], end["partition"]), self.is_fresh, self.read)

    def _offset(self, partition: int) -> Offset:
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

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return {"start_ms": self.now_ms(), "index": 0, "rate": self.rows_per_second}

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        check_position(position, {"rate": self.rows_per_second}, "this rate source")

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        due = max(0, self.now_ms() - start["start_ms"]) * self.rows_per_second // 1000
        end = min(max(due, start["index"]), start["index"] + self.max_records_per_epoch)
        return Available({**start, "index": end}, is_full=end - start["index"] == self.max_records_per_epoch)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        first, length = start["index"], end["index"] - start["index"]
        cuts = [first + length * part // self.partitions for part in range(self.partitions + 1)]
        splits = [
            (start["start_ms"], self.rows_per_second, begin, stop) for begin, stop in itertools.pairwise(cuts)
        ]
        return SplitEpoch(splits, _read_rate, is_fresh=True)


def _read_rate(split: tuple[int, int, int, int], _: Reject) -> Iterable[Record]:
    start_ms, rate, begin, stop = split
    for value in range(begin, stop):
        yield {"timestamp_ms": start_ms + value * 1000 // rate, "value": value}


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
    #: The files that an offset of an earlier version stands for, by its last name.
    _converted: dict[str, tuple[int, SeenFiles]] = attrs.field(factory=dict, init=False, eq=False, repr=False)

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._offset(0, {}, SeenFiles())

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        self._check_format(position)
        self._seen_at(position, self._listing() if "last" in position else {})

    def _check_format(self, position: Offset) -> None:
        check_position(position, {"format": self.record_format.name}, "this directory")

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self._check_format(start)
        listing = self._listing()
        count, seen = self._seen_at(start, listing)
        self._tell_of_changes(seen.changed(listing))
        new = [name for name in listing if name not in seen][: self._left(count)]
        chosen = new if whole and not (self.growing or self.is_cut) else new[: self.files_per_epoch]
        if not chosen:
            return Available(start, is_last=not self.growing)
        read = {name: listing[name] for name in chosen}
        end = self._offset(count + len(chosen), read, seen.plus(read, listing))
        is_last = not self.growing and len(chosen) == len(new)
        return Available(end, is_last, is_full=len(chosen) == self.files_per_epoch)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        listing = self._listing()
        for name, size in end["files"]:
            self._check_unchanged(name, size, listing.get(name))
        is_fresh = type(self.record_format) in FORMATS.values()
        splits = [self._path_of(name) for name, _ in end["files"]]
        return SplitEpoch(splits, self.record_format.read, is_fresh)

    def _offset(self, count: int, files: dict[str, int], seen: SeenFiles) -> Offset:
        """Return an offset: the number of files read, those of the epoch that ends there, and all of them."""
        return {
            "format": self.record_format.name,
            "count": count,
            "files": [[name, size] for name, size in files.items()],
            "seen": seen.encode(),
        }

    def _seen_at(self, start: Offset, listing: dict[str, int]) -> tuple[int, SeenFiles]:
        """Return how many files, and which, were read up to an offset."""
        if "last" in start:
            return self._seen_up_to(start["last"], start.get("count"), listing)
        if self.max_files is not None and start["count"] > self.max_files:
            raise IncompatibleCheckpointError(
                f"the checkpoint was taken after {start['count']} files, the last of them "
                f"{start['files'][-1][0]!r}, but max_files is {self.max_files}: set it to {start['count']} "
                f"or more, or leave it out"
            )
        return start["count"], SeenFiles.decode(start["seen"])

    def _seen_up_to(self, last: str, count: int | None, listing: dict[str, int]) -> tuple[int, SeenFiles]:
        """Return the files up to the last name that was read, which is all that earlier versions kept.

        Files that exist at the first look count as read; later ones are new, whatever their names.
        """
        if last in self._converted:
            return self._converted[last]
        read = {name: size for name, size in listing.items() if name <= last}
        if count is not None and len(read) > count:
            raise IncompatibleCheckpointError(
                f"{self.directory} has {len(read)} files up to {last!r}, and had {count} when that was read; "
                f"the checkpoint of an earlier version does not say which: move the new ones away, "
                f"restore, and move them back when the job has taken a checkpoint"
            )
        self._converted[last] = max(len(read), count or 0), SeenFiles().plus(read, listing)
        return self._converted[last]

    def _left(self, count: int) -> int | None:
        return None if self.max_files is None else max(0, self.max_files - count)

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
            infos = file_system.get_file_info(fs.FileSelector(path))
            files = [(info.base_name, info.size) for info in infos if info.type == fs.FileType.File]
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
