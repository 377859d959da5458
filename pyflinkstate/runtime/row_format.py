"""PyFlink's file sink for lines of text: files in buckets, named as the user says, committed by epoch.

::

    <base path>/<bucket>/<prefix>-<id>-<n><suffix>        what is committed
    <base path>/_pyflinkstate/<job id>/pending/...        what tasks write
    <base path>/_pyflinkstate/<job id>/prepared/epoch=<n> a list of files that a commit moves, in JSON
    <base path>/_pyflinkstate/<job id>/committed/epoch=<n> the same list, for a job that goes back

A job touches none of another's files, so several may write below one path. Readers skip names that begin
with an underscore. A commit moves an epoch's files one by one: each appears whole, all of them not at once.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import attrs
from pyarrow import fs

from pyflinkstate.api.encoder import Encoder
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.clock import SystemClock
from pyflinkstate.runtime.sink_errors import sink_errors
from pyflinkstate.runtime.sinks import SinkWriter
from pyflinkstate.runtime.uris import absolute, open_file_system

OWN_FOLDER = "_pyflinkstate"
_EPOCH = re.compile(r"epoch=(\d+)")

#: What Java's letters of a date are to ``strftime``.
_DATE_LETTERS = {"yyyy": "%Y", "yy": "%y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}


@attrs.frozen
class BucketAssigner:
    """Which folder a record goes to (``pyflink.datastream.connectors.file_system.BucketAssigner``).

    Attributes:
        format: what ``strftime`` makes the folder's name with, of the time of writing; empty for no folder.
        timezone_id: of which time zone the time is; None for that of the machine.
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
        """Name folders by the time of writing: one for each hour, unless ``format_str`` says otherwise.

        Args:
            format_str: ``yyyy``, ``yy``, ``MM``, ``dd``, ``HH``, ``mm``, ``ss``, quoted text, and signs.
            timezone_id: such as ``"Europe/Berlin"``; the machine's without it.

        Raises:
            ConfigurationError: the format has other letters, or there is no such time zone.
        """
        bucket = BucketAssigner(_strftime_of(format_str), timezone_id)
        bucket.bucket_of(0)
        return bucket

    def bucket_of(self, now_ms: int) -> str:
        """Return the folder of what is written at ``now_ms``; empty for the base path."""
        moment = datetime.fromtimestamp(now_ms / 1000, timezone.utc).astimezone(self._zone())
        return moment.strftime(self.format)

    def _zone(self) -> tzinfo | None:
        try:
            return None if self.timezone_id is None else ZoneInfo(self.timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ConfigurationError(f"BucketAssigner: no time zone {self.timezone_id!r}") from error


def _strftime_of(format_str: str) -> str:
    """Return a date format of Java's as ``strftime`` takes it."""
    made = ""
    for match in re.finditer(r"'(?P<text>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<sign>.)", format_str):
        letters = match["letters"]
        if letters and letters not in _DATE_LETTERS:
            raise ConfigurationError(
                f"BucketAssigner: {letters!r} in {format_str!r}: choose of {', '.join(_DATE_LETTERS)}"
            )
        plain = match["text"] or match["sign"] or ""
        made += _DATE_LETTERS[letters] if letters else plain.replace("%", "%%")
    return made


class OutputFileConfig:
    """How files are named (``pyflink.datastream.connectors.file_system.OutputFileConfig``).

    Args:
        part_prefix: what names begin with.
        part_suffix: what they end with, such as ``".txt"``.

    Raises:
        ConfigurationError: one of them holds a ``/``, or the prefix begins like a hidden file.
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
        """Return what names begin with."""
        return self._part_prefix

    def get_part_suffix(self) -> str:
        """Return what names end with."""
        return self._part_suffix

    @staticmethod
    def builder() -> OutputFileConfigBuilder:
        """Return what makes a configuration."""
        return OutputFileConfigBuilder()


class OutputFileConfigBuilder:
    """Makes an :class:`OutputFileConfig`."""

    def __init__(self) -> None:
        self._prefix, self._suffix = "part", ""

    def with_part_prefix(self, prefix: str) -> OutputFileConfigBuilder:
        """Set what names begin with. Default: ``part``."""
        self._prefix = prefix
        return self

    def with_part_suffix(self, suffix: str) -> OutputFileConfigBuilder:
        """Set what names end with. Default: nothing."""
        self._suffix = suffix
        return self

    def build(self) -> OutputFileConfig:
        """Return the configuration."""
        return OutputFileConfig(self._prefix, self._suffix)


@attrs.frozen
class RollingPolicy:
    """When a file ends and another begins (``pyflink.datastream.connectors.file_system.RollingPolicy``).

    A file ends with its epoch in any case.

    Attributes:
        part_size: so many bytes end it; None for no bound.
    """

    part_size: int | None = attrs.field(default=None)

    @part_size.validator
    def _check_part_size(self, _: object, value: int | None) -> None:
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigurationError(f"RollingPolicy: a part has some bytes, not {value!r}")

    @staticmethod
    def default_rolling_policy(
        part_size: int = 128 * 1024 * 1024,
        rollover_interval: int = 60_000,
        inactivity_interval: int = 60_000,
    ) -> RollingPolicy:
        """End files at ``part_size`` bytes; the intervals say nothing here, as files end with their epoch."""
        return RollingPolicy(part_size)

    @staticmethod
    def on_checkpoint_rolling_policy() -> RollingPolicy:
        """End files with their epoch alone."""
        return RollingPolicy()


@attrs.frozen
class RowFormatWriter:
    """Writes one partition's texts into files of its own."""

    pending_uri: str
    settings: RowFormatSettings
    now_ms: Callable[[], int] = SystemClock().now_ms

    def write(self, partition: int, records: Iterator[str]) -> Iterator[Any]:
        """See :class:`SinkWriter`; yields what each file is called below the base path."""
        file_system, folder = open_file_system(self.pending_uri)
        own_id, count, part = uuid.uuid4(), 0, None
        for text in records:
            line = self.settings.encoded(text)
            if part is not None and part.is_full(len(line), self.settings.rolling_policy.part_size):
                yield part.close()
                part = None
            if part is None:
                name = self.settings.path_of(self.now_ms(), f"{own_id}-{count}")
                part, count = _Part(file_system, folder, name), count + 1
            part.write(line)
        if part is not None:
            yield part.close()


class _Part:
    """One file that is being written."""

    def __init__(self, file_system: fs.FileSystem, folder: str, name: str) -> None:
        self._name = name
        self._path = f"{folder}/{name}"
        self._size = 0
        with sink_errors(f"write {self._path}"):
            file_system.create_dir(self._path.rpartition("/")[0], recursive=True)
            self._stream = file_system.open_output_stream(self._path)

    def is_full(self, more: int, part_size: int | None) -> bool:
        return part_size is not None and self._size + more > part_size

    def write(self, line: bytes) -> None:
        with sink_errors(f"write {self._path}"):
            self._stream.write(line)
        self._size += len(line)

    def close(self) -> str:
        with sink_errors(f"close {self._path}"):
            self._stream.close()
        return self._name


@attrs.frozen
class RowFormatSettings:
    """What a file sink for lines of text was told."""

    encoder: Encoder = attrs.Factory(Encoder)
    bucket_assigner: BucketAssigner = attrs.Factory(BucketAssigner)
    rolling_policy: RollingPolicy = attrs.Factory(RollingPolicy.default_rolling_policy)
    file_config: OutputFileConfig = attrs.Factory(OutputFileConfig)

    def encoded(self, text: str) -> bytes:
        """Return the line of a record; raises ``SinkError`` where the charset has not its letters."""
        with sink_errors("encode a record", lambda: text):
            return f"{text}\n".encode(self.encoder.charset_name)

    def path_of(self, now_ms: int, part: str) -> str:
        """Return the path of a file below the base path."""
        bucket = self.bucket_assigner.bucket_of(now_ms)
        config = self.file_config
        name = f"{config.get_part_prefix()}-{part}{config.get_part_suffix()}"
        return f"{bucket}/{name}" if bucket else name


class RowFormatFileSink:
    """Lines of text in files below a path; made by ``FileSink.for_row_format(...).build()``.

    Args:
        base_path: a path or URI that driver and executors reach, on a file system that can rename.
        settings: names, folders, charset.
    """

    def __init__(self, base_path: str, settings: RowFormatSettings) -> None:
        self._settings = settings
        self._base_uri = absolute(base_path).rstrip("/")
        with sink_errors(f"open {base_path}"):
            self._fs, self._base = open_file_system(self._base_uri)
        if not isinstance(self._fs, (fs.LocalFileSystem, fs.HadoopFileSystem)):
            raise SinkError(
                f"file sink: {base_path}: a file is made visible by renaming it, which {self._fs.type_name} "
                f"storage cannot do; write to a local or HDFS directory"
            )
        self._own = ""
        self._own_uri = ""

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Take over what an earlier run of the job left: commit what is final, delete what is not."""
        self._own = f"{self._base}/{OWN_FOLDER}/{job_id}"
        self._own_uri = f"{self._base_uri}/{OWN_FOLDER}/{job_id}"
        with sink_errors(f"use {self._base_uri}"):
            for folder in ("prepared", "committed"):
                self._fs.create_dir(f"{self._own}/{folder}", recursive=True)
        self.rewind(restored_epoch or 0)
        self.commit(restored_epoch or 0)

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`~pyflinkstate.runtime.sinks.Sink`."""
        return RowFormatWriter(f"{self._own_uri}/pending/epoch={epoch}", self._settings)

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """Write down the epoch's files: just those of the task attempts that Spark counted."""
        if results:
            with sink_errors(f"prepare epoch {epoch}"):
                self._write_list(f"{self._own}/prepared/epoch={epoch}", sorted(results))

    def commit(self, epoch: int) -> None:
        """See :class:`~pyflinkstate.runtime.sinks.Sink`. An interrupted one is carried on by the next."""
        for number in self._epochs("prepared"):
            if number <= epoch:
                with sink_errors(f"commit epoch {number}"):
                    self._commit(number)

    def _commit(self, epoch: int) -> None:
        prepared, pending = f"{self._own}/prepared/epoch={epoch}", f"{self._own}/pending/epoch={epoch}"
        names = self._read_list(prepared)
        self._write_list(f"{self._own}/committed/epoch={epoch}", names)
        for folder in {name.rpartition("/")[0] for name in names}:
            self._fs.create_dir(f"{self._base}/{folder}", recursive=True)
        for name in names:
            if self._is_there(f"{pending}/{name}"):
                self._fs.move(f"{pending}/{name}", f"{self._base}/{name}")
        self._fs.delete_file(prepared)
        self._fs.delete_dir(pending)

    def rewind(self, epoch: int) -> None:
        """See :class:`~pyflinkstate.runtime.sinks.Sink`."""
        with sink_errors(f"rewind to epoch {epoch}"):
            for number in self._epochs("committed"):
                if number > epoch:
                    self._take_back(number)
            for number in self._epochs("prepared"):
                if number > epoch:
                    self._fs.delete_file(f"{self._own}/prepared/epoch={number}")
            kept = set(self._epochs("prepared"))
            for number in self._epochs("pending"):
                if number not in kept:
                    self._fs.delete_dir(f"{self._own}/pending/epoch={number}")

    def _take_back(self, epoch: int) -> None:
        committed = f"{self._own}/committed/epoch={epoch}"
        for name in self._read_list(committed):
            if self._is_there(f"{self._base}/{name}"):
                self._fs.delete_file(f"{self._base}/{name}")
        self._fs.delete_file(committed)

    def _is_there(self, path: str) -> bool:
        return bool(self._fs.get_file_info(path).type != fs.FileType.NotFound)

    def _write_list(self, path: str, names: list[str]) -> None:
        unfinished = f"{self._own}/{uuid.uuid4().hex}"
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(json.dumps(names).encode())
        self._fs.move(unfinished, path)

    def _read_list(self, path: str) -> list[str]:
        with self._fs.open_input_stream(path) as stream:
            names: list[str] = json.loads(stream.read())
        return names

    def _epochs(self, folder: str) -> list[int]:
        infos = self._fs.get_file_info(fs.FileSelector(f"{self._own}/{folder}", allow_not_found=True))
        return sorted(int(match[1]) for info in infos if (match := _EPOCH.fullmatch(info.base_name)))


class RowFormatBuilder:
    """Makes a file sink for lines of text (PyFlink: ``FileSink.RowFormatBuilder``)."""

    def __init__(self, base_path: str, encoder: Encoder) -> None:
        if not isinstance(encoder, Encoder):
            raise ConfigurationError(f"for_row_format() takes an Encoder, not {encoder!r}")
        self._base_path = base_path
        self._settings = RowFormatSettings(encoder)

    def with_bucket_check_interval(self, interval: int) -> RowFormatBuilder:
        """Accept it: files end with their epoch."""
        return self

    def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> RowFormatBuilder:
        """Set which folders files go to. Default: one for each hour of the machine's local time."""
        return self._with(BucketAssigner, "bucket_assigner", bucket_assigner)

    def with_rolling_policy(self, policy: RollingPolicy) -> RowFormatBuilder:
        """Set when files end. Default: ``RollingPolicy.default_rolling_policy()``."""
        return self._with(RollingPolicy, "rolling_policy", policy)

    def with_output_file_config(self, output_file_config: OutputFileConfig) -> RowFormatBuilder:
        """Set how files are named."""
        return self._with(OutputFileConfig, "file_config", output_file_config)

    def _with(self, expected: type, name: str, value: Any) -> RowFormatBuilder:
        if not isinstance(value, expected):
            raise ConfigurationError(f"a {expected.__name__} is needed here, not {value!r}")
        changes: dict[str, Any] = {name: value}
        self._settings = attrs.evolve(self._settings, **changes)
        return self

    def enable_compact(self, strategy: Any, compactor: Any) -> RowFormatBuilder:
        """Refuse: small files are not put together.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError("enable_compact() is not there: set a lower parallelism, or fewer epochs")

    def build(self) -> RowFormatFileSink:
        """Return the sink."""
        return RowFormatFileSink(self._base_path, self._settings)
