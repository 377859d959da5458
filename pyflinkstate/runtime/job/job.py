"""The job master: drives epochs, checkpoints, commits and restarts from the driver.

One thread handles one event at a time; the Spark job of an epoch runs beside it, and what happens
meanwhile (acknowledgements, reports, a slot that died, somebody who wants a savepoint) arrives in one
mailbox. So checkpoint ``n`` is written and completed while epoch ``n + 1`` runs.

An attempt starts from a completed checkpoint, or from nothing. Any failure ends it: its slots are cut
off, what its sinks prepared is thrown away, and the restart strategy decides whether the next one
starts. Nothing of a failed attempt reaches the next one: tasks, reports and slots carry the attempt's
number, and a checkpoint's id is never used again.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    DriverUnreachableError,
    IncompatibleCheckpointError,
    JobCancelledError,
    JobFailedError,
    JobSupersededError,
    PyFlinkStateError,
    RuntimeFailure,
)
from pyflinkstate.runtime.checkpoints import (
    Checkpointing,
    CheckpointStats,
    EpochState,
    JobView,
    RestorePoint,
    SavepointRequest,
)
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.job.deployment import Deployments, fit
from pyflinkstate.runtime.job.job_settings import JobSettings
from pyflinkstate.runtime.job.observe import Accumulators, EpochStats, JobExecutionResult, log_output
from pyflinkstate.runtime.job.planner import EpochPlanner, NextTimers, Step, track_event_time
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import JobStatus, deletes_checkpoints
from pyflinkstate.runtime.sinks import ForeachEpochSink, RunAwareSink, open_sink
from pyflinkstate.runtime.slots import Control, SlotLost, SlotRegistry
from pyflinkstate.runtime.sources import Epoch, GuardedSource
from pyflinkstate.runtime.storage import CheckpointStorage, RunHistory, run_id_after
from pyflinkstate.runtime.tasks import DriverLink, TaskLink
from pyflinkstate.runtime.wire import (
    CancelJob,
    CheckpointTrigger,
    Clock,
    SlotId,
    SlotOutput,
    TaskReport,
    WakeUp,
)

_log = logging.getLogger("pyflinkstate")

TICK_S = 0.5
CLOSE_TIMEOUT_S = 30


#: Makes the driver's end of all connections: from the job's secret, its mailbox, and what slots shall run.
ControlFactory = Callable[[bytes, "queue.SimpleQueue[Any]", Deployments], Control]


class Job(JobView):
    """One run of a plan.

    Args:
        plan: what to run.
        settings: how.
        runner: what runs an epoch.
        control: makes the endpoint that tasks and slots connect to.
        storage: where checkpoints go; None where none are taken.
        restore: the checkpoint to start from.
        mailbox: where events arrive.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: JobSettings,
        runner: EpochRunner,
        control: ControlFactory,
        clock: Clock,
        storage: CheckpointStorage | None = None,
        restore: RestorePoint | None = None,
        mailbox: queue.SimpleQueue[Any] | None = None,
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._make_control = control
        self._clock = clock
        self._restore = restore
        self._program = self._plan = plan
        if restore is not None:
            self._plan = fit(plan, settings.name, restore.metadata, settings.allow_non_restored_state)
        self._code = CodeBook(self._plan)
        self.job_id = uuid.uuid4().hex if restore is None else restore.metadata.job_id
        self.status = JobStatus.CREATED
        self._deployments = Deployments(
            self._plan,
            settings.state_backend,
            None if storage is None else storage.settings,
            settings.checkpoints.incremental,
            settings.slot_memory_bytes,
        )
        self._checkpointing = (
            None
            if storage is None
            else Checkpointing(
                self.job_id, settings.name, self._plan, settings.checkpoints, storage, clock, self
            )
        )
        self._restarts = settings.restart.tracker()
        self._accumulators = Accumulators()
        self._attempt = 0
        self._epoch = 0
        self._committed = 0
        #: Up to this epoch it was said that epochs are committed, or will be: these are ``_unannounced``.
        self._announced = 0
        self._unannounced: list[int] = []
        #: Epochs are cut the same way also after a crash of this program, where a sink goes by their numbers.
        self._logs_epochs = any(isinstance(sink.sink, ForeachEpochSink) for sink in self._plan.sinks)
        log = self._checkpointing.plan if self._logs_epochs and self._checkpointing is not None else None
        self._source = GuardedSource(self._plan.source.source, self._plan.source.name)
        self._planner = EpochPlanner(self._source, log)
        self._event_time = track_event_time(self._plan, clock.monotonic_ms)
        #: The epoch that ends event time has been run.
        self._is_final = False
        #: Where the source began; asked once, so that a restart without checkpoint begins there again.
        self._initial: Any = None
        self._timers = NextTimers(self._plan)
        self._last_duration_ms = 0
        #: The slots have restored their state, and the sinks are open, for the run that began last.
        self._has_taken_over = False
        self._are_sinks_open = False
        self._running = False
        #: Counts the epochs that were asked for.
        self._epoch_run = 0
        self._ended: EpochEnded | None = None
        self._failure: PyFlinkStateError | None = None
        self._cancelled: JobCancelledError | None = None
        self._savepoint_requests: list[SavepointRequest] = []
        #: The savepoint that the job stops with, while it is being taken.
        self._stopping: SavepointRequest | None = None
        self._stopped = False
        self._secret = secrets.token_bytes(32)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue() if mailbox is None else mailbox
        self._control: Control | None = None
        self._registry: SlotRegistry | None = None

    # --- what others may ask for, from any thread ------------------------------------------------

    def cancel(self) -> None:
        """End the job as soon as may be; what is committed stays."""
        self._events.put(CancelJob())

    def request_savepoint(self, request: SavepointRequest) -> None:
        """Take a savepoint at the next barrier."""
        self._events.put(request)

    def wake_up(self) -> None:
        """The source has something new."""
        self._events.put(WakeUp())

    def result(self) -> JobExecutionResult:
        """Return what is known of the job so far."""
        history = () if self._checkpointing is None else tuple(self._checkpointing.history)
        return JobExecutionResult(
            self.job_id,
            self._accumulators.total(self._epoch),
            self._accumulators.rejected(),
            tuple(stats for stats in history if stats.failure is None),
            self._epoch,
            self._attempt,
            tuple(stats for stats in history if stats.failure is not None),
            self._accumulators.metrics(),
        )

    def slot_pids(self) -> dict[SlotId, int]:
        """Return the process ids of the slots that run now."""
        return {} if self._registry is None else self._registry.pids()

    # --- the life of a job -----------------------------------------------------------------------

    def run(self) -> Iterator[int]:
        """Run to the end of the input; yields the number of each epoch when it is committed.

        Raises:
            JobCancelledError: somebody cancelled it.
            JobFailedError: it was restarted, and may not be again; ``__cause__`` is the failure.
            PyFlinkStateError: the failure itself, where no restart was tried.
        """
        self._control = self._make_control(self._secret, self._events, self._deployments)
        try:
            self._source.open(self.wake_up)
            failure, delay_ms = None, 0
            while True:
                try:
                    self._begin_attempt()
                    if failure is not None:
                        self._go_back(failure, delay_ms)
                    if not self._has_taken_over:
                        self._take_over()
                    yield from self._run_attempt()
                    break
                except PyFlinkStateError as error:
                    failure, delay_ms = error, self._end_attempt(error)
            self._close_slots()
            self._end(JobStatus.FINISHED)
        except (GeneratorExit, JobCancelledError) as error:
            self._close_slots()  # nobody wants more results
            self._end(JobStatus.CANCELED, error)
            raise
        except BaseException as error:
            self._end(JobStatus.FAILED, error)
            raise
        finally:
            self._control.close()
            if self._running:
                self._runner.cancel()

    # --- the beginning of a run ------------------------------------------------------------------

    def _take_over(self) -> None:
        """Begin a run: nothing that is there is touched before every slot has restored its state.

        What goes wrong before leaves all checkpoints and all output as they were.
        """
        self._claim()
        if self._restore is not None:
            self._start_slots()
        line = RunHistory().continued(0, run_id_after([], secrets.token_hex(4)))
        if self._checkpointing is not None:
            self._checkpointing.take_over()
            line = self._checkpointing.line
        self._open_sinks(line)
        self._announced = self._epoch
        restored = None if self._restore is None else self._restore.metadata.epoch
        if self._logs_epochs and restored is not None and self._checkpointing is not None:
            self._planner.remember(self._checkpointing.planned(restored))
        self._has_taken_over = True

    def _claim(self) -> None:
        """Have any older driver of the job end; what it has completed until then is restored."""
        if self._checkpointing is None:
            return
        newest = self._checkpointing.claim(self._restore)
        if newest is None or newest is self._restore:
            return
        settings = self._settings
        plan = fit(self._program, settings.name, newest.metadata, settings.allow_non_restored_state)
        if [op.max_parallelism for op in plan.operators] != [
            op.max_parallelism for op in self._plan.operators
        ]:
            raise IncompatibleCheckpointError(
                f"{newest.uri}, which another driver has just completed, has other max parallelisms than the "
                f"checkpoint before it: start the program again"
            )
        self._restore = newest
        self._begin_from(newest)

    def _start_slots(self) -> None:
        """Have every slot restore its state; no record is read."""
        slots = self._deployments.slots()
        if not slots:
            return
        request = SlotsRequest(
            TaskLink(self._driver_link(), self._epoch), slots, f"{self._settings.name}: restore"
        )
        self._start(partial(self._runner.start_slots, request))
        self._wait_until(lambda: not self._running)
        self._raise_failure()
        if self._ended is not None and self._ended.error is not None:
            raise self._ended.error

    def _open_sinks(self, line: RunHistory) -> None:
        """Open the sinks for a new run; one that does not know of runs is opened just once."""
        restored = None if self._restore is None else self._restore.metadata.epoch
        for sink in self._plan.sinks:
            self._check_run()
            if not self._are_sinks_open or isinstance(sink.sink, RunAwareSink):
                open_sink(sink.sink, self.job_id, line, restored)
            else:
                sink.sink.rewind(self._epoch)
                sink.sink.commit(self._epoch)
        self._are_sinks_open = True

    def _check_run(self) -> None:
        """Raise ``JobSupersededError`` if another driver has taken the job over."""
        if self._checkpointing is not None:
            self._checkpointing.check_run()

    # --- the end of a job ------------------------------------------------------------------------

    def _close_slots(self) -> None:
        """Close the functions. What ``close`` raises is logged: the results are committed."""
        self._await_end_of_epoch()
        self._failure = None
        if self._registry is not None:
            self._registry.close(CLOSE_TIMEOUT_S)
        while not self._events.empty():
            self._handle(self._events.get())
        if self._failure is not None and self._failure is not self._cancelled:
            _log.warning("job %r has ended, but: %s", self._settings.name, self._failure)

    def _end(self, status: JobStatus, cause: BaseException | None = None) -> None:
        began, self.status = self.status is not JobStatus.CREATED, status
        if self._registry is not None:
            self._registry.end()
        try:
            self._source.close(cause)
        finally:  # where Spark is gone a streaming query cannot even be stopped
            self._end_checkpoints(status, began)
        for listener in self._settings.listeners:
            listener.on_end(status)

    def _end_checkpoints(self, status: JobStatus, began: bool) -> None:
        error = CheckpointError(f"the job ended: it is {status.name}")
        while not self._events.empty():
            event = self._events.get()
            if isinstance(event, SavepointRequest):
                self._savepoint_requests.append(event)
        for request in self._savepoint_requests:
            request.fail(error)
        self._savepoint_requests.clear()
        if self._checkpointing is None:
            return
        self._checkpointing.abort_pending(error)
        if began and deletes_checkpoints(self._settings.retention, status):
            self._checkpointing.discard_all()
        else:
            self._checkpointing.end()

    def _begin_attempt(self) -> None:
        assert self._control is not None
        self._registry = self._control.new_attempt(self._attempt)
        if self._checkpointing is not None:
            self._checkpointing.begin_attempt()
        self._failure = self._cancelled
        self._begin_from(self._restore)

    def _begin_from(self, restore: RestorePoint | None) -> None:
        metadata = None if restore is None else restore.metadata
        self._epoch = self._committed = 0 if metadata is None else metadata.epoch
        if metadata is not None:
            position = metadata.source_position
            self._source.commit(position)
        else:
            if self._initial is None:
                self._initial = self._source.initial_offset()
            position = self._initial
        self._planner.begin(self._epoch, position)
        self._event_time.begin(self._epoch, {} if metadata is None else metadata.watermarks)
        self._is_final = False
        self._accumulators.reset(self._epoch, {} if metadata is None else metadata.counters)
        self._deployments.begin_attempt(self._attempt, self._epoch, restore)
        self._timers.begin_attempt(are_restored=metadata is not None)

    def _end_attempt(self, error: PyFlinkStateError) -> int:
        """Return after how many milliseconds the next attempt begins; raises what ends the job."""
        if self.status is not JobStatus.CREATED:
            self.status = JobStatus.RESTARTING
        self._await_end_of_epoch()
        error = self._reason_of(error)
        if self._checkpointing is not None:
            self._checkpointing.abort_pending(error)
        delay_ms = 0 if self._falls_back(error) else self._delay_after(error)
        self._attempt += 1
        return delay_ms

    def _reason_of(self, error: PyFlinkStateError) -> PyFlinkStateError:
        """Return why an attempt has failed: most likely because of another driver, if there is one."""
        try:
            self._check_run()
        except JobSupersededError as superseded:
            superseded.__cause__ = error if error is not superseded else None
            return superseded
        except CheckpointError:
            return error
        return error

    def _go_back(self, error: PyFlinkStateError, delay_ms: int) -> None:
        """Have sinks and listeners know that an attempt begins after a failure, and wait."""
        if self._has_taken_over:
            self._check_run()
            for sink in self._plan.sinks:
                sink.sink.rewind(self._epoch)
                sink.sink.commit(self._epoch)  # again, if it was the commit that failed
            self._announce(self._epoch)
        for listener in self._settings.listeners:
            listener.on_restart(self._attempt, error)
        self._pause(delay_ms)

    def _pause(self, delay_ms: int) -> None:
        """Wait before the restart; who cancels the job or wants a savepoint need not wait."""
        until_ms = self._clock.monotonic_ms() + delay_ms
        while (left_ms := until_ms - self._clock.monotonic_ms()) > 0:
            event = self._clock.receive(self._events, left_ms)
            if isinstance(event, SavepointRequest):
                event.fail(CheckpointError("the job waits for its restart: ask again when it is running"))
            elif event is not None:
                self._handle(event)
            if self._cancelled is not None:
                raise self._cancelled

    def _delay_after(self, error: PyFlinkStateError) -> int:
        """Return how long to wait before the restart; raises what ends the job if there is to be none."""
        delay_ms = self._restarts.notify_failure(self._clock.monotonic_ms()) if error.recoverable else None
        if delay_ms is not None:
            return delay_ms
        if self._attempt == 0 or not error.recoverable:
            raise error
        raise JobFailedError(
            f"job {self._settings.name!r} failed in epoch {self._epoch + 1} after "
            f"{self._attempt} restarts: {error}"
        ) from error

    def _falls_back(self, error: PyFlinkStateError) -> bool:
        """Go back to the checkpoint before a damaged one, where the user wants that and there is one."""
        if not isinstance(error, CorruptCheckpointError) or not self._settings.fall_back:
            return False
        if self._checkpointing is None or self._restore is None or not self._source.is_rewindable:
            return False
        older = self._checkpointing.fall_back(self._restore)
        if older is None:
            return False
        _log.warning("%s; going back to %s", error, older.uri)
        self._restore = older
        self._has_taken_over = False
        self._planner.remember({})
        return True

    def _await_end_of_epoch(self) -> None:
        """Cancel what the failed attempt has running; its slots are cut off, so tasks end too."""
        if self._running:
            assert self._registry is not None
            self._registry.end()
            self._runner.cancel()
        while self._running:
            self._receive(TICK_S)

    # --- epochs ----------------------------------------------------------------------------------

    def _run_attempt(self) -> Iterator[int]:
        self.status = JobStatus.RUNNING
        while not self._stopped:
            self._take_mail()
            self._raise_failure()
            step = self._next_step()
            if step is not None:
                self._run_epoch(step)
            elif self._planner.is_over and self._committed == self._epoch:
                return
            else:
                self._rest()
            yield from self._newly_committed()

    def _next_step(self) -> Step | None:
        """Return what to run; None when there is nothing, now or ever."""
        step = self._planner.next(self._epoch, whole=self._checkpointing is None)
        if step is not None:
            return step
        is_last = self._planner.is_over
        if is_last and not self._is_final and self._plan.uses_timers:
            return self._planner.empty(self._epoch)
        if self._wants_barrier(is_last) or (not is_last and self._timers.are_due(self._clock.now_ms())):
            return self._planner.empty(self._epoch)
        return None

    def _wants_barrier(self, is_last: bool) -> bool:
        """Return whether an empty epoch is worth its barrier: nothing else is there to do."""
        if self._checkpointing is None:
            return False
        if self._savepoint_requests:
            return True
        if self._committed == self._epoch or self._checkpointing.coordinator.pending:
            return False
        is_due = self._checkpointing.coordinator.is_due(self._clock.monotonic_ms())
        return is_last or self._must_commit() or is_due

    def _must_commit(self) -> bool:
        return self._source.commits_every_epoch

    def _rest(self) -> None:
        """Wait for mail, a little while."""
        self._receive(self._source.poll_s)
        if self._checkpointing is not None:
            self._checkpointing.tick()

    def _run_epoch(self, step: Step) -> None:
        number = self._epoch + 1
        started_ms = self._clock.monotonic_ms()
        if step.is_last:
            self._wait_until(self._nothing_pending)
        barrier = self._barrier(number, started_ms, step.is_last)
        is_final = step.is_last or (self._stopping is not None and self._stopping.drains)
        self._start(partial(self._runner.start, self._request(number, step.epoch, barrier, is_final)))
        self._wait_until(lambda: not self._running)
        self._epoch_ended(number, started_ms)
        self._is_final = is_final
        if barrier is not None and self._checkpointing is not None:
            for trigger in reversed(barrier.all()):  # the savepoint waits for the checkpoint
                self._checkpointing.barrier_aligned(trigger.checkpoint_id)
        if self._checkpointing is None:
            self._commit(self._epoch)
        elif step.is_last or self._stopping is not None:
            self._wait_until(self._nothing_pending)
            if is_final and not step.is_last and not self._stopped:
                raise RuntimeFailure("the savepoint failed, and event time had ended for it: going back")

    def _start(self, begin: Callable[[Callable[[EpochEnded], None]], None]) -> None:
        """Have the runner begin something; its end is told from that of what was given up before."""
        self._ended = None
        self._epoch_run += 1
        run = self._epoch_run
        begin(lambda ended: self._events.put(attrs.evolve(ended, run=run)))
        self._running = True

    def _epoch_ended(self, number: int, started_ms: int) -> None:
        ended = self._ended
        assert ended is not None
        if ended.error is not None:
            raise self._failure or ended.error
        assert ended.results is not None
        if self._logs_epochs:  # it writes where nobody can tell an older driver's output from a newer one's
            self._check_run()
        for sink, results in zip(self._plan.sinks, ended.results, strict=True):
            sink.sink.prepare(number, results)
        self._planner.ended(number)
        self._event_time.ended(number)
        self._epoch = number
        self._last_duration_ms = self._clock.monotonic_ms() - started_ms
        self._tell_of_epoch(number)

    def _nothing_pending(self) -> bool:
        return self._checkpointing is None or not self._checkpointing.coordinator.pending

    def _request(
        self, number: int, epoch: Epoch | None, barrier: CheckpointTrigger | None, is_final: bool
    ) -> EpochRequest:
        assert self._registry is not None
        return EpochRequest(
            self._plan,
            TaskLink(self._driver_link(), number),
            epoch,
            barrier,
            self._registry.addresses(),
            f"{self._settings.name}: epoch {number}",
            self._code,
            self._event_time.progress(number - 1),
            is_final,
        )

    def _driver_link(self) -> DriverLink:
        assert self._control is not None
        return DriverLink(self._control.address, self._secret, self._attempt)

    def _barrier(self, number: int, now_ms: int, is_last: bool) -> CheckpointTrigger | None:
        """Return the barrier at the end of the epoch: with a savepoint, or of a checkpoint due by then."""
        checkpointing = self._checkpointing
        self._stopping = None
        if checkpointing is None:
            return None
        if self._savepoint_requests:
            request = self._savepoint_requests.pop(0)
            trigger = checkpointing.trigger_savepoint(request, number, now_ms)
            if trigger is not None:
                self._stopping = request if request.stops_job else None
                return trigger
        due = checkpointing.coordinator.is_due(now_ms + self._last_duration_ms)
        if is_last or self._must_commit() or due:
            return checkpointing.trigger(number, now_ms)
        return None

    def _commit(self, epoch: int) -> None:
        self._check_run()
        for sink in self._plan.sinks:
            sink.sink.commit(epoch)
        self._planner.commit(epoch)
        self._event_time.commit(epoch)
        self._accumulators.fold(epoch)
        self._announce(epoch)
        self._committed = epoch
        if self._logs_epochs and self._checkpointing is not None:
            self._checkpointing.forget_planned(epoch)

    def _announce(self, epoch: int) -> None:
        self._unannounced.extend(range(self._announced + 1, epoch + 1))
        self._announced = max(self._announced, epoch)

    def _newly_committed(self) -> Iterator[int]:
        while self._unannounced:
            yield self._unannounced.pop(0)

    def _tell_of_epoch(self, number: int) -> None:
        names = {f"{source.name}.records_out" for source in self._plan.sources}
        records = sum(self._accumulators.of_epoch(number, name) for name in names)
        stats = EpochStats(number, records, self._last_duration_ms, self._attempt)
        for listener in self._settings.listeners:
            listener.on_epoch(stats)

    # --- events ----------------------------------------------------------------------------------

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._raise_failure()
            self._receive(TICK_S)
            if self._checkpointing is not None:
                self._checkpointing.tick()
        self._raise_failure()  # it may have come together with what was waited for

    def _receive(self, timeout_s: float) -> None:
        """Handle the next event if one comes, and see whether those who owe one are still there."""
        with contextlib.suppress(queue.Empty):
            self._handle(self._events.get(timeout=timeout_s))
        self._check_runner()
        assert self._control is not None
        if not self._control.is_alive():
            self.fail(DriverUnreachableError(f"job {self._settings.name!r}: its control server has ended"))

    def _check_runner(self) -> None:
        error = self._runner.lost() if self._running else None
        if error is None:
            return
        self._take_mail()  # it may have said so in the meantime
        if self._running:
            self._handle(EpochEnded(None, error, self._epoch_run))
            self._epoch_run += 1

    def _take_mail(self) -> None:
        while not self._events.empty():
            self._handle(self._events.get())

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _handle(self, event: Any) -> None:
        if isinstance(event, EpochEnded):
            self._handle_end(event)
        elif isinstance(event, TaskReport):
            self._handle_report(event)
        elif isinstance(event, SlotLost):
            if event.attempt == self._attempt:
                self.fail(event.error)
        elif isinstance(event, SlotOutput):
            log_output(event)
        elif isinstance(event, (CancelJob, SavepointRequest)):
            self._handle_request(event)
        elif self._checkpointing is not None:
            self._checkpointing.handle(event)

    def _handle_end(self, ended: EpochEnded) -> None:
        if ended.run == self._epoch_run:
            self._running, self._ended = False, ended

    def _handle_request(self, request: CancelJob | SavepointRequest) -> None:
        if isinstance(request, CancelJob):
            self.fail(JobCancelledError(f"job {self._settings.name!r} was cancelled"))
        elif self._checkpointing is None:
            error = "a savepoint needs enable_checkpointing(): it is one more checkpoint"
            request.fail(ConfigurationError(error))
        else:
            self._savepoint_requests.append(request)

    def _handle_report(self, report: TaskReport) -> None:
        if report.attempt != self._attempt:
            return
        if report.error is not None:
            self.fail(report.error)
            return
        self._accumulators.add(report)
        self._event_time.report(report)
        if report.is_slot:
            self._timers.heard(report.task, report.next_timer_ms)

    # --- what checkpointing asks and tells ---------------------------------------------------------

    def epoch_state(self, epoch: int) -> EpochState:
        """See :class:`JobView`."""
        watermarks = self._event_time.at(epoch)
        return EpochState(self._planner.position(epoch), self._accumulators.total(epoch), watermarks)

    def send(self, slot: SlotId, message: object) -> None:
        """See :class:`JobView`."""
        if self._registry is not None:
            self._registry.send(slot, message)

    def completed(self, restore: RestorePoint, stops_job: bool) -> None:
        """See :class:`JobView`."""
        self._restore = restore
        self._restarts.notify_progress()
        self._stopped = self._stopped or stops_job
        if restore.metadata.epoch > self._committed:
            self._commit(restore.metadata.epoch)

    def checkpoint_ended(self, stats: CheckpointStats) -> None:
        """See :class:`JobView`."""
        for listener in self._settings.listeners:
            if stats.failure is None:
                listener.on_checkpoint(stats)
            else:
                listener.on_checkpoint_failed(stats)

    def fail(self, error: PyFlinkStateError) -> None:
        """See :class:`JobView`. The first failure counts; what follows is most often its consequence."""
        if isinstance(error, JobCancelledError):
            self._cancelled = error
        self._failure = self._cancelled or self._failure or error
