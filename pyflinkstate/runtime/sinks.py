"""Sinks: where records go, and when they count.

A sink has two halves. Its *writer* runs in Spark tasks and hands results to the driver. The sink itself
lives in the driver and sees epochs: one is *prepared* when its Spark job has ended, and *committed* when
a checkpoint that covers it is complete (Flink: two-phase commit). After a failure the job goes back to a
checkpoint and the sink *rewinds* with it, so a replayed epoch takes the place of its first run, and no
reader sees half of one.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Protocol

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.errors import BadRecordError, PyFlinkStateError, SinkError
from pyflinkstate.runtime.failures import shorten
from pyflinkstate.runtime.frames import RECORDS_PER_FRAME, decode_values, encode_values
from pyflinkstate.runtime.storage import absolute, open_file_system


class SinkWriter(Protocol):
    """The half of a sink that runs in tasks; it is pickled."""

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[Any]:
        """Take one partition's records and yield what the sink's ``prepare`` shall get."""


class Sink(Protocol):
    """The half of a sink that runs in the driver."""

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Begin: nothing was restored (None), or epochs up to ``restored_epoch`` are final."""

    def writer(self, epoch: int) -> SinkWriter:
        """Return the writer for an epoch's tasks."""

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """The epoch's job has ended; ``results`` is what its writers yielded, one run of each."""

    def commit(self, epoch: int) -> None:
        """Epochs up to ``epoch`` are final."""

    def rewind(self, epoch: int) -> None:
        """Epochs after ``epoch`` will be run again."""


# --- results in the driver -----------------------------------------------------------------------


@attrs.frozen
class FrameWriter:
    """Sends records to the driver, in frames, with the partition they came from."""

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[Any]:
        """See :class:`SinkWriter`."""
        while batch := list(islice(records, RECORDS_PER_FRAME)):
            yield partition, encode_values(batch)


class DriverSink:
    """Gives committed records to ``consume(partition, values)`` in the driver, in the order of epochs."""

    def __init__(self, consume: Callable[[int, Iterable[Any]], None]) -> None:
        self._consume = consume
        self._prepared: dict[int, list[Any]] = {}

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """See :class:`Sink`."""
        self._prepared[epoch] = results

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""
        for number in sorted(number for number in self._prepared if number <= epoch):
            for partition, frame in self._prepared.pop(number):
                self._consume(partition, decode_values(frame))

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""
        self._prepared = {n: results for n, results in self._prepared.items() if n <= epoch}


class RddSink:
    """Keeps each epoch's output on the cluster, as an RDD of frames; ``committed`` are the final ones."""

    def __init__(self) -> None:
        self.committed: list[Any] = []
        self._prepared: dict[int, Any] = {}

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """See :class:`Sink`."""
        (self._prepared[epoch],) = results

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""
        for number in sorted(number for number in self._prepared if number <= epoch):
            self.committed.append(self._prepared.pop(number))

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""
        for number in [number for number in self._prepared if number > epoch]:
            self._prepared.pop(number).unpersist()


# --- files ---------------------------------------------------------------------------------------

MARKER = "_pyflinkstate.json"
_EPOCH_FOLDER = re.compile(r"epoch=(\d+)")


@contextmanager
def _sink_errors(what: str) -> Iterator[None]:
    try:
        yield
    except PyFlinkStateError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise SinkError(f"file sink: cannot {what}: {error}", what=what) from error


def _encode_json(record: Any) -> str:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


_ENCODERS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "json": (".jsonl", _encode_json),
    "text": (".txt", str),
}


#: Tells "no record" from a record that is None.
_NONE = object()


@attrs.frozen
class LineWriter:
    """Writes one line for each record into a file of its own."""

    folder_uri: str
    format: str

    def write(self, partition: int, records: Iterator[Any]) -> Iterator[Any]:
        """See :class:`SinkWriter`; yields the file's name, or nothing for no records."""
        first = next(records, _NONE)
        if first is _NONE:
            return
        suffix, encode = _ENCODERS[self.format]
        name = f"part-{partition:05d}-{uuid.uuid4().hex}{suffix}"
        file_system, folder = open_file_system(self.folder_uri)
        path = f"{folder}/{name}"
        with _sink_errors(f"write {path}"):
            file_system.create_dir(folder, recursive=True)
            stream = file_system.open_output_stream(path)
        # What goes wrong in getting the next record is not the sink's fault, so only writes are guarded.
        for record in chain((first,), records):
            line = _line(encode, record)
            with _sink_errors(f"write {path}"):
                stream.write(line)
        with _sink_errors(f"close {path}"):
            stream.close()
        yield name


def _line(encode: Callable[[Any], str], record: Any) -> bytes:
    try:
        return (encode(record) + "\n").encode()
    except (TypeError, ValueError) as error:
        raise BadRecordError(f"file sink: cannot write record {shorten(record)}: {error}") from error


class FileSink:
    """Files below a directory, ``epoch=<n>/part-*``, each epoch visible at once or not at all.

    Spark reads the directory as a table partitioned by ``epoch``; ``_pending`` and ``_prepared`` are
    skipped by it, as all names with an underscore are.

    Args:
        directory: a path or URI that every executor reaches.
        format: ``"json"`` (one JSON value on each line) or ``"text"`` (``str`` of each record; a line
            end in it stands as it is).
    """

    def __init__(self, directory: str, format: str = "json") -> None:
        if format not in _ENCODERS:
            raise SinkError(f"file sink: no format {format!r}; choose one of {', '.join(_ENCODERS)}")
        self.directory = absolute(directory).rstrip("/")
        self._format = format
        with _sink_errors(f"open {directory}"):
            self._fs, self._root = open_file_system(self.directory)
        if not isinstance(self._fs, (fs.LocalFileSystem, fs.HadoopFileSystem)):
            raise SinkError(
                f"file sink: {directory}: an epoch is made visible by renaming a folder, which "
                f"{self._fs.type_name} storage cannot do; write to a local or HDFS directory"
            )

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Take the directory for this job.

        Raises:
            SinkError: it holds the output of another run, which would be mixed with this one's.
        """
        with _sink_errors(f"use {self.directory}"):
            self._fs.create_dir(self._root, recursive=True)
            owner = self._owner()
            if self._epochs("") and (owner != job_id or restored_epoch is None):
                raise SinkError(
                    f"file sink: {self.directory} holds output of another run (job {owner}): give an "
                    f"empty directory, or restore that run's checkpoint",
                    directory=self.directory,
                )
            self._set_owner(job_id)
            keep = restored_epoch if restored_epoch is not None and owner == job_id else 0
            self.rewind(keep)
            self.commit(keep)

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return LineWriter(f"{self.directory}/_pending/epoch={epoch}", self._format)

    def prepare(self, epoch: int, results: list[Any]) -> None:
        """Set the epoch aside: just the files of those task attempts that Spark counted."""
        pending = f"{self._root}/_pending/epoch={epoch}"
        with _sink_errors(f"prepare epoch {epoch}"):
            if not results:
                return
            prepared = f"{self._root}/_prepared/epoch={epoch}"
            self._fs.create_dir(prepared, recursive=True)
            for name in results:
                self._fs.move(f"{pending}/{name}", f"{prepared}/{name}")
            self._fs.delete_dir(pending)

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`. A commit that was interrupted is carried on by the next."""
        with _sink_errors(f"commit epoch {epoch}"):
            for number in self._epochs("/_prepared"):
                if number <= epoch:
                    name = f"epoch={number}"
                    self._fs.move(f"{self._root}/_prepared/{name}", f"{self._root}/{name}")

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""
        with _sink_errors(f"rewind to epoch {epoch}"):
            for folder in ("/_pending", "/_prepared", ""):
                for number in self._epochs(folder):
                    if number > epoch or folder == "/_pending":
                        self._fs.delete_dir(f"{self._root}{folder}/epoch={number}")

    def _set_owner(self, job_id: str) -> None:
        unfinished = f"{self._root}/{MARKER}.{uuid.uuid4().hex}"
        with self._fs.open_output_stream(unfinished) as stream:
            stream.write(json.dumps({"job_id": job_id}).encode())
        self._fs.move(unfinished, f"{self._root}/{MARKER}")

    def _owner(self) -> str | None:
        if self._fs.get_file_info(f"{self._root}/{MARKER}").type == fs.FileType.NotFound:
            return None
        with self._fs.open_input_stream(f"{self._root}/{MARKER}") as stream:
            owner: str = json.loads(stream.read())["job_id"]
        return owner

    def _epochs(self, folder: str) -> list[int]:
        infos = self._fs.get_file_info(fs.FileSelector(self._root + folder, allow_not_found=True))
        return sorted(int(match[1]) for info in infos if (match := _EPOCH_FOLDER.fullmatch(info.base_name)))
