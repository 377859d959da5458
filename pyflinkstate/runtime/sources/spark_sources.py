"""Sources that read through Spark: a batch reader with offsets, and Structured Streaming.

Spark writes ``offsets/<n>`` into the checkpoint location of a streaming query when it has planned batch
``n``, before it runs it, and ``commits/<n>`` when the batch is done. So these files tell, before a query is
started, with which batch it will continue and whether that batch is already planned. If it is, Spark runs it
again with the same records; if not, it may have other records than an earlier batch with that number.
``metadata`` holds the query's id.

This module does not import PySpark: sessions and DataFrames come from the user.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import attrs

from pyflinkstate.api import JsonObject, Offset, Position, SparkObject
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    IncompatibleCheckpointError,
    JobCancelledError,
    PyFlinkStateError,
    SourceError,
    StreamingQueryError,
)
from pyflinkstate.runtime.sources.sources import Available, Epoch, RddEpoch, Source
from pyflinkstate.runtime.wire import errors_as, spark_cause, told_by_spark

# --- batch readers -------------------------------------------------------------------------------

#: Returns the epoch of a DataFrame's rows.
EpochOfFrame = Callable[[SparkObject], RddEpoch]


def _rows_of(frame: SparkObject) -> RddEpoch:
    return RddEpoch(frame.rdd, is_fresh=True)


#: The offset before everything, under the name that Kafka's reader uses.
EARLIEST = "earliest"
LATEST = "latest"


@attrs.frozen
class BatchReaderSource(Source):
    """Reads with Spark's batch reader from offset to offset, epoch by epoch, without end.

    Args:
        load: ``load(start, end)`` returns a DataFrame; offsets are JSON strings, as in Kafka's options
            ``startingOffsets`` and ``endingOffsets``.
        latest: ``latest(start)`` returns the newest offsets, a JSON value.
        epoch_of: returns the epoch of a DataFrame's rows.
    """

    gives_rdds = True
    load: Callable[[str, str], SparkObject]
    latest: Callable[[Offset], Offset]
    epoch_of: EpochOfFrame = attrs.field(default=_rows_of, eq=False)
    poll_s = 1.0

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return EARLIEST

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`."""
        with errors_as(SourceError, "the batch reader cannot find its newest offsets:"):
            return Available(self.latest(start))

    def plan(self, start: Position, end: Position) -> Epoch:
        """See :class:`Source`."""
        with errors_as(SourceError, f"the batch reader cannot read from {start} to {end}:"):
            return self.epoch_of(self.load(as_option(start), as_option(end)))


def as_option(offset: Position) -> str:
    """Return an offset as the reader's option: a word as it is, anything else as JSON."""
    return offset if isinstance(offset, str) else json.dumps(offset)


@attrs.frozen
class PartitionOffsets:
    """Finds the newest offsets by reading: the greatest ``offset`` of each ``topic`` and ``partition``.

    It needs a reader with those columns, like Kafka's. ``max_records`` bounds an epoch over all partitions.
    """

    load: Callable[[str, str], SparkObject]
    max_records: int | None = None

    def __call__(self, start: Any) -> Position:
        """Return ``{topic: {partition: offset}}``, with the first offset that does not exist yet."""
        partitions = self.load(as_option(start), LATEST).groupBy("topic", "partition")
        ends = partitions.agg({"offset": "max"}).collect()
        firsts: dict[tuple[str, int], int] = {}
        if self.max_records is not None:
            firsts = {(topic, part): int(n) for topic, part, n in partitions.agg({"offset": "min"}).collect()}
        begins = {} if isinstance(start, str) else start
        offsets = {topic: dict(partitions) for topic, partitions in begins.items()}
        limit = None if self.max_records is None else max(1, self.max_records // max(1, len(ends)))
        for topic, partition, last in ends:
            known = offsets.setdefault(topic, {})
            end = int(last) + 1
            if limit is not None:
                end = min(end, firsts.get((topic, partition), 0) + limit)
            known[str(partition)] = end
        return offsets if offsets else start


# --- Structured Streaming ------------------------------------------------------------------------

OFFSETS = "offsets"
COMMITS = "commits"
METADATA = "metadata"


class QueryFiles(Protocol):
    """Reads a checkpoint location like Spark does; ``runtime.spark`` implements it."""

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder of the location, or none if there is no such folder."""

    def read(self, name: str) -> bytes | None:
        """Return the content of a file in the location, or None if it does not exist."""


@attrs.frozen
class NextBatch:
    """A batch with which a query continues.

    Attributes:
        number: the number of the batch.
        identity: distinguishes it from other batches with that number; None if Spark has not planned it yet.
        frame: its rows, if Spark has passed them to the job.
    """

    number: int
    identity: str | None = None
    frame: object = attrs.field(default=None, eq=False)


class QueryLog:
    """A query's checkpoint location, read only."""

    def __init__(self, files: QueryFiles) -> None:
        self._files = files

    def query_id(self) -> str | None:
        """Return the id of the query, which all its runs share, or None if it never ran."""
        data = self._files.read(METADATA)
        if data is None:
            return None
        try:
            return str(json.loads(data)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceError(
                f"the streaming query's checkpoint location is damaged: its file {METADATA!r} is "
                f"{data[:80]!r}; restore that file, or start from scratch with another checkpoint location"
            ) from error

    def next_batch(self) -> NextBatch:
        """Return the batch with which the query would continue if it were started now."""
        cut = self._newest(OFFSETS)
        done = self._newest(COMMITS)
        if cut is None or cut <= (-1 if done is None else done):
            return NextBatch(0 if cut is None else cut + 1)
        return NextBatch(cut, self.identity(cut))

    def identity(self, batch: int) -> str | None:
        """Return the identity of a batch among those with its number, or None if Spark has not planned it.

        It is a digest of all that Spark recorded. Offsets alone are not enough, as those of a file source are
        only numbers, but Spark also records when it planned the batch.
        """
        noted = self._files.read(f"{OFFSETS}/{batch}")
        return None if noted is None else hashlib.sha256(noted).hexdigest()

    def _newest(self, folder: str) -> int | None:
        return max((int(name) for name in self._files.names(folder) if name.isdecimal()), default=None)


def position_of(batch: int, query_id: str, identity: str | None) -> JsonObject:
    """Return the source position after a batch, which checkpoints keep."""
    position = {"batch": batch, "query": query_id}
    return position if identity is None else {**position, "identity": identity}


#: The errors that end a cancelled job, or one whose program ends.
_ENDS_WITHOUT_FAILURE = (JobCancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
#: Before batch 0.
NO_BATCH = -1


class StreamingSource(Source):
    """Reads the batches of a streaming query through ``foreachBatch``, one epoch per batch.

    Spark replays only its newest batch, so the state after a batch must be durable before Spark learns that
    the batch is done: each epoch takes a checkpoint, and :meth:`process_batch` returns when it is complete.

    Before the query is started, its log says what to restore (:meth:`choose`). The first batch must be the
    one that the restored state expects; otherwise the job ends with an error, so that nothing is lost
    silently.

    Args:
        start_query: starts the query with a function for ``foreachBatch`` and returns it.
        open_log: opens Spark's log of the query.
        epoch_of: returns the epoch of a DataFrame's rows.
        gone: returns the error if the Spark application has ended, and the query with it.
    """

    gives_rdds = True
    commits_every_epoch = True
    is_rewindable = False

    def __init__(
        self,
        start_query: Callable[[Callable[[object, int], None]], object],
        open_log: Callable[[], QueryLog],
        epoch_of: EpochOfFrame = _rows_of,
        gone: Callable[[], PyFlinkStateError | None] = lambda: None,
    ) -> None:
        self._epoch_of = epoch_of
        self._gone = gone
        self._start_query = start_query
        self._open_log = open_log
        self._changed = threading.Condition()
        self._log: QueryLog | None = None
        self._query: SparkObject = None
        self._batch: NextBatch | None = None
        #: Batches up to this one are in a completed checkpoint, provided that the first batch is the expected
        #: one.
        self._durable = NO_BATCH
        self._is_checked = False
        #: The position of the job, once it is known.
        self._position: Position = None
        self._closed = False
        self._error: BaseException | None = None
        self._wake_up: Callable[[], None] = lambda: None

    # --- Spark's side ------------------------------------------------------------------------------

    def process_batch(self, frame: object, batch_id: int) -> None:
        """Pass a batch to the job, and return when it is durable. Spark calls this on a thread of its own.

        Raises:
            SourceError: the job has ended. ``is_stopped`` in the error's context is True if the job did not
                fail: then the query is being stopped, too.
        """
        batch = NextBatch(batch_id, self.log.identity(batch_id), frame)
        with self._changed:
            self._batch = batch
            self._accept_first(self._position)
            self._changed.notify_all()
        self._wake_up()
        with self._changed:
            self._changed.wait_for(lambda: self._is_durable(batch_id) or self._closed)
            self._batch = None
            if not self._is_durable(batch_id):
                raise self._gives_up(batch_id)

    def _gives_up(self, batch_id: int) -> SourceError:
        why = "" if self._error is None else f": {self._error}"
        is_stopped = self._error is None or isinstance(self._error, _ENDS_WITHOUT_FAILURE)
        return SourceError(
            f"the job that processes batch {batch_id} has ended{why}", batch=batch_id, is_stopped=is_stopped
        )

    def _is_durable(self, batch: int) -> bool:
        return self._is_checked and self._durable >= batch

    # --- the job's side ----------------------------------------------------------------------------

    def locate(self) -> None:
        """Find the query's log; raise ``ConfigurationError`` if it has no place."""
        self._log = self._open_log()

    @property
    def log(self) -> QueryLog:
        """Spark's log of the query."""
        if self._log is None:
            self.locate()
        assert self._log is not None
        return self._log

    def choose(self, retained: Iterable[CheckpointMetadata]) -> CheckpointMetadata | None:
        """Return which of the retained checkpoints to restore; see :func:`checkpoint_before`."""
        return checkpoint_before(self.log.next_batch(), self.log.query_id(), retained)

    @property
    def query_id(self) -> str:
        """The id of the query, which stays the same over restarts from its checkpoint location."""
        return str(self._query.id)

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`. Starts the query, which delivers batches later."""
        self._wake_up = wake_up
        self._query = self._start_query(self.process_batch)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. Ends the query as well, with an error if the job failed."""
        with self._changed:
            self._closed, self._error = True, error
            self._changed.notify_all()
        if self._query is not None and self._gone() is None and self._query.isActive:
            self._query.stop()

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        with self._changed:
            self._position = position_of(NO_BATCH, self.query_id, None)
            self._accept_first(self._position)
            return self._position

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`. The query may have gone on since its log was read to choose a checkpoint.

        Raises:
            IncompatibleCheckpointError: the batch with which the query goes on is not the one that
                ``position`` expects.
        """
        with self._changed:
            batch = self._batch
            if self._is_checked and self._position == position:  # in an earlier attempt
                return
        following = self.log.next_batch() if batch is None else batch
        if not self._fits(position, following):
            raise self._misfit(position, following)

    def _fits(self, position: Position, batch: NextBatch) -> bool:
        """Return whether the query may go on with this batch if the state is that of ``position``."""
        if not isinstance(position, dict) or position.get("query") != self.query_id:
            return False
        return bool(batch.number == position["batch"] + 1) or _is_same(position, batch)

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`.

        Raises:
            IncompatibleCheckpointError: the first batch is not the one that ``start`` expects.
        """
        with self._changed:
            batch = self._batch
            self._accept_first(start)
            is_accepted = self._is_checked
        if batch is None:
            return Available(start, is_last=self._is_over())
        if not is_accepted:
            raise self._misfit(start, batch)
        if batch.number <= start["batch"]:
            return Available(start)  # the batch is not here yet, or was durable before the restart
        return Available(position_of(batch.number, self.query_id, batch.identity))

    def _accept_first(self, start: Position) -> None:
        """Check that the first batch is the one that ``start`` expects, on the first thread that knows both.

        So Spark's thread does not wait for that of the job, which may itself be waiting for Spark.
        """
        batch = self._batch
        if self._is_checked or start is None or batch is None:
            return
        if self._fits(start, batch):
            self._is_checked = True
            self._changed.notify_all()

    def _misfit(self, start: Position, batch: NextBatch) -> IncompatibleCheckpointError:
        return IncompatibleCheckpointError(
            f"the streaming query {self.query_id} goes on with batch {batch.number}, and the restored "
            f"state is that of {start!r}, although the query's log fitted when the job was started: does "
            f"another program run the same query? Stop it, and run the job again",
            batch=batch.number,
        )

    def _is_over(self) -> bool:
        try:
            is_active = self._query.isActive
        except Exception:  # of Py4J or the socket, if the JVM has ended
            self._check_spark()
            raise
        if is_active:
            return False
        self._check_spark()
        failure = self._query.exception()
        if failure is not None:
            raise StreamingQueryError(
                f"the streaming query failed: {told_by_spark(failure)}\nFix the cause, and run the program "
                f"again: it goes on where it was"
            ) from spark_cause(failure)
        with self._changed:
            return self._batch is None

    def _check_spark(self) -> None:
        """Raise the error if Spark has ended. What the query says then is about code of Spark's."""
        if (gone := self._gone()) is not None:
            raise gone from None

    def plan(self, start: Position, end: Any) -> Epoch:
        """See :class:`Source`."""
        with self._changed:
            if self._batch is None or self._batch.number != end["batch"]:
                raise SourceError(
                    f"the streaming query no longer has batch {end['batch']}: run the program again, and it "
                    f"goes on from the checkpoint that fits the query"
                )
            return self._epoch_of(self._batch.frame)

    def commit(self, end: Any) -> None:
        """See :class:`Source`: Spark may go on to the next batch."""
        with self._changed:
            self._durable, self._position = end["batch"], end
            self._accept_first(end)
            self._changed.notify_all()


def _is_same(position: JsonObject, batch: NextBatch) -> bool:
    """Return whether a position is after this batch: the number and the time of planning are the same."""
    is_cut = batch.identity is not None
    return bool(position["batch"] == batch.number and is_cut and position.get("identity") == batch.identity)


def checkpoint_before(
    batch: NextBatch, query_id: str | None, retained: Iterable[CheckpointMetadata]
) -> CheckpointMetadata | None:
    """Return the checkpoint to restore if Spark's query continues with ``batch``, or None to start afresh.

    Let N be the number of ``batch``, and M the number of the batch in the newest retained checkpoint.

    * M is N - 1: Spark continues where the state is.
    * M is N, and it is the same batch: the state was durable, but the program was killed before Spark knew.
      The batch is skipped.
    * M is greater, or it is N and Spark plans that batch again: Spark's checkpoint location was set back. A
      retained checkpoint of N - 1, or of exactly that batch N, is restored.
    * M is less, or there is no checkpoint: the batches in between cannot be read any more.

    Args:
        batch: the next batch of the query.
        query_id: the id of the query.
        retained: the retained checkpoints, newest first. Those older than the fitting one are not read.

    Raises:
        IncompatibleCheckpointError: no retained checkpoint fits.
        CheckpointNotFoundError: there is no checkpoint, and the query is not at its beginning.
    """
    number = batch.number
    batches: list[int] = []
    for metadata in retained:
        position = metadata.source_position
        if position is None and number == 0:
            return metadata  # it was seeded, and has read nothing
        if not isinstance(position, dict) or "batch" not in position or position.get("query") != query_id:
            raise IncompatibleCheckpointError(
                f"checkpoint {metadata.checkpoint_id} belongs to another streaming query "
                f"({position!r}, this is {query_id or 'a new one'}): use the checkpoint location that "
                f"belongs to it"
            )
        if position["batch"] == number - 1 or _is_same(position, batch):
            return metadata
        batches.append(position["batch"])
    if not batches and number == 0:
        return None
    if not batches:
        raise CheckpointNotFoundError(
            f"the streaming query goes on with batch {number}, and there is no checkpoint of the state "
            f"before it: start again with another checkpoint location, or restore the job's checkpoints"
        )
    cut_anew = ", which Spark plans again" if number in batches else ""
    raise IncompatibleCheckpointError(
        f"the streaming query goes on with batch {number}{cut_anew}, and the retained checkpoints are of "
        f"batches {', '.join(map(str, batches))}: records would be lost or counted twice. If the job was "
        f"stopped with a savepoint, restore_from() that. Otherwise restore Spark's checkpoint location and "
        f"the job's checkpoints from the same time, or start both from scratch"
    )
