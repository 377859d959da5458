"""Sources under PyFlink's names (``pyflink.datastream.connectors``)."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from urllib.parse import quote

import attrs
from pyarrow import fs

from pyflinkstate.api.checks import as_int, positive
from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.time import Duration
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import Offset, Record
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.sources.formats import Reject, TextLines
from pyflinkstate.runtime.sources.sources import (
    Available,
    DirectorySource,
    Epoch,
    Source,
    SplitEpoch,
    check_position,
    listing_errors,
)
from pyflinkstate.runtime.storage import AnyPath, absolute, child_uri, is_uri, open_file_system
from pyflinkstate.runtime.wire import SystemClock


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

    start: Offset = None
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

    def latest_offset(self, start: Offset, whole: bool) -> Available:
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
        infos = file_system.get_file_info(fs.FileSelector(root, recursive=True))
        files = [(found.path, found.size) for found in infos if found.type == fs.FileType.File]
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
        interval_ms = interval.to_milliseconds()
        return FileSource(
            where, self._format, growing=True, paths=self._paths, discovery_interval_ms=interval_ms
        )


#: Number of records in an epoch with checkpoints, unless the program sets it.
RECORDS_PER_EPOCH = 100_000


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

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return self._offset(self.start)

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        check_position(position, {"start": self.start, "end": self.end}, "this sequence")

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self.check_restored(start)
        stop = self.end + 1
        most = self.records_per_epoch or (stop if whole else RECORDS_PER_EPOCH)
        next_stop = min(start["next"] + most, stop)
        return Available(self._offset(next_stop), next_stop == stop, is_full=next_stop < stop)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        return SplitEpoch([(start["next"], end["next"])], _read_numbers, is_fresh=True)

    def _offset(self, number: int) -> Offset:
        return {"start": self.start, "end": self.end, "next": number}


def _read_numbers(split: tuple[int, int], _: Reject) -> Iterable[Record]:
    return itertools.islice(itertools.count(split[0]), split[1] - split[0])


def type_of_source(source: Source, type_info: TypeInformation | None) -> TypeInformation | None:
    """Return the type of a source's records, which the caller or the source declares."""
    own: TypeInformation | None = getattr(source, "type_info", None)
    return own if type_info is None else type_info
