"""Sources: what they read, and how they cut it into epochs that can be replayed.

An epoch is what lies between two *offsets*: JSON values that a checkpoint keeps. As with Spark's
``DataSourceStreamReader``, a source says how far it could go and plans what lies between; the same two
offsets must give the same records again, in the same order. That is what makes a restart exact.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.formats import FORMATS, RecordFormat, Reject
from pyflinkstate.runtime.uris import absolute, child_uri, is_uri, open_file_system

#: Records of a collection in an epoch, unless the user says otherwise.
RECORDS_PER_EPOCH = 10_000


@attrs.frozen
class SplitEpoch:
    """An epoch of splits, each read by one Spark task with ``read``.

    Attributes:
        splits: what is read.
        read: called with a split and a function that takes rejected records; gives the split's records.
        is_fresh: each record is made anew, and nothing of it that can change is used for another. Else what
            can change is copied as it is read.
    """

    splits: Sequence[Any]
    read: Callable[[Any, Reject], Iterable[Any]]
    is_fresh: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class RddEpoch:
    """An epoch of some partitions of an RDD; of all of them where ``partitions`` is None.

    ``is_fresh`` is as for :class:`SplitEpoch`; of an RDD that Python has made nothing is known.
    """

    rdd: Any
    partitions: range | None = None
    is_fresh: bool = attrs.field(default=False, eq=False)


@attrs.frozen
class EpochSet:
    """What is next of each of several sources: None where that is nothing.

    Attributes:
        epochs: by the names of the sources.
        ended: the sources that end with this epoch, or have ended before.
    """

    epochs: dict[str, SplitEpoch | RddEpoch | None]
    ended: frozenset[str] = frozenset()


Epoch = SplitEpoch | RddEpoch | EpochSet


@attrs.frozen
class Available:
    """How far the next epoch could go.

    Attributes:
        end: its end; the start itself where there is nothing now.
        is_last: nothing will ever come after ``end``.
    """

    end: Any
    is_last: bool = False


class Source(ABC):
    """A replayable source; subclass it for ``StreamExecutionEnvironment.from_source``."""

    #: Each epoch must be durable before more is asked for, as with Structured Streaming.
    commits_every_epoch = False
    #: It can go back further than to its last commit, as where a damaged checkpoint is passed over.
    is_rewindable = True
    #: It ends by itself.
    is_bounded = False
    #: How long a job that has nothing to do waits before it asks again, in seconds.
    poll_s = 0.1

    def open(self, wake_up: Callable[[], None]) -> None:
        """The job begins. ``wake_up``, from any thread, has it ask again at once."""
        return

    def close(self, error: BaseException | None) -> None:
        """The job has ended, with ``error`` if it failed."""
        return

    @abstractmethod
    def initial_offset(self) -> Any:
        """Return the offset before the first record: a JSON value."""

    @abstractmethod
    def latest_offset(self, start: Any, whole: bool) -> Available:
        """Return how far an epoch that begins at ``start`` could go now.

        Args:
            start: an offset of this source, or one that a checkpoint had kept.
            whole: no barriers are wanted: a bounded source may give all that is left as one epoch.

        Raises:
            IncompatibleCheckpointError: ``start`` is an offset of other input.
        """

    @abstractmethod
    def plan(self, start: Any, end: Any) -> Epoch:
        """Return what lies between two offsets."""

    def commit(self, end: Any) -> None:
        """Everything before ``end`` is in a completed checkpoint, and will never be asked for again.

        Called once a checkpoint is complete and sinks have committed, and when an attempt begins with one.
        """
        return


def check_position(position: Any, expected: dict[str, Any], source: str) -> None:
    """Raise ``IncompatibleCheckpointError`` unless an offset has the entries that it must have."""
    found = {name: position.get(name) for name in expected} if isinstance(position, dict) else position
    if found != expected:
        raise IncompatibleCheckpointError(
            f"the checkpoint's source position {position!r} does not fit {source} with {expected!r}: "
            f"restore with the input that the checkpoint was taken with"
        )


@attrs.frozen
class CollectionSource(Source):
    """A list of records, in its order; ``is_fresh`` says that they share nothing that can change."""

    records: Sequence[Any]
    records_per_epoch: int = RECORDS_PER_EPOCH
    is_fresh: bool = False
    is_bounded = True

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return self._offset(0)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        check_position(start, {"length": len(self.records)}, "this collection")
        length = len(self.records)
        end = length if whole else min(start["index"] + self.records_per_epoch, length)
        return Available(self._offset(end), end == length)

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        return SplitEpoch([self.records[start["index"] : end["index"]]], _read_list, self.is_fresh)

    def _offset(self, index: int) -> Any:
        return {"index": index, "length": len(self.records)}


def _read_list(split: Sequence[Any], _: Reject) -> Iterable[Any]:
    return split


@attrs.frozen
class RddSource(Source):
    """The partitions of an RDD, in order. Evaluating a partition twice must give the same records."""

    rdd: Any
    partitions: int
    partitions_per_epoch: int
    is_fresh: bool = False
    is_bounded = True

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return self._offset(0)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        check_position(start, {"partitions": self.partitions}, "this RDD")
        end = (
            self.partitions if whole else min(start["partition"] + self.partitions_per_epoch, self.partitions)
        )
        return Available(self._offset(end), end == self.partitions)

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        return RddEpoch(self.rdd, range(start["partition"], end["partition"]), self.is_fresh)

    def _offset(self, partition: int) -> Any:
        return {"partition": partition, "partitions": self.partitions}


@attrs.frozen
class RateSource(Source):
    """Numbers from 0 on, so many in a second: for trying out a job that never ends.

    A record is a dict of ``timestamp_ms`` (when it was due) and ``value``. What is due is told by the
    clock; which records lie between two offsets is not.
    """

    rows_per_second: int
    now_ms: Callable[[], int]
    partitions: int = 1
    max_records_per_epoch: int = 1_000_000

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return {"start_ms": self.now_ms(), "index": 0, "rate": self.rows_per_second}

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        check_position(start, {"rate": self.rows_per_second}, "this rate source")
        due = max(0, self.now_ms() - start["start_ms"]) * self.rows_per_second // 1000
        end = min(max(due, start["index"]), start["index"] + self.max_records_per_epoch)
        return Available({**start, "index": end})

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        first, length = start["index"], end["index"] - start["index"]
        cuts = [first + length * part // self.partitions for part in range(self.partitions + 1)]
        splits = [
            (start["start_ms"], self.rows_per_second, begin, stop) for begin, stop in itertools.pairwise(cuts)
        ]
        return SplitEpoch(splits, _read_rate, is_fresh=True)


def _read_rate(split: tuple[int, int, int, int], _: Reject) -> Iterable[Any]:
    start_ms, rate, begin, stop = split
    for value in range(begin, stop):
        yield {"timestamp_ms": start_ms + value * 1000 // rate, "value": value}


@attrs.frozen
class FileSource(Source):
    """The files of a directory in the order of their names, ``files_per_epoch`` at a time.

    Files whose names begin with ``.`` or ``_`` are not data, as everywhere on Spark. The offset is
    the last name read, so files may be added while the job is down, as long as their names come later; of
    a ``growing`` directory also while it runs, and then the source never ends. A file that appears must be
    whole: write it under another name and rename it.
    """

    directory: str = attrs.field(converter=absolute)
    record_format: RecordFormat
    files_per_epoch: int = 1
    max_files: int | None = None
    growing: bool = False
    poll_s = 1.0

    @property
    def is_bounded(self) -> bool:  # type: ignore[override]  # elsewhere it is the same for all of a class
        """It ends by itself."""
        return not self.growing

    #: The names seen so far: one that appears among them later is late.
    _seen: set[str] = attrs.field(factory=set, init=False, eq=False, repr=False)

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return self._offset("", 0, 0)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        names = self._names()
        check_position(start, {"format": self.record_format.name}, "this directory")
        self._check_start(start, names)
        later = [name for name in names if name > start["last"]]
        chosen = later if whole and not self.growing else later[: self.files_per_epoch]
        if not chosen:
            return Available(start, is_last=not self.growing)
        end = self._offset(chosen[-1], len(names) - len(later) + len(chosen), len(chosen))
        return Available(end, is_last=not self.growing and len(chosen) == len(later))

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        names = [name for name in self._names() if start["last"] < name <= end["last"]]
        if len(names) != end.get("files", len(names)):
            raise SourceError(
                f"{self.directory} has {len(names)} files after {start['last']!r} and up to {end['last']!r}, "
                f"and had {end['files']}: files of an epoch must stay as they are until it is committed"
            )
        is_fresh = type(self.record_format) in FORMATS.values()
        return SplitEpoch([self._path_of(name) for name in names], self.record_format.read, is_fresh)

    def _offset(self, last: str, count: int, files: int) -> Any:
        """Return an offset: ``count`` files up to ``last``, and ``files`` in the epoch that ends there."""
        return {"last": last, "format": self.record_format.name, "count": count, "files": files}

    def _check_start(self, start: Any, names: list[str]) -> None:
        last = start["last"]
        if last and last not in names:
            raise IncompatibleCheckpointError(
                f"the checkpoint was taken after file {last!r}, which is not in "
                f"{self.directory}: restore with the input that the checkpoint was taken with"
            )
        before = [name for name in names if name <= last]
        late = [name for name in before if name not in self._seen] if self._seen else []
        self._seen.update(names)
        if late or len(before) > start.get("count", len(before)):
            raise IncompatibleCheckpointError(
                f"{self.directory} has {len(before)} files up to {last!r}, and had {start.get('count')} when "
                f"that was read: {', '.join(late) or 'the others'} would never be read; give new files names "
                f"that come later"
            )

    def _path_of(self, name: str) -> str:
        return child_uri(self.directory, quote(name) if is_uri(self.directory) else name)

    def check(self) -> None:
        """Raise ``ConfigurationError`` if there is nothing to read, or no directory."""
        try:
            names = self._names()
        except SourceError as error:
            raise ConfigurationError(str(error)) from error
        if not names and not self.growing:
            raise ConfigurationError(f"{self.directory} holds no files to read")

    def _names(self) -> list[str]:
        try:
            file_system, path = open_file_system(self.directory)
            infos = file_system.get_file_info(fs.FileSelector(path))
        except OSError as error:
            raise SourceError(f"cannot list {self.directory}: {error}") from error
        files = (info.base_name for info in infos if info.type == fs.FileType.File)
        return sorted(name for name in files if not name.startswith((".", "_")))[: self.max_files]
