"""Files of several epochs, joined into one, and when that is done.

A joined folder has a file ``_epochs.json`` beside its data: the first epoch, and for each file its length
after each of its epochs, in bytes for lines and in rows for Parquet. So the first epochs of a folder can be
copied, if a job goes back to a checkpoint in the middle of them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable

import attrs
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from pyflinkstate.api import ArrowObject, positive
from pyflinkstate.errors import ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.run_area import base_name
from pyflinkstate.runtime.sinks.sink_files import OutputFile
from pyflinkstate.runtime.storage import flush_folder, read_note

EPOCHS_NOTE = "_epochs.json"
#: Bytes of lines that are copied at a time.
_COPIED_BYTES = 1 << 20
#: Rows that are collected before they are written as one row group.
_GROUP_ROWS = 1 << 17


@attrs.frozen
class FileCompactStrategy:
    """When small files are joined (``pyflink.datastream.connectors.file_system.FileCompactStrategy``).

    As in Flink, output is held back until it is joined, so readers see it later.

    Attributes:
        num_checkpoints: the number of commits after which output is joined and shown; None if only its size
            counts.
        size_threshold: the number of bytes after which it is; None if only commits count.
        num_compact_threads: accepted for compatibility; the driver joins files in one thread.
    """

    num_checkpoints: int | None = None
    size_threshold: int | None = None
    num_compact_threads: int = 1

    @staticmethod
    def builder() -> FileCompactStrategy.Builder:
        """Return a builder of strategies."""
        return FileCompactStrategy.Builder()

    def is_due(self, commits: int, size_bytes: int) -> bool:
        """Return whether output that has been held back for a number of commits is joined now."""
        is_old = self.num_checkpoints is not None and commits >= self.num_checkpoints
        return is_old or (self.size_threshold is not None and size_bytes >= self.size_threshold)

    class Builder:
        """Makes a :class:`FileCompactStrategy`."""

        def __init__(self) -> None:
            self._made = FileCompactStrategy()

        def enable_compaction_on_checkpoint(
            self, num_checkpoints_before_compaction: int
        ) -> FileCompactStrategy.Builder:
            """Join what this number of checkpoints has committed."""
            number = positive("enable_compaction_on_checkpoint()", num_checkpoints_before_compaction)
            self._made = attrs.evolve(self._made, num_checkpoints=number)
            return self

        def set_size_threshold(self, size_threshold: int) -> FileCompactStrategy.Builder:
            """Join output as soon as it has this number of bytes."""
            size_bytes = positive("set_size_threshold()", size_threshold)
            self._made = attrs.evolve(self._made, size_threshold=size_bytes)
            return self

        def set_num_compact_threads(self, num_compact_threads: int) -> FileCompactStrategy.Builder:
            """Set the number of threads, which has no effect here."""
            threads = positive("set_num_compact_threads()", num_compact_threads)
            self._made = attrs.evolve(self._made, num_compact_threads=threads)
            return self

        def build(self) -> FileCompactStrategy:
            """Return the strategy.

            Raises:
                ConfigurationError: neither a size nor a number of checkpoints was set.
            """
            if self._made.num_checkpoints is None and self._made.size_threshold is None:
                raise ConfigurationError(
                    "FileCompactStrategy: set enable_compaction_on_checkpoint(), set_size_threshold() or both"
                )
            return self._made


class _JoinedFile(ABC):
    """A file to which others of its kind are appended."""

    def __init__(self, file: OutputFile) -> None:
        self.file = file
        #: How long it is, in bytes or rows.
        self.size = 0

    @abstractmethod
    def append(self, source: ArrowObject, most: int | None) -> None:
        """Append the content of an open file, up to a size in bytes or rows."""

    def close(self) -> None:
        """Finish the file."""
        self.file.close()


class _JoinedLines(_JoinedFile):
    """A file of lines, of which only the first has a header."""

    def __init__(self, file: OutputFile, header_bytes: int) -> None:
        super().__init__(file)
        self._header_bytes = header_bytes

    def append(self, source: ArrowObject, most: int | None) -> None:
        begin = self._header_bytes if self.size else 0
        end = source.size() if most is None else most
        while begin < end and (data := source.read_at(min(_COPIED_BYTES, end - begin), begin)):
            self.file.stream.write(data)
            begin += len(data)
            self.size += len(data)


class _JoinedColumns(_JoinedFile):
    """A Parquet file."""

    def __init__(self, file: OutputFile, schema: pa.Schema) -> None:
        super().__init__(file)
        self._writer = pq.ParquetWriter(file.stream, schema)
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def append(self, source: ArrowObject, most: int | None) -> None:
        for batch in pq.ParquetFile(source).iter_batches():
            taken = batch if most is None else batch.slice(0, most - self.size)
            self._batches.append(taken)
            self._rows += taken.num_rows
            self.size += taken.num_rows
            if self._rows >= _GROUP_ROWS:
                self._write()

    def _write(self) -> None:
        self._writer.write_table(pa.Table.from_batches(self._batches, self._writer.schema))
        self._batches, self._rows = [], 0

    def close(self) -> None:
        self._write()
        self._writer.close()
        super().close()


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
    header_bytes: int | None = 0

    def join(self, epochs: Iterable[tuple[int, str]], target: str) -> None:
        """Write the files of epochs, given with their folders, into an existing folder, durably.

        There is one file for each schema.
        """
        joined: dict[pa.Schema | None, _JoinedFile] = {}
        sizes: dict[str, list[tuple[int, int]]] = {}
        first = None
        for epoch, folder in epochs:
            first = epoch if first is None else first
            for name in self.names_in(folder):
                kind = self._append(joined, f"{folder}/{name}", target)
                own = joined[kind]
                sizes.setdefault(base_name(own.file.path), []).append((epoch, own.size))
        for file in joined.values():
            file.close()
        self._write_note(target, first, sizes)

    def names_in(self, folder: str) -> list[str]:
        """Return the names of the files in the folder of an epoch, in order."""
        infos = self.file_system.get_file_info(fs.FileSelector(folder))
        return sorted(info.base_name for info in infos if not info.base_name.startswith("_"))

    def _append(
        self,
        joined: dict[pa.Schema | None, _JoinedFile],
        path: str,
        target: str,
        most: int | None = None,
    ) -> pa.Schema | None:
        """Append a file to that of its schema, which is begun if it does not exist; return the schema."""
        with self.file_system.open_input_file(path) as source:
            schema = None if self.header_bytes is not None else pq.read_schema(source)
            if schema not in joined:
                name = f"part-joined-{len(joined):05d}{self.suffix}" if most is None else base_name(path)
                file = OutputFile(self.file_system, f"{target}/{name}")
                joined[schema] = (
                    _JoinedColumns(file, schema)
                    if self.header_bytes is None
                    else _JoinedLines(file, self.header_bytes)
                )
            joined[schema].append(source, most)
        return schema

    def first_of(self, epoch: int, folder: str) -> int:
        """Return the first of the epochs in a folder, of which ``epoch`` is the last."""
        first, _ = self._note(epoch, folder)
        return first

    def copy_head(self, folder: str, last: int, target: str) -> None:
        """Copy the epochs of a joined folder up to one into an existing folder, durably."""
        first, sizes = self._note(last, folder)
        kept = {name: [one for one in of_file if one[0] <= last] for name, of_file in sizes.items()}
        for name, of_file in kept.items():
            if of_file:
                joined: dict[pa.Schema | None, _JoinedFile] = {}
                joined[self._append(joined, f"{folder}/{name}", target, of_file[-1][1])].close()
        self._write_note(target, first, {name: of_file for name, of_file in kept.items() if of_file})

    def _write_note(self, folder: str, first: int | None, sizes: dict[str, list[tuple[int, int]]]) -> None:
        note = OutputFile(self.file_system, f"{folder}/{EPOCHS_NOTE}")
        note.stream.write(json.dumps({"first": first, "files": sizes}, separators=(",", ":")).encode())
        note.close()
        flush_folder(self.file_system, folder)

    def _note(self, epoch: int, folder: str) -> tuple[int, dict[str, list[tuple[int, int]]]]:
        path = f"{folder}/{EPOCHS_NOTE}"
        if self.file_system.get_file_info(path).type == fs.FileType.NotFound:
            return epoch, {}
        data = read_note(self.file_system, path)
        try:
            said = json.loads(data)
            files = {
                str(name): [(int(n), int(size)) for n, size in sizes] for name, sizes in said["files"].items()
            }
            return int(said["first"]), files
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SinkError(
                f"file sink: {path} is damaged, and only this file says which epochs are in its folder: "
                f"{error}; restore the newest checkpoint, or choose an empty directory",
                file=path,
            ) from error
