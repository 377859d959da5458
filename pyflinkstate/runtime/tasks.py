"""What runs inside Spark tasks. Values that Spark ships with its closures; no PySpark in here.

Each is called with a partition index and an iterator and returns an iterator, as
``mapPartitionsWithIndex`` wants it. Whatever goes wrong is told to the driver as the error it is, before
Spark turns it into text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import attrs

from pyflinkstate.errors import PyFlinkStateError, SlotBusyError, SourceError
from pyflinkstate.runtime.chain import ChainedOperator, TaskInfo, run_chain
from pyflinkstate.runtime.clock import SystemClock
from pyflinkstate.runtime.formats import Reject, RejectedRecord
from pyflinkstate.runtime.frames import FrameKey, Router, decode_values
from pyflinkstate.runtime.messages import BeginEpoch, CheckpointTrigger, EpochDone, SlotId, TaskReport
from pyflinkstate.runtime.metrics import MetricValues, OperatorMetrics
from pyflinkstate.runtime.sinks import SinkWriter
from pyflinkstate.runtime.slot_client import DriverLink, run_epoch
from pyflinkstate.runtime.transport import Address


@attrs.frozen
class TaskLink:
    """What a task knows of its job and epoch."""

    driver: DriverLink
    epoch: int

    @contextmanager
    def reporting(self, task: str, content: dict[str, Any] | None = None) -> Iterator[Counter[str]]:
        """Report the counts of the block, and ``content``, when it ends well, else its error."""
        counts: Counter[str] = Counter()
        try:
            yield counts
        except SlotBusyError:
            raise  # Spark's affair: the task that feeds the slot may well succeed
        except PyFlinkStateError as error:
            self.report(task, error=error)
            raise
        if counts or content:
            self.report(task, counts=dict(counts), **(content or {}))

    def report(self, task: str, **content: Any) -> None:
        """Tell the driver."""
        self.driver.report(TaskReport(self.driver.attempt, self.epoch, task, **content))


@attrs.frozen
class SourceTask:
    """Reads a partition's records and counts them.

    ``read`` turns a split into records; without it the partition's items are the records.
    """

    link: TaskLink
    name: str
    read: Callable[[Any, Reject], Iterable[Any]] | None = None

    def __call__(self, partition: int, items: Iterable[Any]) -> Iterator[Any]:
        task = f"{self.name}[{partition}]"
        rejected: list[RejectedRecord] = []
        number = 0
        with self.link.reporting(task) as counts:

            def reject(record: RejectedRecord) -> None:
                counts[f"{self.name}.records_malformed"] += 1
                if record.keep:
                    rejected.append(record)

            counts[f"{self.name}.records_malformed"] = 0
            try:
                for record in self._records(items, reject):
                    yield record
                    number += 1
            except (OSError, EOFError) as error:
                if isinstance(error, PyFlinkStateError):
                    raise
                raise SourceError(f"source {self.name!r} cannot be read: {error}") from error
            counts[f"{self.name}.records_out"] += number
            if rejected:
                self.link.report(task, rejected=tuple(rejected))

    def _records(self, items: Iterable[Any], reject: Reject) -> Iterable[Any]:
        if self.read is None:
            return items
        return chain.from_iterable(self.read(split, reject) for split in items)


@attrs.frozen
class ChainTask:
    """Runs operators without state over a stage's output."""

    link: TaskLink
    stage: str
    operators: tuple[ChainedOperator, ...]
    parallelism: int
    #: The stage's output is frames of values, not single records.
    decodes: bool

    def records(self, partition: int, stream: Iterable[Any], counts: Counter[str]) -> Iterator[Any]:
        """Return what comes out of the chain."""
        records = chain.from_iterable(map(decode_values, stream)) if self.decodes else iter(stream)
        if not self.operators:
            return records
        metrics = OperatorMetrics(SystemClock().now_ms)

        def report(values: MetricValues) -> None:
            self.link.report(f"{self.stage}[{partition}]", metrics=values)

        info = TaskInfo(partition, self.parallelism, self.link.driver.attempt, metrics, report)
        return run_chain(self.operators, records, info, counts)


@attrs.frozen
class RouteTask:
    """The map side before a keyed operator: chain, key, frames."""

    chain: ChainTask
    operator_id: str
    router: Router

    def __call__(self, partition: int, stream: Iterable[Any]) -> Iterator[tuple[FrameKey, bytes]]:
        task = f"{self.chain.stage} to {self.operator_id}[{partition}]"
        with self.chain.link.reporting(task) as counts:
            yield from self.router.route(partition, self.chain.records(partition, stream, counts))


@attrs.frozen
class SlotTask:
    """The reduce side: feeds the subtask's frames to its slot and passes on what comes back."""

    link: TaskLink
    operator_id: str
    name: str
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]

    def __call__(self, subtask: int, frames: Iterable[tuple[FrameKey, bytes]]) -> Iterator[bytes]:
        slot = SlotId(self.operator_id, subtask)
        begin = BeginEpoch(self.link.driver.attempt, self.link.epoch, self.barrier)
        content: dict[str, Any] = {}
        with self.link.reporting(str(slot), content) as counts:
            address = self.addresses.get(slot) or self.link.driver.acquire_slot(slot)
            payloads = (payload for _, payload in frames)
            for item in run_epoch(address, self.link.driver.secret, slot, begin, payloads):
                if isinstance(item, EpochDone):
                    counts[f"{self.name}.records_in"] += item.records_in
                    counts[f"{self.name}.records_out"] += item.records_out
                    named = {f"{self.name}.{name}": value for name, value in item.metrics.items()}
                    content.update(metrics=named, is_slot=True, next_timer_ms=item.next_timer_ms)
                else:
                    yield item


@attrs.frozen
class SinkTask:
    """The end of a branch: chain, then the sink's writer."""

    chain: ChainTask
    #: Unlike the name, no other sink of the job has it.
    sink_id: str
    writer: SinkWriter

    def __call__(self, partition: int, stream: Iterable[Any]) -> Iterator[Any]:
        with self.chain.link.reporting(f"{self.sink_id}[{partition}]") as counts:
            records = self.chain.records(partition, stream, counts)
            yield from self.writer.write(partition, records)
