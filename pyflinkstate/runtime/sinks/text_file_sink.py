"""PyFlink's file sink for text lines: files in buckets, with names that the user chooses, committed by epoch.

::

    <base path>/<bucket>/<prefix>-<id>-<n><suffix>               committed files
    <base path>/_pyflinkstate/<job id>/_runs/<job id>.<run>/     the run's area, see ``run_area``
        pending/epoch=<n>/<prefix>-<id>-<n><suffix>              what tasks write
        prepared/epoch=<n>-<id>                                  a list of files that a commit moves
        committed/epoch=<n>-<id>                                 the same list, in case the job goes back
        aside/<run>/epoch=<n>-<id>, epoch=<n>-<id>.files/        list and files, after the job has gone back

A job does not touch the files of another, so several jobs may write below one path. All sinks of a job below
one path share its area: each prepares its own lists, and a commit processes all of them. Readers skip names
that begin with an underscore. A commit moves the files of an epoch one by one: each file appears complete,
but not all at once.

A list, in JSON, says where its files belong. If moving them is interrupted, the list stays, and the next
commit or the next run finds the files in either place and continues.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
from pyarrow import fs

from pyflinkstate.api import Encoder, Reported, check_kind, positive
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.run_area import Change, RunArea, maker_of
from pyflinkstate.runtime.sinks.sink_files import OutputFile, opened, sink_errors
from pyflinkstate.runtime.sinks.sinks import SeveralStreams, SinkWriter
from pyflinkstate.runtime.sinks.two_phase_files import TwoPhaseFileSink
from pyflinkstate.runtime.storage import AnyPath, child_uri, read_note
from pyflinkstate.runtime.wire import SystemClock

OWN_FOLDER = "_pyflinkstate"
#: The ``strftime`` codes for the letters of Java's date formats.
_DATE_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


@attrs.frozen
class BucketAssigner:
    """Chooses the folder for a record (``pyflink.datastream.connectors.file_system.BucketAssigner``).

    Attributes:
        format: the ``strftime`` format that makes the folder's name from the time of writing; empty for no
            folder.
        timezone_id: the time zone of the time; None for that of the machine.
    """

    format: str = "%Y-%m-%d--%H"
    timezone_id: str | None = None

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Put all files into the base path itself."""
        return BucketAssigner("")

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """Name folders by the time of writing: by default one folder for each hour.

        Args:
            format_str: a format of ``yyyy``, ``yy``, ``MM``, ``dd``, ``HH``, ``mm``, ``ss``, quoted text and
                signs.
            timezone_id: a time zone such as ``"Europe/Berlin"``. Default: that of the machine.

        Raises:
            ConfigurationError: the format has other letters, or there is no such time zone.
        """
        bucket = BucketAssigner(_strftime_of(format_str), timezone_id)
        bucket.bucket_of(0)
        return bucket

    def bucket_of(self, now_ms: int) -> str:
        """Return the folder for records that are written at ``now_ms``; empty for the base path."""
        return (
            datetime.fromtimestamp(now_ms / 1000, timezone.utc).astimezone(self._zone()).strftime(self.format)
        )

    def _zone(self) -> tzinfo | None:
        try:
            return None if self.timezone_id is None else ZoneInfo(self.timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(f"BucketAssigner: there is no time zone {self.timezone_id!r}") from error


def _strftime_of(format_str: str) -> str:
    """Return a Java date format as a ``strftime`` format."""
    made = ""
    for match in re.finditer(r"'(?P<text>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>.)", format_str):
        letters = match["letters"]
        if letters and letters not in _DATE_LETTERS:
            raise ConfigurationError(
                f"BucketAssigner: {letters!r} in {format_str!r} is not known: use {', '.join(_DATE_LETTERS)}"
            )
        plain = match["text"] or match["sign"] or ""
        made += _DATE_LETTERS[letters] if letters else plain.replace("%", "%%")
    return made


class OutputFileConfig:
    """How files are named (``pyflink.datastream.connectors.file_system.OutputFileConfig``).

    Args:
        part_prefix: the beginning of file names.
        part_suffix: the end of file names, such as ``".txt"``.

    Raises:
        ConfigurationError: one of them contains a ``/``, or the prefix begins like that of a hidden file.
    """

    def __init__(self, part_prefix: str = "part", part_suffix: str = "") -> None:
        for name, value in (("prefix", part_prefix), ("suffix", part_suffix)):
            if not isinstance(value, str) or "/" in value:
                raise ConfigurationError(f"OutputFileConfig: the {name} of a file's name cannot be {value!r}")
        if part_prefix.startswith(("_", ".")):
            raise ConfigurationError(
                f"OutputFileConfig: readers skip names that begin with _ or a dot, as {part_prefix!r} does"
            )
        self._part_prefix = part_prefix
        self._part_suffix = part_suffix

    def get_part_prefix(self) -> str:
        """Return the beginning of file names."""
        return self._part_prefix

    def get_part_suffix(self) -> str:
        """Return the end of file names."""
        return self._part_suffix

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """Return a builder of configurations."""
        return OutputFileConfig.OutputFileConfigBuilder()

    class OutputFileConfigBuilder:
        """Makes an :class:`OutputFileConfig`."""

        def __init__(self) -> None:
            self._prefix, self._suffix = "part", ""

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the beginning of names. Default: ``part``."""
            self._prefix = prefix
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Set the end of names. Default: empty."""
            self._suffix = suffix
            return self

        def build(self) -> OutputFileConfig:
            """Return the configuration."""
            return OutputFileConfig(self._prefix, self._suffix)


def _part_size(size_bytes: int) -> int:
    return positive("RollingPolicy: the size of a part in bytes", size_bytes)


@attrs.frozen
class RollingPolicy:
    """When a file ends and another begins (``pyflink.datastream.connectors.file_system.RollingPolicy``).

    A file ends with its epoch in any case.

    Attributes:
        part_size: the number of bytes after which a file ends; None for no bound.
    """

    part_size: int | None = attrs.field(default=None, converter=attrs.converters.optional(_part_size))

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024,
        rollover_interval: int = 60_000,
        inactivity_interval: int = 60_000,
    ) -> RollingPolicy:
        """End files at ``part_size`` bytes. The intervals have no effect, as files end with their epoch."""
        return RollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """End files only with their epoch."""
        return RollingPolicy()


@attrs.frozen
class RowFormatWriter:
    """Writes the texts of one partition into files of their own."""

    pending_uri: str
    settings: RowFormatSettings
    now_ms: Callable[[], int] = SystemClock().now_ms
    file_system: fs.FileSystem | None = None

    def write(self, partition: int, records: Iterator[str]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields the final path of each file below the base path."""
        file_system, folder = opened(self.pending_uri, self.file_system, OWN_FOLDER)
        own_id, most = uuid.uuid4(), self.settings.rolling_policy.part_size
        names: list[str] = []
        with ExitStack() as cleared:
            file, size = None, 0
            for text in records:
                line = self.settings.encoded(text)
                if file is not None and most is not None and size + len(line) > most:
                    file.close()
                    yield names[-1]
                    file, size = None, 0
                if file is None:
                    names.append(self.settings.path_of(self.now_ms(), f"{own_id}-{len(names)}"))
                    file = OutputFile(file_system, f"{folder}/{posixpath.basename(names[-1])}")
                    cleared.callback(file.abandon)
                with sink_errors(f"write {file.path}"):
                    file.stream.write(line)
                size += len(line)
            if file is not None:
                file.close()
                yield names[-1]
            cleared.pop_all()


@attrs.frozen
class RowFormatSettings:
    """The settings of a file sink for text lines."""

    encoder: Encoder = attrs.Factory(Encoder)
    bucket_assigner: BucketAssigner = attrs.Factory(BucketAssigner)
    rolling_policy: RollingPolicy = attrs.Factory(RollingPolicy.default_rolling_policy)
    file_config: OutputFileConfig = attrs.Factory(OutputFileConfig)

    def encoded(self, text: str) -> bytes:
        """Return the line of a record; raise ``SinkError`` if the charset lacks one of its characters."""
        with sink_errors("encode a record", lambda: text):
            return f"{text}\n".encode(self.encoder.charset_name)

    def path_of(self, now_ms: int, part: str) -> str:
        """Return the path of a file below the base path."""
        bucket = self.bucket_assigner.bucket_of(now_ms)
        config = self.file_config
        name = f"{config.get_part_prefix()}-{part}{config.get_part_suffix()}"
        return f"{bucket}/{name}" if bucket else name


class RowFormatFileSink(TwoPhaseFileSink, SeveralStreams):
    """Writes text lines into files below a path; ``FileSink.for_row_format(...).build()`` makes one.

    Several sinks of one or more jobs may write below one path, and one sink may serve several streams.

    Args:
        base_path: a path or URI that driver and executors can reach, on a file system that can rename.
        settings: the names, folders and charset.
        file_system: the file system of ``base_path``, if that is not a URI.
    """

    def __init__(
        self, base_path: AnyPath, settings: RowFormatSettings, file_system: fs.FileSystem | None = None
    ) -> None:
        super().__init__(base_path, file_system)
        self._settings = settings

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`~pyflinkstate.runtime.sinks.sinks.Sink`."""
        return RowFormatWriter(self._begin(epoch), self._settings, file_system=self._own_file_system)

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """Write the list of the epoch's files: only those of the task attempts that Spark accepted."""
        with self._area.guarded(f"prepare epoch {epoch}"):
            if results:
                self._area.sync(self._area.path("pending", f"epoch={epoch}"), self._area.path("pending"))
                self._area.write_file(
                    self._area.path("prepared", f"epoch={epoch}-{uuid.uuid4().hex[:8]}"),
                    json.dumps(sorted(results)).encode(),
                )

    def _area_of(self, job_id: str) -> RunArea:
        own = f"{self._root}/{OWN_FOLDER}/{job_id}"
        folders = ("pending", "prepared", "committed", "aside")
        return RunArea(self._fs, own, child_uri(self.directory, OWN_FOLDER, job_id), folders)

    def _visible(self) -> list[tuple[int, str]]:
        return self._area.epochs("committed")

    def _publish(self, epoch: int, path: str) -> None:
        """Move the files of a prepared list to their visible place, and then the list."""
        self._move_to_base(self._read_list(path), self._area.path("pending", f"epoch={epoch}"))
        self._fs.move(path, self._area.path("committed", posixpath.basename(path)))
        self._area.sync(self._area.path("prepared"), self._area.path("committed"))

    def _move_to_base(self, names: list[str], source: str) -> None:
        for folder in _folders_of(names):
            self._fs.create_dir(f"{self._root}/{folder}", recursive=True)
        left = set()
        for name in names:
            left |= self._move_from([f"{source}/{posixpath.basename(name)}"], f"{self._root}/{name}")
        self._area.sync(*(f"{self._root}/{folder}".rstrip("/") for folder in _folders_of(names)))
        self._area.sync(*sorted(left))

    def _move_from(self, places: list[str], target: str) -> set[str]:
        """Move a file from the first place where it exists, and return the folder that it was in."""
        for place in places:
            if self._area.exists(place):
                self._fs.move(place, target)
                return {place.rpartition("/")[0]}
        return set()

    def _put_aside(self, epoch: int, path: str, run: str) -> None:
        """Move the files of a list aside, wherever they are, and then the list."""
        aside = self._area.name_aside(run, posixpath.basename(path))
        files = self._area.make("aside", run, f"{posixpath.basename(path)}.files")
        self._area.sync(self._area.path("aside", run))
        left = set()
        for file in self._read_list(path):
            name = posixpath.basename(file)
            places = [f"{self._root}/{file}", self._area.path("pending", f"epoch={epoch}", name)]
            left |= self._move_from(places, f"{files}/{name}")
        self._area.sync(files, *sorted(left))
        self._fs.move(path, aside)
        self._area.sync(self._area.path("aside", run), path.rpartition("/")[0])

    def _bring_all_back(self, change: Change) -> None:
        """Move lists back first, so that their files are known to belong here if the rest is interrupted."""
        visible = {epoch for epoch, _ in self._visible()}
        for path in self._area.wanted_aside(change, visible):
            self._fs.move(path, self._area.path("committed", posixpath.basename(path)))

    def _complete(self, change: Change) -> None:
        self._area.sync(self._area.path("committed"))
        for epoch, path in self._visible():
            files = self._area.path(
                "aside", maker_of(change.after, epoch), f"{posixpath.basename(path)}.files"
            )
            if self._area.exists(files):
                self._move_to_base(self._read_list(path), files)
                self._area.drop(files)

    def _drop(self, path: str) -> None:
        """Delete a prepared list, and those of its files that an interrupted commit has moved."""
        for file in self._read_list(path):
            if self._area.exists(f"{self._root}/{file}"):
                self._area.drop(f"{self._root}/{file}")
                self._area.sync(f"{self._root}/{file}".rpartition("/")[0])
        self._area.drop(path)
        self._area.sync(self._area.path("prepared"))

    def _committed(self, epoch: int) -> None:
        self._clear(epoch)

    def _read_list(self, path: str) -> list[str]:
        data = read_note(self._fs, path)
        try:
            return [_checked(name) for name in json.loads(data)]
        except (ValueError, TypeError, RecursionError) as error:
            raise SinkError(
                f"file sink: {path} is damaged, and only this list says which files an epoch has: {error}; "
                f"restore a checkpoint from before that epoch and delete the list, or choose another path",
                file=path,
            ) from error


def _folders_of(names: list[str]) -> list[str]:
    """Return the folders of files and all folders above, up to the base path, which is empty."""
    folders = {""}
    for name in names:
        while name := name.rpartition("/")[0]:
            folders.add(name)
    return sorted(folders, reverse=True)


def _checked(name: object) -> str:
    """Return the name of a file below the base path; raise ``ValueError`` if it leads elsewhere."""
    if not isinstance(name, str) or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(f"no file below the path can have the name {name!r}")
    return name


class RowFormatBuilder:
    """Makes a file sink for lines of text (PyFlink: ``FileSink.RowFormatBuilder``)."""

    def __init__(self, base_path: AnyPath, encoder: Encoder) -> None:
        check_kind("for_row_format() takes an Encoder", encoder, Encoder)
        self._base_path = base_path
        self._settings = RowFormatSettings(encoder)

    def with_bucket_check_interval(self, interval: int) -> RowFormatBuilder:
        """Do nothing: files end with their epoch."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFormatBuilder:
        """Set the folders for files. Default: one for each hour of the machine's local time."""
        return self._with(BucketAssigner, "bucket_assigner", bucket_assigner)

    def with_rolling_policy(self, policy: RollingPolicy) -> RowFormatBuilder:
        """Set when files end. Default: ``RollingPolicy.default_rolling_policy()``."""
        return self._with(RollingPolicy, "rolling_policy", policy)

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFormatBuilder:
        """Set how files are named."""
        return self._with(OutputFileConfig, "file_config", output_file_config)

    def _with(self, expected: type, name: str, value: object) -> RowFormatBuilder:
        check_kind(f"a {expected.__name__} is needed here", value, expected)
        changes: dict[str, Any] = {name: value}
        self._settings = attrs.evolve(self._settings, **changes)
        return self

    def enable_compact(self, strategy: object, compactor: object) -> RowFormatBuilder:
        """Raise an error: small files are not merged.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            "enable_compact() is not supported for lines of text: use FileSink(directory, 'text', "
            "compact=strategy), or set a lower parallelism, or larger epochs"
        )

    def build(self) -> RowFormatFileSink:
        """Return the sink."""
        return RowFormatFileSink(self._base_path, self._settings)
