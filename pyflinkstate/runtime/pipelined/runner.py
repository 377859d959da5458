"""Runs the epochs of a job through processes that stay: one Spark job an attempt, and the slots.

An attempt begins with the slots, then a Spark job with one task for each subtask of the sources. When all are
connected, an epoch costs a message to each of them, and one back; the records do not pass here. The sources
of one epoch may be read while the one before it runs: their frames wait in the channels.

Anything that is lost ends the attempt: its connections are closed, at which its tasks end, and what does not
end by itself is killed with the Spark job.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress

import attrs

from pyflinkstate.errors import PyFlinkStateError, SlotLostError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.pipelined.crew import Crew, PartId
from pyflinkstate.runtime.pipelined.vertices import PipelinedGraph
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.spark import epoch_rdds, epoch_runner
from pyflinkstate.runtime.wire import SlotId, next_of, wait_for

#: How often it is looked whether all is well, in seconds.
_LOOK_S = 1.0
#: How long tasks have to end by themselves, in seconds.
_GRACE_S = 2.0


@attrs.frozen(eq=False)
class _Order:
    """An epoch to run, or to read ahead; ``done`` is called once."""

    request: EpochRequest
    done: Callable[[EpochEnded], None]
    is_ahead: bool = False


class PipelinedRunner(EpochRunner):
    """Runs a job's epochs in tasks that stay.

    Args:
        spark: starts slots and tasks.
        endpoint: where the driver listens.
        parallelism: how many tasks read the sources.
    """

    def __init__(self, spark: epoch_runner.SparkRunner, endpoint: Endpoint, parallelism: int) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._parallelism = parallelism
        self._attempt: Attempt | None = None

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`."""
        self._attempt_of(request).put(_Order(request, done))

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        """See :class:`EpochRunner`. Frames that are read ahead wait in the channels to the slots."""
        self._attempt_of(request).put(_Order(request, lambda _: done(), is_ahead=True))

    def _attempt_of(self, request: EpochRequest) -> Attempt:
        attempt = self._attempt
        if attempt is None or not attempt.takes(request):
            self._end_attempt()
            crew = Crew(self._endpoint, request.link.driver, self._parallelism)
            attempt = self._attempt = Attempt(self._spark, crew, request)
        return attempt

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`."""
        self._end_attempt()
        self._spark.start_slots(request, done)

    def cancel(self) -> None:
        """See :class:`EpochRunner`."""
        if self._attempt is not None:
            self._attempt.end()
        self._spark.cancel()

    def lost(self) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`."""
        if self._attempt is None:
            return self._spark.lost()
        return self._spark.gone() or self._attempt.lost()

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`."""
        return self._spark.gone(at_once)

    def close(self) -> None:
        """See :class:`EpochRunner`."""
        self._end_attempt()
        self._spark.close()

    def _end_attempt(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            attempt.end()
            attempt.await_end()


class Attempt:
    """One attempt: a thread that drives its processes.

    Args:
        spark: starts slots and tasks.
        crew: the connections to the processes.
        request: the first epoch of the attempt.
    """

    def __init__(self, spark: epoch_runner.SparkRunner, crew: Crew, request: EpochRequest) -> None:
        self._spark = spark
        self._crew = crew
        self._first = request
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._is_over = threading.Event()
        #: How the Spark job of the tasks has ended; None while it runs.
        self._tasks_ended: EpochEnded | None = None
        #: The orders that are carried out, each with the parts that it waits for.
        self._running: dict[_Order, set[PartId]] = {}
        #: The epoch whose sources are read, and which has not begun.
        self._read: EpochRequest | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def takes(self, request: EpochRequest) -> bool:
        """Return whether it can run an epoch: one of its own attempt, and nothing has failed."""
        return request.link.driver == self._first.link.driver and not self._is_over.is_set()

    def put(self, order: _Order) -> None:
        """Carry out an order after those that came before."""
        self._orders.put(order)
        self._crew.wake_up()

    def lost(self) -> PyFlinkStateError | None:
        """Return why an epoch will never end, if the thread has ended."""
        return (
            None if self._thread.is_alive() else SparkJobError("the engine's thread ended without a result")
        )

    def end(self) -> None:
        """End it; what runs fails."""
        self._is_over.set()
        self._crew.shut_down()

    def await_end(self) -> None:
        """Wait until nothing of it runs any more."""
        wait_for(self._has_ended, self._spark.gone)

    def _has_ended(self, timeout_s: float) -> bool | None:
        self._thread.join(timeout_s)
        return None if self._thread.is_alive() else True

    # --- its thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        error: PyFlinkStateError = SparkJobError("the epoch was broken off")
        try:
            self._begin()
            while True:
                self._turn()
        except PyFlinkStateError as failure:
            error = failure
        finally:
            self._end(error)

    def _begin(self) -> None:
        """Start the slots and the tasks."""
        request = self._first
        missing = epoch_rdds.missing_slots(request)
        if missing:
            self._start_slots(SlotsRequest(request.link, tuple(missing), request.description))
        self._spark.start_tasks(
            self._crew.task(), self._crew.parallelism, request.description, self._end_of_tasks
        )
        self._crew.await_tasks(self._why_over)
        for operator in request.plan.operators:
            for subtask in range(operator.parallelism):
                slot = SlotId(operator.operator_id, subtask)
                self._crew.drive(slot, request.link.driver.acquire_slot(slot))

    def _start_slots(self, request: SlotsRequest) -> None:
        found: queue.SimpleQueue[EpochEnded] = queue.SimpleQueue()
        self._spark.start_slots(request, found.put)
        look = next_of(found)
        ended = wait_for(look, self._why_over)
        if ended.error is not None:
            raise ended.error

    def _end_of_tasks(self, ended: EpochEnded) -> None:
        self._tasks_ended = ended
        self._crew.wake_up()

    def _why_over(self) -> PyFlinkStateError | None:
        if self._is_over.is_set():
            return SparkJobError("the epoch was cancelled")
        if self._tasks_ended is not None:
            return self._tasks_ended.error or SlotLostError("the source tasks have ended")
        return self._spark.gone()

    def _turn(self) -> None:
        """Take what was ordered, then what has come from the processes."""
        while not self._orders.empty():
            order = self._orders.get_nowait()
            self._running[order] = self._sent(order)
        self._crew.receive(_LOOK_S)
        if (error := self._why_over()) is not None:
            raise error
        for order, parts in [*self._running.items()]:
            if not order.is_ahead:
                self._crew.check(parts)
            if self._crew.have_ended(parts):
                del self._running[order]
                sinks = len(order.request.plan.sinks)
                order.done(EpochEnded(None, None) if order.is_ahead else self._crew.ended(parts, sinks))

    def _sent(self, order: _Order) -> set[PartId]:
        """Send the parts of an epoch to the processes that have not got them yet."""
        request, read = order.request, self._read
        graph = PipelinedGraph(request, self._crew.parallelism)
        parts: set[PartId] = set()
        if not order.is_ahead:
            parts.update(self._crew.send(request, part) for part in graph.fed())
        if read is None:
            parts.update(self._crew.send(request, part) for part in graph.reading())
        elif read.epoch is request.epoch and read.link.epoch == request.link.epoch:
            parts.update((request.link.epoch, part.vertex) for part in graph.reading())
        else:
            raise SparkJobError("the sources of another epoch were read ahead")
        self._read = request if order.is_ahead else None
        return parts

    def _end(self, error: PyFlinkStateError) -> None:
        """End all processes, and then tell those that wait."""
        self._is_over.set()
        self._crew.close()
        if not self._spark.await_end(_GRACE_S):
            self._spark.cancel()
            with suppress(PyFlinkStateError):  # Spark is gone, and its tasks with it
                wait_for(lambda timeout_s: self._spark.await_end(timeout_s) or None, self._spark.gone)
        while not self._orders.empty():
            self._running[self._orders.get_nowait()] = set()
        for order in self._running:
            order.done(EpochEnded(None, error))
