"""Sources that read through Spark: a batch reader with offsets, and Structured Streaming.

No PySpark is imported here: sessions and DataFrames come from the user.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs

from pyflinkstate.backends.format.metadata import CheckpointMetadata
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    IncompatibleCheckpointError,
    PyFlinkStateError,
    SourceError,
)
from pyflinkstate.runtime.sources import Available, Epoch, RddEpoch, Source

# --- batch readers -------------------------------------------------------------------------------

#: An offset before everything, as Kafka's reader calls it.
EARLIEST = "earliest"
LATEST = "latest"


@attrs.frozen
class BatchReaderSource(Source):
    """What Spark's batch reader gives between two offsets, epoch by epoch, without end.

    Args:
        load: ``load(start, end)`` returns a DataFrame; offsets are JSON texts, as of Kafka's options
            ``startingOffsets`` and ``endingOffsets``.
        latest: ``latest(start)`` returns the newest offsets, a JSON value.
    """

    load: Callable[[str, str], Any]
    latest: Callable[[Any], Any]
    poll_s = 1.0

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return EARLIEST

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        with _reader_errors("find its newest offsets"):
            return Available(self.latest(start))

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        with _reader_errors(f"read from {start} to {end}"):
            return RddEpoch(self.load(as_option(start), as_option(end)).rdd)


@contextmanager
def _reader_errors(what: str) -> Iterator[None]:
    try:
        yield
    except PyFlinkStateError:
        raise
    except Exception as error:
        raise SourceError(f"the batch reader cannot {what}: {type(error).__name__}: {error}") from error


def as_option(offset: Any) -> str:
    """Return an offset as the reader's option: words as they are, else JSON."""
    return offset if isinstance(offset, str) else json.dumps(offset)


@attrs.frozen
class PartitionOffsets:
    """Finds the newest offsets by reading: the greatest ``offset`` of each ``topic`` and ``partition``.

    For readers with those columns, as Kafka's. ``max_records`` bounds an epoch, all partitions together.
    """

    load: Callable[[str, str], Any]
    max_records: int | None = None

    def __call__(self, start: Any) -> Any:
        """Return ``{topic: {partition: offset}}``, the first offset that is not there yet."""
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

#: Before batch 0.
NO_BATCH = -1


class StreamingSource(Source):
    """The batches of a streaming query, one epoch each, handed over by ``foreachBatch``.

    Spark replays its newest batch only, so a batch's state must be durable before Spark hears that the batch
    is done: each epoch takes a checkpoint, and :meth:`process_batch` returns when it is complete.

    Args:
        start_query: starts the query with a function for ``foreachBatch`` and returns it.
    """

    commits_every_epoch = True

    def __init__(self, start_query: Callable[[Callable[[Any, int], None]], Any]) -> None:
        self._start_query = start_query
        self._changed = threading.Condition()
        self._query: Any = None
        self._batch: tuple[int, Any] | None = None
        #: Batches up to this one are in a completed checkpoint.
        self._durable = NO_BATCH
        self._closed = False
        self._error: BaseException | None = None
        self._wake_up: Callable[[], None] = lambda: None

    # --- Spark's side ------------------------------------------------------------------------------

    def process_batch(self, frame: Any, batch_id: int) -> None:
        """Hand a batch to the job, and return when it is durable. Called on a thread of Spark's."""
        with self._changed:
            self._batch = (batch_id, frame)
            self._changed.notify_all()
        self._wake_up()
        with self._changed:
            self._changed.wait_for(lambda: self._durable >= batch_id or self._closed)
            self._batch = None
            if self._durable < batch_id:
                why = "" if self._error is None else f": {self._error}"
                raise SourceError(f"the job that processes batch {batch_id} has ended{why}")

    # --- the job's side ----------------------------------------------------------------------------

    def start(self) -> int | None:
        """Start the query; return its first batch's number when it comes, None if the query ends before."""
        self._query = self._start_query(self.process_batch)
        with self._changed:
            while not self._changed.wait_for(lambda: self._batch is not None, timeout=0.2):
                if not self._query.isActive:
                    self._raise_failure()
                    break
            return None if self._batch is None else self._batch[0]

    @property
    def query_id(self) -> str:
        """The query's id, the same over restarts from its checkpoint location."""
        return str(self._query.id)

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        self._wake_up = wake_up

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. The query ends as well; with an error of its own if the job failed."""
        with self._changed:
            self._closed, self._error = True, error
            self._changed.notify_all()
        if self._query is not None and self._query.isActive:
            self._query.stop()

    def initial_offset(self) -> Any:
        """See :class:`Source`."""
        return {"batch": NO_BATCH, "query": self.query_id}

    def latest_offset(self, start: Any, whole: bool) -> Available:
        """See :class:`Source`."""
        with self._changed:
            batch = self._batch
        if batch is None:
            return Available(start, is_last=self._is_over())
        if batch[0] <= start["batch"]:
            return Available(start)  # it is on its way, or was durable before the restart
        return Available({**start, "batch": batch[0]})

    def _is_over(self) -> bool:
        if self._query.isActive:
            return False
        self._raise_failure()
        with self._changed:
            return self._batch is None

    def _raise_failure(self) -> None:
        failure = self._query.exception()
        if failure is not None:
            raise SourceError(f"the streaming query failed: {failure}")

    def plan(self, start: Any, end: Any) -> Epoch:
        """See :class:`Source`."""
        with self._changed:
            if self._batch is None or self._batch[0] != end["batch"]:
                raise SourceError(f"the streaming query no longer has batch {end['batch']}")
            return RddEpoch(self._batch[1].rdd)

    def commit(self, end: Any) -> None:
        """See :class:`Source`: Spark may go on to the next batch."""
        with self._changed:
            self._durable = end["batch"]
            self._changed.notify_all()


def checkpoint_before(
    batch: int, query_id: str, retained: Iterable[CheckpointMetadata]
) -> CheckpointMetadata | None:
    """Return the checkpoint to restore when Spark's query goes on with ``batch``; None to begin anew.

    Let M be the batch of the newest retained checkpoint.

    * M is ``batch - 1``: Spark goes on where the state is.
    * M is ``batch``: the state was durable, and the program was killed before Spark heard so. The batch is
      skipped.
    * M is newer: Spark's checkpoint location was set back. A retained checkpoint of ``batch - 1`` is taken,
      one of ``batch`` is not, since Spark may plan that batch with other records now.
    * M is older, or there is none: what lies between cannot be had any more.

    Raises:
        IncompatibleCheckpointError: no retained checkpoint fits.
        CheckpointNotFoundError: there is none, and the query is not at its beginning.
    """
    newest_first = sorted(retained, key=lambda metadata: metadata.checkpoint_id, reverse=True)
    if not newest_first:
        if batch == 0:
            return None
        raise CheckpointNotFoundError(
            f"the streaming query goes on with batch {batch}, and there is no checkpoint of the state before "
            f"it: begin anew with another checkpoint location, or restore the job's checkpoints"
        )
    for metadata in newest_first:
        position = metadata.source_position
        if not isinstance(position, dict) or position.get("query") != query_id:
            raise IncompatibleCheckpointError(
                f"checkpoint {metadata.checkpoint_id} belongs to another streaming query "
                f"({position!r}, this is {query_id}): use the checkpoint location that belongs to it"
            )
        was_set_back = newest_first[0].source_position["batch"] > batch
        if position["batch"] == batch - 1 or (position["batch"] == batch and not was_set_back):
            return metadata
    have = ", ".join(str(metadata.source_position["batch"]) for metadata in newest_first)
    raise IncompatibleCheckpointError(
        f"the streaming query goes on with batch {batch}, and the retained checkpoints are of batches "
        f"{have}: records would be lost or counted twice. Restore Spark's checkpoint location and the job's "
        f"checkpoints of the same time, or begin both anew"
    )
