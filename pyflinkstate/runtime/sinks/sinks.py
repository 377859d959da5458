"""Sinks: where records go, and when they count.

A sink has two halves. Its *writer* runs in Spark tasks and hands results to the driver. The sink itself
lives in the driver and sees epochs: one is *prepared* when its Spark job has ended, and *committed* when
a checkpoint that covers it is complete (Flink: two-phase commit). After a failure the job goes back to a
checkpoint and the sink *rewinds* with it, so a replayed epoch takes the place of its first run, and no
reader sees half of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import attrs

from pyflinkstate.api.values import Record, Reported, SparkObject
from pyflinkstate.errors import ConfigurationError, PyFlinkStateError
from pyflinkstate.runtime.storage import RunHistory
from pyflinkstate.runtime.wire import decode_values, frames_of, user_failure


class SinkWriter(Protocol):
    """The half of a sink that runs in tasks; it is pickled."""

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """Take one partition's records and yield what the sink's ``prepare`` shall get."""


@runtime_checkable
class Sink(Protocol):
    """The half of a sink that runs in the driver."""

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Begin: nothing was restored (None), or epochs up to ``restored_epoch`` are final."""

    def writer(self, epoch: int) -> SinkWriter:
        """Return the writer for an epoch's tasks."""

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """The epoch's job has ended; ``results`` is what its writers yielded, one run of each."""

    def commit(self, epoch: int) -> None:
        """Epochs up to ``epoch`` are final."""

    def rewind(self, epoch: int) -> None:
        """Epochs after ``epoch`` will be run again."""


@runtime_checkable
class RunAwareSink(Sink, Protocol):
    """A sink that knows which run made which epoch, so that it can go back to any of them."""

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
        """Begin, in the place of ``open``.

        Args:
            job_id: of the job.
            history: which run made which epoch; its last run is the one that begins.
            restored_epoch: epochs up to it, as ``history`` has them, are final; None: nothing was restored.
        """


def open_sink(sink: Sink, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
    """Begin to use a sink in the run that ``history`` ends with."""
    if isinstance(sink, RunAwareSink):
        sink.open_run(job_id, history, restored_epoch)
    else:
        sink.open(job_id, restored_epoch)


class SeveralStreams:
    """A sink that may be given to several streams, and may share its folder with others."""


@runtime_checkable
class FolderSink(Protocol):
    """A sink that needs a folder for itself."""

    @property
    def owned_folder(self) -> str:
        """The folder, under the one name that it has however its path was written."""


def check_sinks(sinks: Iterable[tuple[str, Sink]]) -> None:
    """Check that no two sinks of a job, which have names, would overwrite each other's output.

    Raises:
        ConfigurationError: one object is the sink of two streams, or two sinks have one folder.
    """
    objects: set[int] = set()
    folders: set[str] = set()
    for name, sink in sinks:
        if id(sink) in objects and not isinstance(sink, SeveralStreams):
            raise ConfigurationError(
                f"sink {name!r}: one object is the sink of two streams, and one's output would replace the "
                f"other's: make a sink for each stream, or unite the streams by union()",
                sink=name,
            )
        objects.add(id(sink))
        folder = sink.owned_folder if isinstance(sink, FolderSink) else None
        if folder in folders:
            raise ConfigurationError(
                f"sink {name!r}: another sink of the job writes to {folder} too: give each a directory of "
                f"its own, or unite the streams by union()",
                sink=name,
                directory=folder,
            )
        folders |= set() if folder is None else {folder}


# --- results in the driver -----------------------------------------------------------------------


@attrs.frozen
class FrameWriter:
    """Sends records to the driver, in frames, with the partition they came from."""

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`."""
        for frame in frames_of(records, "sink"):
            yield partition, frame


class DriverSink:
    """Gives committed records to ``consume(partition, values)`` in the driver, in the order of epochs."""

    def __init__(self, consume: Callable[[int, Iterable[Record]], None]) -> None:
        self._consume = consume
        self._prepared: dict[int, list[Record]] = {}

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Reported]) -> None:
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


class KeptRddSink:
    """Gets each epoch's output as an RDD of frames that is kept on the cluster.

    It is computed once, however many actions run on it; ``runtime.spark`` sees to that.
    """


class ForeachEpochSink(KeptRddSink):
    """Calls ``write(frames, epoch)`` for each epoch, before the epoch's checkpoint.

    After a failure an epoch comes again, with the same number; what was written before is to be replaced.
    """

    def __init__(self, write: Callable[[SparkObject, int], None]) -> None:
        self._write = write

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`Sink`."""
        frames: SparkObject
        (frames,) = results
        try:
            self._write(frames, epoch)
        except PyFlinkStateError:
            raise
        except Exception as error:
            raise user_failure(error, "foreach_epoch", f"none: epoch {epoch}") from error
        finally:
            frames.unpersist()

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""


class RddSink(KeptRddSink):
    """Keeps each epoch's output on the cluster, as an RDD of frames; ``committed`` are the final ones."""

    def __init__(self) -> None:
        self.committed: list[SparkObject] = []
        self._prepared: dict[int, SparkObject] = {}

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Reported]) -> None:
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
