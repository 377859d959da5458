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
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import attrs

from pyflinkstate.errors import EpochBrokenOffError, PyFlinkStateError, SlotLostError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.pipelined.crew import Crew, PartId
from pyflinkstate.runtime.pipelined.vertices import PipelinedGraph, can_read_ahead
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.spark import epoch_rdds, epoch_runner
from pyflinkstate.runtime.wire import HeartbeatSettings, SlotId, joined, wait_for

#: How long the tasks of an attempt may take to start, in seconds.
START_TIMEOUT_S = 60
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


@attrs.define(eq=False)
class PipelinedRunner(EpochRunner):
    """Runs a job's epochs in tasks that stay.

    Args:
        spark: starts slots and tasks.
        endpoint: where the driver listens.
        parallelism: how many tasks read the sources.
        heartbeat: how often they are asked whether they live.
    """

    reads_live = True

    _spark: epoch_runner.SparkRunner
    _endpoint: Endpoint
    _parallelism: int
    _heartbeat: HeartbeatSettings = attrs.Factory(HeartbeatSettings)
    _thread: _AttemptThread | None = attrs.field(init=False, default=None)

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`."""
        self._attempt_of(request).put(_Order(request, done))

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        """See :class:`EpochRunner`. Frames that are read ahead wait in the channels to the slots."""
        if not can_read_ahead(request.plan):
            done()
            return
        self._attempt_of(request).put(_Order(request, lambda _: done(), is_ahead=True))

    def _attempt_of(self, request: EpochRequest) -> Attempt:
        thread = self._thread
        if thread is None or not thread.attempt.takes(request):
            self._end_attempt()
            crew = Crew(self._endpoint, request.link.driver, self._parallelism, self._heartbeat)
            thread = self._thread = _AttemptThread(Attempt(self._spark, crew, request), crew)
            thread.start()
        return thread.attempt

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """See :class:`EpochRunner`."""
        self._end_attempt()
        self._spark.start_slots(request, done)

    def cancel(self) -> None:
        """See :class:`EpochRunner`."""
        if self._thread is not None:
            self._thread.attempt.end()
        self._spark.cancel()

    def lost(self) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`."""
        if self._thread is None:
            return self._spark.lost()
        if (error := self._spark.gone()) is not None or self._thread.is_alive():
            return error
        return SparkJobError("the engine's thread ended without a result")

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """See :class:`EpochRunner`."""
        return self._spark.gone(at_once)

    def close(self) -> None:
        """See :class:`EpochRunner`."""
        self._end_attempt()
        self._spark.close()

    def _end_attempt(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.attempt.end()
            wait_for(joined(thread), self._spark.gone)


class Attempt:
    """The life of one attempt as a script, which yields whenever it waits for an order, a process or Spark.

    Args:
        spark: starts slots and tasks.
        crew: the connections to the processes.
        request: the first epoch of the attempt.
        now_s: returns monotonic time.
    """

    def __init__(
        self,
        spark: epoch_runner.SparkRunner,
        crew: Crew,
        request: EpochRequest,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._spark = spark
        self._crew = crew
        self._first = request
        self._now_s = now_s
        self._orders: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._is_over = threading.Event()
        self._ending = threading.Lock()
        #: Whether no order is taken any more.
        self._has_ended = False
        #: How the Spark jobs of the slots and the tasks have ended; None while they run.
        self._slots_started: EpochEnded | None = None
        self._tasks_ended: EpochEnded | None = None
        #: The orders that are carried out, each with the parts that it waits for.
        self._running: dict[_Order, set[PartId]] = {}
        #: The epoch whose sources are read, and which has not begun; and the parts of those that read them.
        self._read: tuple[EpochRequest, set[PartId]] | None = None

    # --- from any thread -----------------------------------------------------------------------------

    def takes(self, request: EpochRequest) -> bool:
        """Return whether it can run an epoch: one of its own attempt, and nothing has failed."""
        return request.link.driver == self._first.link.driver and not self._is_over.is_set()

    def put(self, order: _Order) -> None:
        """Carry out an order after those that came before."""
        with self._ending:
            if not self._has_ended:
                self._orders.put(order)
                self._crew.wake_up()
                return
        order.done(EpochEnded(None, SparkJobError("the attempt has ended")))

    def end(self) -> None:
        """End it; what runs fails."""
        self._is_over.set()
        self._crew.shut_down()

    # --- the script ----------------------------------------------------------------------------------

    def life(self) -> Generator[None]:
        """Begin, carry out orders until something fails or the attempt is ended, and end all processes."""
        error: PyFlinkStateError = EpochBrokenOffError("the epoch was broken off")
        try:
            yield from self._begin()
            while True:
                self._turn()
                yield
        except PyFlinkStateError as failure:
            error = failure
        finally:
            self._end(error)

    def _begin(self) -> Iterator[None]:
        """Start the slots and the tasks."""
        request, crew = self._first, self._crew
        missing = epoch_rdds.missing_slots(request)
        if missing:
            slots = SlotsRequest(request.link, tuple(missing), request.description)
            self._spark.start_slots(slots, self._end_of_slots)
            while self._slots_started is None:
                self._check()
                yield
            if self._slots_started.error is not None:
                raise self._slots_started.error
        self._spark.start_tasks(crew.task(), crew.parallelism, request.description, self._end_of_tasks)
        until_s = self._now_s() + START_TIMEOUT_S
        for operator in request.plan.operators:  # they load what they need while Spark starts the tasks
            for subtask in range(operator.parallelism):
                slot = SlotId(operator.operator_id, subtask)
                crew.drive(slot, request.link.driver.acquire_slot(slot))
        while crew.missing_tasks():
            self._check()
            if self._now_s() >= until_s:
                raise crew.too_few(START_TIMEOUT_S)
            yield

    def _end_of_slots(self, ended: EpochEnded) -> None:
        self._slots_started = ended
        self._crew.wake_up()

    def _end_of_tasks(self, ended: EpochEnded) -> None:
        self._tasks_ended = ended
        self._crew.wake_up()

    def _check(self) -> None:
        """Raise the reason why nothing more can come."""
        known = self._slots_started, self._tasks_ended
        error = self._spark.lost()
        if known != (self._slots_started, self._tasks_ended):
            error = None  # what has just ended has told of it
        if self._is_over.is_set():
            error = EpochBrokenOffError("the epoch was cancelled")
        elif self._tasks_ended is not None:
            error = self._tasks_ended.error or SlotLostError("the source tasks have ended")
        if error is not None:
            raise error

    def _turn(self) -> None:
        """Take what was ordered, then what has come from the processes."""
        self._check()
        self._crew.beat(self._now_s())
        while not self._orders.empty():
            order = self._orders.get_nowait()
            parts = self._running[order] = set()  # so it is told of its end also if it cannot be sent
            parts |= self._sent(order)
        for order, parts in [*self._running.items()]:
            if not order.is_ahead:
                self._crew.check(parts)
            if self._crew.have_ended(parts):
                del self._running[order]
                sinks = len(order.request.plan.sinks)
                order.done(EpochEnded(None, None) if order.is_ahead else self._crew.ended(parts, sinks))

    def _sent(self, order: _Order) -> set[PartId]:
        """Send the parts of an epoch to the processes that have not got them yet."""
        request, read, self._read = order.request, self._read, None
        graph = PipelinedGraph(request, self._crew.parallelism, order.is_ahead)
        parts: set[PartId] = set()
        if not order.is_ahead:
            parts.update(self._crew.send(request, part) for part in graph.fed())
        if read is None:
            parts.update(self._crew.send(request, part) for part in graph.reading())
        elif read[0].epoch is request.epoch and read[0].link.epoch == request.link.epoch:
            parts |= read[1]
        else:
            raise SparkJobError("the sources of another epoch were read ahead")
        if order.is_ahead:
            self._read = request, parts
        return parts

    def _end(self, error: PyFlinkStateError) -> None:
        """End all processes, and then tell those that wait."""
        self._is_over.set()
        self._crew.close()
        if not self._spark.await_end(_GRACE_S):
            self._spark.cancel()
            with suppress(PyFlinkStateError):  # Spark is gone, and its tasks with it
                wait_for(lambda timeout_s: self._spark.await_end(timeout_s) or None, self._spark.gone)
        with self._ending:
            self._has_ended = True
            while not self._orders.empty():
                self._running[self._orders.get_nowait()] = set()
        for order in self._running:
            order.done(EpochEnded(None, error))


class _AttemptThread(threading.Thread):
    """Runs the script of an attempt; where that waits, it waits for the processes."""

    def __init__(self, attempt: Attempt, crew: Crew) -> None:
        super().__init__(daemon=True)
        self.attempt = attempt
        self._crew = crew

    def run(self) -> None:
        """Run it to its end."""
        life = self.attempt.life()
        failure: PyFlinkStateError | None = None
        with suppress(StopIteration):
            while True:
                next(life) if failure is None else life.throw(failure)
                failure = self._failure_of_wait()

    def _failure_of_wait(self) -> PyFlinkStateError | None:
        try:
            self._crew.receive(_LOOK_S)
        except PyFlinkStateError as error:
            return error
        return None
