"""Files of several epochs, joined into one, and when that is done.

A joined folder has a file ``_epochs.json`` beside its data: the first epoch, and for each file its length
after each of its epochs, in bytes for lines and in rows for Parquet. So the first epochs of a folder can be
copied, if a job goes back to a checkpoint in the middle of them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import positive
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.sinks.sink_files import OutputFile, sink_errors
from pyflinkstate.runtime.storage import flush_folder, read_note

EPOCHS_NOTE = "_epochs.json"
#: Output of this size is not held back, and an epoch of this size is not joined.
MOST_JOINED_BYTES = 128 << 20


def _number(value: int) -> int:
    return positive("FileCompactStrategy: a number", value)


@attrs.frozen
class FileCompactStrategy:
    """When small files are joined (``pyflink.datastream.connectors.file_system.FileCompactStrategy``).

    As in Flink, output is held back until it is joined, so readers see it later. A strategy is its own
    builder.

    Attributes:
        num_checkpoints: the number of commits after which output is joined and shown; None if only its size
            counts.
        size_threshold: the number of bytes after which it is; an epoch of this size is shown as it is. None
            for 128 MiB.
        num_compact_threads: accepted for compatibility; the driver joins files in one thread.
        delay_ms: for how long output is held back, in ms; None if only size and number count.
    """

    num_checkpoints: int | None = attrs.field(default=None, converter=attrs.converters.optional(_number))
    size_threshold: int | None = attrs.field(default=None, converter=attrs.converters.optional(_number))
    num_compact_threads: int | None = attrs.field(default=None, converter=attrs.converters.optional(_number))
    delay_ms: int | None = attrs.field(default=None, converter=attrs.converters.optional(_number))

    @staticmethod
    def builder() -> FileCompactStrategy:
        """Return a strategy without a bound, whose methods return others."""
        return FileCompactStrategy()

    def enable_compaction_on_checkpoint(self, num_checkpoints_before_compaction: int) -> FileCompactStrategy:
        """Join what this number of checkpoints has committed."""
        return attrs.evolve(self, num_checkpoints=num_checkpoints_before_compaction)

    def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy:
        """Join output as soon as it has this number of bytes. Default: 128 MiB."""
        return attrs.evolve(self, size_threshold=size_threshold)

    def set_delay(self, delay_ms: int) -> FileCompactStrategy:
        """Join output when the first of it has been held back for this time, in ms.

        It is checked at each commit, and while the source has nothing.
        """
        return attrs.evolve(self, delay_ms=delay_ms)

    def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy:
        """Set the number of threads, which has no effect here."""
        return attrs.evolve(self, num_compact_threads=num_compact_threads)

    def build(self) -> FileCompactStrategy:
        """Return the strategy.

        Raises:
            ConfigurationError: neither a size, a number of checkpoints nor a delay was set.
        """
        if self.num_checkpoints is self.size_threshold is self.delay_ms is None:
            raise ConfigurationError(
                "FileCompactStrategy: set enable_compaction_on_checkpoint(), set_size_threshold() or "
                "set_delay()"
            )
        return self

    def is_large(self, size_bytes: int) -> bool:
        """Return whether this is the size of a file that needs no joining."""
        return size_bytes >= (self.size_threshold or MOST_JOINED_BYTES)

    def is_due(self, commits: int, size_bytes: int, held_ms: int) -> bool:
        """Return whether output of some commits, the first of which was ``held_ms`` ago, is joined now."""
        is_late = commits >= (self.num_checkpoints or math.inf) or held_ms >= (self.delay_ms or math.inf)
        return is_late or self.is_large(size_bytes)


@attrs.frozen
class _Part:
    """A part of a file, which holds records of one epoch; ``end`` is None for all that is left."""

    epoch: int
    path: str
    begin: int = 0
    end: int | None = None


@attrs.frozen
class FileJoiner:
    """Joins the files of epochs.

    Attributes:
        file_system: where they are.
        suffix: how their names end.
        header_bytes: the length of the header that each has; None for Parquet files.
    """

    file_system: fs.FileSystem
    suffix: str
    header_bytes: int | None

    def join(self, epochs: Sequence[tuple[int, str]], target: str) -> None:
        """Write the files of epochs, given with their folders, into an existing folder, durably.

        There is one file for each schema.
        """
        of_schemas: dict[pa.Schema | None, list[_Part]] = {}
        for epoch, folder in epochs:
            for info in self.files_in(folder):
                parts = of_schemas.setdefault(self._schema_of(info.path), [])
                parts.append(_Part(epoch, info.path, (self.header_bytes or 0) if parts else 0))
        named = {f"part-joined-{n:05d}{self.suffix}": parts for n, parts in enumerate(of_schemas.values())}
        self._write(epochs[0][0], epochs[-1][0], named, target)

    def _schema_of(self, path: str) -> pa.Schema | None:
        return pq.read_schema(path, filesystem=self.file_system) if self.header_bytes is None else None

    def files_in(self, folder: str) -> list[fs.FileInfo]:
        """Return the files in the folder of an epoch, in the order of their names."""
        infos = self.file_system.get_file_info(fs.FileSelector(folder))
        files = (info for info in infos if not info.base_name.startswith("_"))
        return sorted(files, key=lambda info: str(info.path))

    def copy_head(self, folder: str, last: int, target: str) -> None:
        """Copy the epochs of a joined folder up to one into an existing folder, durably."""
        first, files = self.note_in(last, folder)
        named: dict[str, list[_Part]] = {}
        for name, lengths in files.items():
            begins = [0, *(length for _, length in lengths)]
            for begin, (epoch, end) in zip(begins, lengths, strict=False):
                if epoch <= last:
                    named.setdefault(name, []).append(_Part(epoch, f"{folder}/{name}", begin, end))
        self._write(first, last, named, target)

    def _write(self, first: int, last: int, named: dict[str, list[_Part]], target: str) -> None:
        write = self._write_lines if self.header_bytes is not None else self._write_columns
        lengths: dict[str, list[tuple[int, int]]] = {}
        for name, parts in named.items():
            file = OutputFile(self.file_system, f"{target}/{name}")
            lengths[name] = write(file, parts)
            file.close()
        if first < last:
            note = OutputFile(self.file_system, f"{target}/{EPOCHS_NOTE}")
            note.stream.write(json.dumps([first, [*lengths.items()]]).encode())
            note.close()
        flush_folder(self.file_system, target)

    def _write_lines(self, file: OutputFile, parts: list[_Part]) -> list[tuple[int, int]]:
        """Write parts of files of lines; return the length after each, with its epoch."""
        lengths = []
        for part in parts:
            with self.file_system.open_input_file(part.path) as source:
                end = source.size() if part.end is None else part.end
                file.stream.write(source.read_at(end - part.begin, part.begin))
            lengths.append((part.epoch, int(file.stream.tell())))
        return lengths

    def _write_columns(self, file: OutputFile, parts: list[_Part]) -> list[tuple[int, int]]:
        """Write parts of Parquet files; return the rows after each, with its epoch."""
        lengths: list[tuple[int, int]] = []
        read: dict[str, pa.Table] = {}
        tables = []
        for part in parts:
            if part.path not in read:
                read = {part.path: pq.read_table(part.path, filesystem=self.file_system, partitioning=None)}
            length = None if part.end is None else part.end - part.begin
            tables.append(read[part.path].slice(part.begin, length))
            lengths.append((part.epoch, sum(table.num_rows for table in tables)))
        pq.write_table(pa.concat_tables(tables), file.stream)
        return lengths

    def note_in(self, epoch: int, folder: str) -> tuple[int, dict[str, list[tuple[int, int]]]]:
        """Return the first of the epochs in a folder, whose last one is ``epoch``, and what each file has."""
        path = f"{folder}/{EPOCHS_NOTE}"
        if self.file_system.get_file_info(path).type == fs.FileType.NotFound:
            return epoch, {}
        with sink_errors(f"use {path}, which says which epochs are in its folder"):
            first, files = json.loads(read_note(self.file_system, path))
            return int(first), {str(name): [(int(n), int(end)) for n, end in ends] for name, ends in files}
