"""Sources that read the files of folders.

As in Flink's ``FileSource``, a file is identified by its name, not by its place in the order: a file that
comes later with an earlier name is read, and a file may disappear. The position keeps a digest of the name in
16 bytes, and the size in 8. A file that is gone may come back, so it is remembered too. But a job that reads
and archives files for years would remember all of them, so only the newest of those that are gone are kept.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.api import Duration, Position, Types, positive
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.formats import FORMATS, RecordFormat, TextLines
from pyflinkstate.runtime.sources.sources import Available, Epoch, Source, SplitEpoch, check_position
from pyflinkstate.runtime.storage import AnyPath, absolute, child_uri, is_uri, open_file_system
from pyflinkstate.runtime.wire import SystemClock

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
        if not isinstance(stream_format, TextLines):
            raise ConfigurationError(
                f"StreamFormat.text_line_format() is the only format, not {stream_format!r}"
            )
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
        if not isinstance(discovery_interval, Duration):
            raise ConfigurationError(
                f"monitor_continuously() takes a Duration, such as Duration.of_seconds(1), not "
                f"{discovery_interval!r}"
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
