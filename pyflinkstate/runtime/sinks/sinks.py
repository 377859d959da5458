"""Sinks: where records go, and when their output is final.

A sink has two halves. Its *writer* runs in Spark tasks and passes results to the driver. The sink itself
lives in the driver and handles epochs: an epoch is *prepared* when its Spark job has ended, and *committed*
when a checkpoint that covers it is complete (Flink: two-phase commit). After a failure the job goes back to a
checkpoint and the sink *rewinds* with it, so that a replayed epoch replaces its first run and no reader sees
half of an epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeAlias, runtime_checkable

import attrs

from pyflinkstate.api import (
    PickledBytesTypeInfo,
    Record,
    Reduced,
    Reported,
    SparkObject,
    TypeInformation,
    safe_repr,
)
from pyflinkstate.backends.types import text_of_type
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    PyFlinkStateError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.runtime.storage import RunHistory
from pyflinkstate.runtime.wire import NoRecord, decode_values, errors_as, frames_of, user_failure


class DeliveryGuarantee(enum.Enum):
    """How often readers of a sink see a record after failures."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class SinkWriter(Protocol):
    """The half of a sink that runs in tasks; it is pickled."""

    def write(self, partition: int, records: Iterator[Any], /) -> Iterator[Reported]:
        """Write one partition's records and yield the results for the sink's ``prepare``."""


@runtime_checkable
class Sink(Protocol):
    """The half of a sink that runs in the driver.

    ``docs/checkpoints.md`` shows the order of the calls, and an example.
    """

    def open(self, job_id: str, restored_epoch: int | None, /) -> None:
        """Open the sink. Epochs up to ``restored_epoch`` are final; None means that nothing was restored.

        Some of these epochs may be prepared and not yet committed, if the last run was killed in between.
        Commit them here, because nobody else does. Take back all later epochs, also those that are committed:
        the job may be restored from an older checkpoint.
        """

    def writer(self, epoch: int, /) -> SinkWriter:
        """Return the writer for an epoch's tasks."""

    def prepare(self, epoch: int, results: list[Reported], /) -> None:
        """Prepare an epoch whose job has ended; ``results`` come from one successful run of each writer.

        The epoch's checkpoint completes after this call. Whatever ``commit`` needs must be durable when this
        method returns, so that the next run can commit the epoch if this driver is killed.
        """

    def commit(self, epoch: int, /) -> None:
        """Commit all prepared epochs up to ``epoch``; may be called again when they are committed."""

    def rewind(self, epoch: int, /) -> None:
        """Take back epochs after ``epoch``, which will be run again; ``commit(epoch)`` follows.

        None of them is committed, unless the job falls back from a damaged checkpoint to an older one.
        """


@runtime_checkable
class RunAwareSink(Sink, Protocol):
    """A sink that knows which run made each epoch, so that it can go back to any run."""

    def open_run(self, job_id: str, history: RunHistory, restored_epoch: int | None, /) -> None:
        """Open the sink, in place of ``open``.

        Args:
            job_id: the id of the job.
            history: the runs that made the epochs; its last run is the one that begins now.
            restored_epoch: epochs of ``history`` up to this one are final; None if nothing was restored.
        """


@runtime_checkable
class HoldingSink(Sink, Protocol):
    """A sink whose commit may hold output back, to join it with later output."""

    def release(self, only_due: bool = False) -> None:
        """Make visible what is committed. Called after a savepoint's commit, and at the end of the job.

        Args:
            only_due: only output that has been held back for long enough; asked while the source has nothing.
        """


@runtime_checkable
class MeasuredSink(Sink, Protocol):
    """A sink that knows the size of its output."""

    @property
    def prepared_bytes(self) -> int:
        """The size of what has been prepared since the sink was made, in bytes."""


@attrs.frozen
class SinkCount:
    """How many records a task has given to a writer; among the results of the task."""

    records: int


#: By the name of each sink, ``commits`` and ``records``: the numbers of both in this run, and ``size_bytes``:
#: the size of its output, or None if the sink does not know it.
SinkTotals: TypeAlias = Mapping[str, Mapping[str, "int | None"]]


def errors_of_sink(name: str, method: str) -> AbstractContextManager[None]:
    """Convert an error of a sink's method to a ``SinkStorageError``, after which a job may restart.

    Args:
        name: the name of the sink in the plan.
        method: the method that is called.
    """
    return errors_as(SinkStorageError, f"sink {name!r}: {method} raised", sink=name)


def open_sink(sink: Sink, job_id: str, history: RunHistory, restored_epoch: int | None) -> None:
    """Open a sink for the last run of ``history``."""
    if isinstance(sink, RunAwareSink):
        sink.open_run(job_id, history, restored_epoch)
    else:
        sink.open(job_id, restored_epoch)


class ReplacingSink:
    """A sink that writes an epoch in ``prepare``, and replaces earlier output with the epoch's number.

    An epoch that is run again must then have the same records as before, also after the driver was killed.
    So a job with such a sink writes down how it cuts its epochs before it runs them.
    """


class SeveralStreams:
    """A sink that several streams may use, and that may share its folder with other sinks."""


@runtime_checkable
class OwningSink(Protocol):
    """A sink that needs something for itself."""

    @property
    def owned(self) -> tuple[str, ...]:
        """What no other sink of a job may have: canonical names of folders, and other names."""


def check_sinks(sinks: Iterable[tuple[str, Sink]]) -> None:
    """Check that no two sinks of a job, given with their names, would overwrite each other's output.

    Raises:
        ConfigurationError: one object is the sink of two streams, or two sinks have one folder or name.
    """
    objects: set[int] = set()
    owned: set[str] = set()
    for name, sink in sinks:
        if id(sink) in objects and not isinstance(sink, SeveralStreams):
            raise ConfigurationError(
                f"sink {name!r}: one object is the sink of two streams, and the output of one would replace "
                f"that of the other: make a sink for each stream, or combine the streams with union()",
                sink=name,
            )
        objects.add(id(sink))
        for one in sink.owned if isinstance(sink, OwningSink) else ():
            if one in owned:
                raise ConfigurationError(
                    f"sink {name!r}: another sink of the job has {one} too: give each its own, or combine "
                    f"the streams with union()",
                    sink=name,
                )
            owned.add(one)


# --- results in the driver -----------------------------------------------------------------------


@attrs.frozen
class FrameWriter:
    """Sends records to the driver in frames, with the number of their partition."""

    def write(self, partition: int, records: Iterator[Record]) -> Iterator[Reported]:
        """See :class:`SinkWriter`."""
        yield from ((partition, frame) for frame in frames_of(records, "sink"))


class FrameSink:
    """A sink whose tasks yield frames of records, which are left to the driver."""

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return FrameWriter()


class DriverSink(FrameSink):
    """Passes committed records to ``consume(partition, values)`` in the driver, in the order of epochs."""

    def __init__(self, consume: Callable[[int, Iterable[Any]], None]) -> None:
        self._consume = consume
        self._prepared: dict[int, list[Any]] = {}

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`Sink`."""
        self._prepared[epoch] = results

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""
        for number in sorted(number for number in self._prepared if number <= epoch):
            for partition, frame in self._prepared.pop(number):
                self._hand_over(partition, frame)

    def _hand_over(self, partition: int, frame: bytes) -> None:
        try:
            self._consume(partition, decode_values(frame))
        except PyFlinkStateError:
            raise
        except Exception as error:  # a restart would leave out, or repeat, what was handed over before it
            raise SinkError(
                f"results cannot be handed over: {type(error).__name__}: {error}. The job ends, as nobody "
                f"takes its results any more: mend what takes them, or write to a file sink"
            ) from error

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""
        self._prepared = {n: results for n, results in self._prepared.items() if n <= epoch}


class KeptRddSink(FrameSink):
    """Gets each epoch's output as an RDD of frames that is kept on the cluster.

    ``runtime.spark`` ensures that it is computed once, no matter how many actions run on it.
    """


#: A function of an epoch's DataFrame, the epoch and, if it likes, the id of the job.
ForeachEpoch: TypeAlias = Callable[[SparkObject, int], None] | Callable[[SparkObject, int, str], None]


class ForeachEpochSink(KeptRddSink, ReplacingSink):
    """Calls ``write(frames, epoch)`` for each epoch, before the epoch's checkpoint.

    After a failure an epoch comes again with the same number; ``write`` must replace what was written before.

    Attributes:
        job_id: the id of the job, once it is open.
    """

    def __init__(self, write: Callable[[SparkObject, int], None]) -> None:
        self._write = write
        self.job_id = ""

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """See :class:`Sink`."""
        self.job_id = job_id

    def prepare(self, epoch: int, results: list[Reported]) -> None:
        """See :class:`Sink`."""
        frames: SparkObject
        (frames,) = results
        try:
            self._write(frames, epoch)
        except PyFlinkStateError:
            raise
        except Exception as error:
            raise user_failure(error, "foreach_epoch", NoRecord(f"epoch {epoch}")) from error
        finally:
            frames.unpersist()

    def commit(self, epoch: int) -> None:
        """See :class:`Sink`."""

    def rewind(self, epoch: int) -> None:
        """See :class:`Sink`."""


class RddSink(KeptRddSink):
    """Keeps each epoch's output on the cluster as an RDD of frames; ``committed`` has the final ones.

    Args:
        writer: makes the frames. Default: frames of plain values.
    """

    def __init__(self, writer: SinkWriter | None = None) -> None:
        self._writer = FrameWriter() if writer is None else writer
        self.committed: list[SparkObject] = []
        self._prepared: dict[int, SparkObject] = {}

    def writer(self, epoch: int) -> SinkWriter:
        """See :class:`Sink`."""
        return self._writer

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


# --- printing --------------------------------------------------------------------------------------

#: Returns the text of a value.
_Show = Callable[[Record], str]


@attrs.frozen
class RecordText:
    """Returns the text of records of a stream for ``print()`` and for text files, as in PyFlink.

    A record without a declared type is printed as in Python: ``('a', True)``. A ``ROW`` is printed as a
    change, ``+I[a, ...]``, with its fields as in Python. Every other declared type is printed as in Java:
    ``(a,true,1.0E10)``.

    Args:
        operator: the operator whose results they are.
        type_info: the type of the stream.
    """

    operator: str
    type_info: TypeInformation
    _show: _Show = attrs.field(init=False, eq=False, repr=False)

    @_show.default
    def _show_of_type(self) -> _Show:
        return text_of_type(self.type_info)

    def __reduce__(self) -> Reduced:
        return RecordText, (self.operator, self.type_info)

    def __call__(self, record: Record) -> str:
        """Return the text.

        Raises:
            BadRecordError: the record does not fit the type of the stream.
        """
        if isinstance(self.type_info, PickledBytesTypeInfo):
            return self._show(record)
        try:
            return self._show(self.type_info.check(record))
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: a result does not fit the type of its stream, "
                f"{self.type_info}: {error}; record {safe_repr(record)}",
                operator=self.operator,
                record=safe_repr(record),
            ) from None


class PrintSink(DriverSink):
    """Prints texts in the driver as Flink's print sink does.

    Args:
        identifier: put before each line, if there is one.
        parallelism: the parallelism of the sink; from 2 on, each line shows its subtask, counted from 1.
    """

    def __init__(self, identifier: str | None, parallelism: int) -> None:
        super().__init__(self._print)
        self._identifier = identifier
        self.parallelism = parallelism

    def _print(self, partition: int, values: Iterable[str]) -> None:
        subtask = str(partition % self.parallelism + 1) if self.parallelism > 1 else ""
        prefix = ":".join(part for part in (self._identifier, subtask) if part)
        for value in values:
            print(f"{prefix}> {value}" if prefix else value)
