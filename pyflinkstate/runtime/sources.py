"""Sources: what they read, and how they cut it into epochs that can be replayed.

A source plans one epoch at a time, from a *position*: a JSON value that a checkpoint keeps. The same
position must give the same records again, in the same order; that is what makes a restart exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.formats import RecordFormat, Reject
from pyflinkstate.runtime.storage import absolute, open_file_system

#: Records of a collection in an epoch, unless the user says otherwise.
RECORDS_PER_EPOCH = 10_000


@attrs.frozen
class SplitEpoch:
    """An epoch of splits, each read by one Spark task with ``read``."""

    splits: Sequence[Any]
    read: Callable[[Any, Reject], Iterable[Any]]
    end: Any
    is_last: bool


@attrs.frozen
class RddEpoch:
    """An epoch of some partitions of an RDD."""

    rdd: Any
    partitions: range
    end: Any
    is_last: bool


Epoch = SplitEpoch | RddEpoch


class Source(Protocol):
    """Cuts its input into epochs."""

    def plan(self, position: Any | None, bounded_epochs: bool) -> Epoch | None:
        """Return the epoch after ``position`` (None is the beginning), or None at the end.

        ``bounded_epochs`` is False where no barriers are wanted: a bounded source then gives all
        that is left as one epoch.
        """


def _check_position(position: Any, expected: dict[str, Any], source: str) -> None:
    found = {name: position.get(name) for name in expected} if isinstance(position, dict) else position
    if found != expected:
        raise IncompatibleCheckpointError(
            f"the checkpoint's source position {position!r} does not fit {source} with {expected!r}: "
            f"restore with the input that the checkpoint was taken with"
        )


@attrs.frozen
class CollectionSource:
    """A list of records, in its order."""

    records: Sequence[Any]
    records_per_epoch: int = RECORDS_PER_EPOCH

    def plan(self, position: Any | None, bounded_epochs: bool) -> Epoch | None:
        """See :class:`Source`."""
        if position is not None:
            _check_position(position, {"length": len(self.records)}, "this collection")
        start = 0 if position is None else position["index"]
        if start >= len(self.records):
            return None
        end = start + self.records_per_epoch if bounded_epochs else len(self.records)
        end = min(end, len(self.records))
        return SplitEpoch(
            [self.records[start:end]],
            _read_list,
            {"index": end, "length": len(self.records)},
            is_last=end == len(self.records),
        )


def _read_list(split: Sequence[Any], _: Reject) -> Iterable[Any]:
    return split


@attrs.frozen
class RddSource:
    """The partitions of an RDD, in order. Evaluating a partition twice must give the same records."""

    rdd: Any
    partitions: int
    partitions_per_epoch: int

    def plan(self, position: Any | None, bounded_epochs: bool) -> Epoch | None:
        """See :class:`Source`."""
        if position is not None:
            _check_position(position, {"partitions": self.partitions}, "this RDD")
        start = 0 if position is None else position["partition"]
        if start >= self.partitions:
            return None
        end = start + self.partitions_per_epoch if bounded_epochs else self.partitions
        end = min(end, self.partitions)
        return RddEpoch(
            self.rdd,
            range(start, end),
            {"partition": end, "partitions": self.partitions},
            is_last=end == self.partitions,
        )


@attrs.frozen
class FileSource:
    """The files of a directory in the order of their names, ``files_per_epoch`` at a time.

    Files whose names begin with ``.`` or ``_`` are not data, as everywhere on Spark. The position is
    the last name read, so files may be added while the job is down, as long as their names come later.
    """

    directory: str = attrs.field(converter=absolute)
    record_format: RecordFormat
    files_per_epoch: int = 1
    max_files: int | None = None

    def plan(self, position: Any | None, bounded_epochs: bool) -> Epoch | None:
        """See :class:`Source`."""
        names = self._names()
        if position is not None:
            _check_position(position, {"format": self.record_format.name}, "this directory")
            if position["last"] not in names:
                raise IncompatibleCheckpointError(
                    f"the checkpoint was taken after file {position['last']!r}, which is not in "
                    f"{self.directory}: restore with the input that the checkpoint was taken with"
                )
            names = [name for name in names if name > position["last"]]
        if not names:
            return None
        chosen = names[: self.files_per_epoch] if bounded_epochs else names
        return SplitEpoch(
            [self._path_of(name) for name in chosen],
            self.record_format.read,
            {"last": chosen[-1], "format": self.record_format.name},
            is_last=len(chosen) == len(names),
        )

    def _path_of(self, name: str) -> str:
        quoted = quote(name) if "://" in self.directory else name
        return f"{self.directory.rstrip('/')}/{quoted}"

    def check(self) -> None:
        """Raise ``ConfigurationError`` if there is nothing to read."""
        try:
            names = self._names()
        except SourceError as error:
            raise ConfigurationError(str(error)) from error
        if not names:
            raise ConfigurationError(f"{self.directory} holds no files to read")

    def _names(self) -> list[str]:
        try:
            file_system, path = open_file_system(self.directory)
            infos = file_system.get_file_info(fs.FileSelector(path))
        except OSError as error:
            raise SourceError(f"cannot list {self.directory}: {error}") from error
        files = (info.base_name for info in infos if info.type == fs.FileType.File)
        return sorted(name for name in files if not name.startswith((".", "_")))[: self.max_files]
