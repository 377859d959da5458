"""Sinks whose target takes an epoch's output in one step, together with the number of the epoch.

A database, a topic or a table of files must not show an epoch before the checkpoint that covers it, and what
it has shown it cannot take back. So the output is *staged* while the epoch runs, and a note of what is
staged is durable before the checkpoint completes. The commit *publishes* it: in one transaction of the
target, output and *marker*, the number of the epoch, change together. After a failure the marker says which
epochs are there, and the notes have those that are missing. As in Flink, all output between two checkpoints
is published in one step.

A marker belongs to one sink of one job. It also names the run of the job that has it. So the transaction of
an older driver fails, if that does not know yet that a newer one has begun.

There are two kinds. Tasks stage records, which the driver writes into the target
(:class:`TransactionalSink`), or files of the target itself, which the driver adds to it
(:class:`StagedFilesSink`).
"""

from __future__ import annotations

import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import attrs

from pyflinkstate.api import Record, Reported, Row, RowKind, safe_repr
from pyflinkstate.errors import BadRecordError, ConfigurationError, JobSupersededError, SinkError
from pyflinkstate.runtime.sinks.file_sink import fields_of, fields_of_row
from pyflinkstate.runtime.sinks.sink_files import OutputFile, opened, sink_errors
from pyflinkstate.runtime.sinks.sinks import SinkWriter
from pyflinkstate.runtime.sinks.staging import StagingArea
from pyflinkstate.runtime.storage import AnyPath, RunHistory, absolute, child_uri, newest_run
from pyflinkstate.runtime.wire import decode_values, frames_of

_LENGTH = struct.Struct(">Q")
#: Converts the records of a task.
Convert: TypeAlias = Callable[[Iterator[Record]], Iterator[Any]]
#: What was staged, in lists of a few thousand.
Batches: TypeAlias = Iterable[list[Any]]
#: As many epochs without output may wait for one that has some, to be published with it.
MOST_EMPTY_EPOCHS = 100


class StagedSink(ABC):
    """A sink that publishes what its tasks have staged; see the top of the file.

    A subclass says how tasks stage the records of an epoch (``writer``), what is in the target
    (``committed_epoch``) and how it gets there (``publish``). Readers see each record once, whatever is
    killed when: ``pyflinkstate.testing.check_sink`` tries it.

    What is published is not taken back. A job that goes back behind it ends with ``SinkError``, unless the
    subclass overrides ``take_back``.

    Args:
        name: the name of the sink in its markers and folders. Two sinks of a job need two names. A job that
            changes the name publishes again what it runs again.
        staging: a path or URI that driver and executors reach, where notes and staged files are. Default: a
            folder of the job in its checkpoint directory.

    Attributes:
        job_id: the id of the job, once it is open.
        run: the run of the job that has the sink, once it is open.
        area: where the output is staged, once it is open.
    """

    area: StagingArea
    #: The runs that made the epochs.
    _history: RunHistory

    def __init__(self, name: str, staging: AnyPath | None = None) -> None:
        if not name or not name.replace("-", "").replace("_", "").replace(".", "").isalnum():
            raise ConfigurationError(f"sink: a name has letters, digits, '-', '_' and '.', not {name!r}")
        self.name = name
        self.job_id = ""
        self.run = ""
        self._staging = None if staging is None else absolute(staging)
        self._below: str | None = None
        self._committed = 0

    # --- what a subclass does -----------------------------------------------------------------------

    @abstractmethod
    def writer(self, epoch: int) -> SinkWriter:
        """Return what stages the records of an epoch in the tasks, and yields JSON values for ``publish``."""

    @abstractmethod
    def committed_epoch(self) -> int | None:
        """Return the epoch of the marker, or None if there is no marker of this job and sink.

        From then on the marker belongs to ``self.run``: ``publish`` of an older run must fail.

        Raises:
            JobSupersededError: a newer run has it. :meth:`check_run` raises it.
        """

    @abstractmethod
    def publish(self, epoch: int, staged: list[Reported]) -> None:
        """Add the output of all epochs up to one to the target, and set the marker to it, in one step.

        Args:
            epoch: the number of the last epoch; greater than that of the marker, if there is one.
            staged: what the writers of one run of each task have yielded, epoch after epoch; empty to set the
                marker alone.

        Raises:
            JobSupersededError: the marker belongs to a newer run.
        """

    def take_back(self, epoch: int) -> None:
        """Take later epochs out of the target, and set the marker to ``epoch``, in one step.

        Raises:
            SinkError: the target cannot do that.
        """
        raise self.not_taken_back(epoch, "this sink cannot do that")

    def not_taken_back(self, epoch: int, why: str) -> SinkError:
        """Return the error of ``take_back`` for a target that must stay as it is."""
        return SinkError(
            f"sink {self.name!r}: the job goes back to epoch {epoch}, and its output up to epoch "
            f"{self._committed} is published and cannot be taken back: {why}. Restore the newest checkpoint; "
            f"or remove from the target what came after epoch {epoch}, and give the sink another name",
            sink=self.name,
            epoch=epoch,
        )

    def check_run(self, found: str) -> None:
        """Raise ``JobSupersededError`` if the run in a marker is newer than that of this sink."""
        if newest_run([found, self.run]) != self.run:
            raise JobSupersededError(
                f"sink {self.name!r}: run {found} of job {self.job_id} has taken over from run {self.run}, "
                f"which publishes nothing any more",
                sink=self.name,
                run=self.run,
            )

    # --- Sink ------------------------------------------------------------------------------------------

    @property
    def owned(self) -> tuple[str, ...]:
        """The name, by which markers and staged files are found."""
        return (f"the name {self.name!r}",)

    def stage_below(self, directory: str) -> None:
        """Stage in a folder below ``directory`` unless the sink was given one."""
        self._below = directory

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Open the sink if the job's runs are not known: begin a new run after those that are recorded."""
        run = StagingArea(self._uri(job_id)).next_run()
        self.open_run(job_id, RunHistory(((run, restored_epoch or 0),)), restored_epoch)

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """Publish what the restored checkpoint covers and the target does not have.

        Raises:
            JobSupersededError: a newer run of the job has the sink.
            SinkError: the target has later epochs, its marker was removed, or what is staged was deleted.
        """
        self.job_id, self.run = job_id, history.runs[-1][0]
        self._history = history
        self.area = area = StagingArea(self._uri(job_id))
        area.begin(self.run)
        restored = restored_epoch or 0
        found = self.committed_epoch()
        if found is None:
            found = self._first_marker(restored)
        self._committed = found
        if found > restored:
            self.take_back(restored)
        staged: list[Reported] = []
        for epoch in range(found + 1, restored + 1):
            note = area.note_of(epoch, history)
            if note is None:
                raise SinkError(
                    f"sink {self.name!r}: the checkpoint covers epoch {epoch}, which was not published, and "
                    f"what was staged for it in {area.uri} is gone. Put it back, or use the directory in "
                    f"which the job staged before",
                    sink=self.name,
                    epoch=epoch,
                )
            staged += note
        if found < restored:
            self.publish(restored, staged)
        self._committed = restored
        area.mark()
        self._discard(after=0)
        area.clear(restored)

    def _first_marker(self, restored: int) -> int:
        if self.area.was_marked:
            raise SinkError(
                f"sink {self.name!r}: its marker for job {self.job_id} was removed from the target, so it is "
                f"not known which epochs are there. Put it back; or give the sink another name, if all of "
                f"them are there, up to epoch {restored}",
                sink=self.name,
            )
        self.publish(restored, [])
        return restored

    def _uri(self, job_id: str) -> str:
        if self._staging is not None:
            return child_uri(self._staging, job_id, self.name)
        if self._below is None:
            raise ConfigurationError(
                f"sink {self.name!r}: a job without checkpoints has no directory to stage output in: call "
                f"enable_checkpointing(), or give the sink staging=DIRECTORY",
                sink=self.name,
            )
        return child_uri(self._below, job_id, "sinks", self.name)

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """Write down durably what is staged for an epoch."""
        self.area.check()
        self.area.write_note(epoch, results)

    def commit(self, epoch: int) -> None:
        """Publish all epochs up to one in one step, unless none of them has output.

        A job goes back only to checkpoints, each of which has been committed. So nothing needs the epochs
        between two of them one by one.
        """
        self.area.check()
        notes = {number: note for number, note in self.area.notes().items() if number <= epoch}
        staged = [reported for note in notes.values() for reported in note]
        if staged or len(notes) >= MOST_EMPTY_EPOCHS:
            self._publish(max(notes), staged)
            for number in notes:
                self.area.drop(number)
            self.area.clear(self._committed)

    def _publish(self, epoch: int, staged: list[Reported]) -> None:
        found = self.committed_epoch()
        if found not in (self._committed, epoch):
            raise SinkError(
                f"sink {self.name!r}: its marker in the target was at epoch {self._committed}, and is "
                f"{'gone' if found is None else f'at {found}'}: another program has changed it. Start the "
                f"job again when nothing else changes it",
                sink=self.name,
                epoch=epoch,
            )
        if found != epoch:
            self.publish(epoch, staged)
        self._committed = epoch

    def rewind(self, epoch: int) -> None:
        """Discard what was staged after an epoch, and take back what was published."""
        self.area.check()
        self._discard(after=epoch)
        if self._committed > epoch:
            self.take_back(epoch)
            self._committed = epoch

    def _discard(self, after: int) -> None:
        for epoch in self.area.begun_epochs():
            if epoch > after:
                self.area.drop(epoch)


class TransactionalSink(StagedSink):
    """A sink into something that has transactions: the driver writes an epoch's records in one of them.

    Tasks stage the records in files. At the commit the driver reads them, and calls ``write``, which a
    subclass implements together with ``committed_epoch``. Arguments are those of :class:`StagedSink`.
    """

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return RecordWriter(self.area.folder_of(epoch), self.converter())

    def converter(self) -> Convert:
        """Return a function, which is pickled, that converts a task's records before they are staged.

        What is staged is covered by a checkpoint soon after, so a record that cannot be written is to be
        refused here. Default: records are staged as they are.
        """
        return iter

    def publish(self, epoch: int, staged: list[Reported]) -> None:
        """See :class:`StagedSink`."""
        files = (child_uri(self.area.uri, str(name)) for name in staged)
        self.write(epoch, (batch for uri in files for batch in _read(uri)))

    @abstractmethod
    def write(self, epoch: int, batches: Batches) -> None:
        """Write the records of all epochs up to one, and set the marker to it, in one transaction.

        Args:
            epoch: the number of the last epoch, for the marker.
            batches: what was staged since the marker, in lists of a few thousand: epoch after epoch, and the
                records of a partition in their order.

        Raises:
            JobSupersededError: the marker belongs to a newer run.
        """


@attrs.frozen
class RowConverter:
    """Makes rows of dicts, tuples, lists and ``Row``s.

    With a key it makes changes: rows with one more value, whether the row of that key is deleted. Then a
    ``Row`` of kind ``UPDATE_BEFORE`` is left out, as the row that follows it replaces the old one.

    Attributes:
        sink: the name of the sink, for errors.
        columns: the columns of the table, in the order of a row's values.
        key: the columns by which rows replace each other; empty if rows are appended.
    """

    sink: str
    columns: tuple[str, ...]
    key: tuple[str, ...] = ()

    def __call__(self, records: Iterator[Record]) -> Iterator[list[Any]]:
        """Yield the rows.

        Raises:
            BadRecordError: a record has other fields, or None in its key, or deletes a row without a key.
        """
        for record in records:
            try:
                if not self.key:
                    yield fields_of(record, self.columns)
                elif not isinstance(record, Row):
                    yield self._change(record, RowKind.INSERT)
                elif (kind := record.get_row_kind()) is not RowKind.UPDATE_BEFORE:
                    yield self._change(fields_of_row(record, self.columns), kind)
            except (TypeError, ValueError) as error:
                raise BadRecordError(
                    f"sink {self.sink!r}: {error}; record {safe_repr(record)}", record=safe_repr(record)
                ) from error

    def _change(self, record: Record, kind: RowKind) -> list[Any]:
        row = fields_of(record, self.columns)
        for name in self.key:
            if row[self.columns.index(name)] is None:
                raise ValueError(f"its key {name!r} is None")
        return [*row, kind is RowKind.DELETE]


@attrs.frozen
class RecordWriter:
    """Stages the records of a partition in a file of frames."""

    folder_uri: str
    convert: Convert

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`; yields the name of the file, or nothing if there are no records."""
        frames = frames_of(self.convert(records), "sink")
        frame = next(frames, None)
        if frame is None:
            return
        file_system, folder = opened(self.folder_uri, None)
        name = f"part-{partition:05d}-{uuid.uuid4().hex}"
        with ExitStack() as cleared:
            file = OutputFile(file_system, f"{folder}/{name}")
            cleared.callback(file.abandon)
            while frame is not None:
                with sink_errors(f"write {file.path}"):
                    file.stream.write(_LENGTH.pack(len(frame)) + frame)
                frame = next(frames, None)
            file.close()
            cleared.pop_all()
        yield "/".join([*folder.rsplit("/", 2)[1:], name])


def _read(uri: str) -> Iterator[list[Record]]:
    """Yield the records of a staged file."""
    file_system, path = opened(uri, None)
    with sink_errors(f"read {path}"), file_system.open_input_stream(path) as stream:
        while head := stream.read(_LENGTH.size):
            frame = stream.read(_LENGTH.unpack(head)[0])
            yield list(decode_values(frame))
