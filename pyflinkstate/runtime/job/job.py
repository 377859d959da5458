"""The job master: the loop in the driver that carries out the instructions of the job's machine.

One thread handles one event at a time. The Spark job of an epoch runs concurrently, and everything that
happens meanwhile (acknowledgements, reports, the death of a slot, a request for a savepoint) arrives in one
mailbox. So checkpoint ``n`` is written and completed while epoch ``n + 1`` runs.

:class:`~pyflinkstate.runtime.job.machine.JobMachine` decides what to do when; this module acts on the source,
the sinks, the slots, the checkpoints and the engine. No wait is unbounded: each turn of the loop checks
whether everything that owes an event still runs, and if not, that is an event as well.
"""

from __future__ import annotations

import queue
import secrets
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    CorruptCheckpointError,
    DriverUnreachableError,
    ImpossibleEventError,
    IncompatibleCheckpointError,
    JobSupersededError,
    PyFlinkStateError,
    StateQueryError,
)
from pyflinkstate.runtime.checkpoints import (
    Checkpointing,
    CheckpointPart,
    CheckpointStats,
    EpochState,
    JobView,
    RestorePoint,
    SavepointRequest,
)
from pyflinkstate.runtime.engine import CodeBook, EpochEnded, EpochRequest, EpochRunner, SlotsRequest
from pyflinkstate.runtime.job.deployment import Deployments, fit
from pyflinkstate.runtime.job.dispatcher import Dispatcher
from pyflinkstate.runtime.job.events import (
    AttemptBegun,
    AttemptEnded,
    BarrierSet,
    CheckpointCompleted,
    CheckpointsSettled,
    ConsumerLeft,
    EpochStarted,
    Event,
    Failed,
    JobClaimed,
    JobStarted,
    JobTakenOver,
    OutputCommitted,
    OutputPrepared,
    PauseEnded,
    ShuffledAhead,
    SlotsClosed,
    SourceAsked,
    WentBack,
)
from pyflinkstate.runtime.job.instructions import (
    AlignBarrier,
    BeginAttempt,
    CancelEpoch,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    CountReport,
    EndAttempt,
    GoBack,
    Instruction,
    LogLateFailure,
    Pause,
    PlanEmptyEpoch,
    PrepareOutput,
    RefuseSavepoint,
    Rest,
    RunEpoch,
    SetBarrier,
    ShuffleAhead,
    StartSlots,
    TakeOver,
)
from pyflinkstate.runtime.job.job_settings import JobSettings
from pyflinkstate.runtime.job.job_sinks import JobSinks
from pyflinkstate.runtime.job.machine import JobFacts, JobMachine, Phase
from pyflinkstate.runtime.job.planner import EpochPlanner, NextTimers, track_event_time
from pyflinkstate.runtime.job.reports.description import outline
from pyflinkstate.runtime.job.reports.job_log import told_to_end_by
from pyflinkstate.runtime.job.reports.job_reporter import JobReporter
from pyflinkstate.runtime.job.reports.observe import JobExecutionResult
from pyflinkstate.runtime.job.source_start import SourceStart
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.queries import LiveSlots, StateQueries
from pyflinkstate.runtime.settings import JobStatus, deletes_checkpoints
from pyflinkstate.runtime.slots import Control, SlotLost, SlotRegistry
from pyflinkstate.runtime.sources import Epoch, GuardedSource
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, run_id_after
from pyflinkstate.runtime.tasks import DriverLink, TaskLink
from pyflinkstate.runtime.wire import (
    CancelJob,
    CheckpointTrigger,
    Clock,
    SlotId,
    SlotOutput,
    TaskReport,
    WakeUp,
    new_secret,
)

TICK_S = 0.5
#: How long the engine may take to end the tasks of a failed attempt before their slots are cut off.
CUT_OFF_MS = 2_000
#: How often a job that waits for its restart checks whether it can restart at all.
CHECK_INTERVAL_MS = 5_000
CLOSE_TIMEOUT_S = 30
#: The phases in which the job waits for messages.
WAITING = (Phase.RESTORING, Phase.RUNNING, Phase.STOPPING, Phase.DRAINING, Phase.COMMITTING)


#: Makes the driver's end of all connections, from the job's secret, its mailbox and the deployments.
ControlFactory = Callable[[bytes, "queue.SimpleQueue[Any]", Deployments], Control]


class Job(JobView):
    """One run of a plan.

    Args:
        plan: the plan to run.
        settings: how to run it.
        runner: the engine that runs epochs.
        control: makes the endpoint to which tasks and slots connect.
        storage: where checkpoints are kept; None if none are taken.
        restore: the checkpoint to start from, if any.
        mailbox: where events arrive.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: JobSettings,
        runner: EpochRunner,
        control: ControlFactory,
        clock: Clock,
        storage: CheckpointFolders | None = None,
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
        self._about = outline(self._plan, settings.page)
        self.job_id = uuid.uuid4().hex if restore is None else restore.metadata.job_id
        self._reporter = JobReporter(self._plan, self.job_id, settings.name, settings.listeners, clock)
        #: What makes it fail is raised where somebody waits for it.
        self._is_heard = True
        self._deployments = Deployments(
            self._plan,
            settings.state_backend,
            None if storage is None else storage.settings,
            settings.checkpoints.incremental,
            settings.slot_memory_bytes,
            settings.job_parameters,
        )
        self._checkpointing = (
            None
            if storage is None
            else Checkpointing(
                self.job_id, settings.name, self._plan, settings.checkpoints, storage, clock, self
            )
        )
        self._sinks = JobSinks(self._plan.sinks, self.job_id, self._check_run)
        log = None
        if self._sinks.rely_on_numbers and self._checkpointing is not None:
            log = self._checkpointing.plan
        self._source = GuardedSource(self._plan.source.source, self._plan.source.name)
        self._planner = EpochPlanner(self._source, log)
        self._event_time = track_event_time(self._plan, clock.monotonic_ms)
        self._timers = NextTimers(self._plan)
        self._start_of_source = SourceStart(self._source, settings.allow_non_restored_state)
        self._epoch_started_ms = 0
        self._last_duration_ms = 0
        self._pause_until_ms = 0
        facts = JobFacts(
            settings.name,
            storage is not None,
            self._plan.uses_timers,
            self._source.commits_every_epoch,
            self._shuffles_ahead(),
        )
        self._machine = JobMachine(facts, settings.restart.tracker())
        self._dispatcher = Dispatcher(self._machine, self._execute)
        #: When to cut off the slots, if what the engine runs is being cancelled and they are still there.
        self._cut_off_at_ms: int | None = None
        self._secret = new_secret(settings.is_encrypted)
        #: The history of runs for sinks, if no checkpoints have one: a run may have to be begun again.
        self._line = RunHistory().continued(0, run_id_after([], secrets.token_hex(4)))
        self._is_over = False
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue() if mailbox is None else mailbox
        self._control: Control | None = None
        self._registry: SlotRegistry | None = None
        #: Answers questions to its live state.
        self.queries = StateQueries(self._plan.operators, self._live_slots, clock.now_ms)

    def _shuffles_ahead(self) -> bool:
        """Return whether an epoch may be read and shuffled while the one before it runs."""
        is_wanted = self._settings.epochs_ahead > 0 and not self._source.commits_every_epoch
        return is_wanted and self._plan.can_shuffle_ahead

    # --- requests, from any thread ------------------------------------------------

    @property
    def name(self) -> str:
        """The name that the program gave it."""
        return self._settings.name

    @property
    def status(self) -> JobStatus:
        """What the job is doing."""
        return self._machine.status

    def cancel(self, by: str = "") -> None:
        """End the job as soon as possible; committed output stays.

        Args:
            by: the name of the signal that asks for it. A handler of signals may call this.
        """
        self._events.put(CancelJob(by))

    def request_savepoint(self, request: SavepointRequest) -> None:
        """Request a savepoint at the next barrier."""
        self._events.put(request)

    def sample(self, stream: str, for_ms: int) -> None:
        """Tell observers a few records of a stream with each epoch that begins in the next milliseconds.

        Args:
            stream: the id of a vertex in the job's description: the results of a source or an operator, or
                the input of a sink.
            for_ms: how long; 0 ends it.
        """
        self._reporter.sample(stream, for_ms)

    def wake_up(self) -> None:
        """Tell the job that the source has new input."""
        self._events.put(WakeUp())

    def result(self) -> JobExecutionResult:
        """Return what is known about the job so far."""
        history = () if self._checkpointing is None else tuple(self._checkpointing.history)
        return self._reporter.result(self._machine.epoch, self._machine.attempt, history)

    def slot_pids(self) -> dict[SlotId, int]:
        """Return the process ids of the slots that run now."""
        return {} if self._registry is None else self._registry.pids()

    def _live_slots(self) -> LiveSlots | None:
        """Return the slots and where they stand, or None while the job starts or restarts."""
        if self._machine.phase in (Phase.CLOSING, Phase.ENDED):
            raise StateQueryError(
                f"job {self._settings.name!r} is over, and so are its slots: read its state from its last "
                f"checkpoint, with pyflinkstate.state_access.open_checkpoint()"
            )
        registry, epoch = self._registry, self._machine.settled_epoch
        if registry is None or epoch is None:
            return None
        return LiveSlots(registry.attempt, epoch, registry.addresses(), self._secret)

    # --- the loop ----------------------------------------------------------------------------------

    def run(self, is_heard: bool = True) -> Iterator[int]:
        """Run to the end of the input, and yield the number of each epoch when it is committed.

        Args:
            is_heard: whether the caller waits for the job and hears of a failure. If not, the log has the
                whole error.

        Raises:
            JobCancelledError: the job was cancelled.
            JobFailedError: it failed after restarts, and may not restart again; ``__cause__`` is the failure.
            PyFlinkStateError: the failure itself, if no restart was tried.
        """
        machine = self._machine
        self._is_heard = is_heard
        self._reporter.begin()
        self._control = self._make_control(self._secret, self._events, self._deployments)
        self._reporter.log.started(self._control.address, self._restore)
        try:
            self._reporter.started(self._restore)
            self._source.open(self.wake_up)
            self._dispatcher.tell(JobStarted())
            while machine.phase is not Phase.ENDED:
                self._take_turn()
                if machine.phase is Phase.IDLE:
                    yield from machine.take_announced()
            self._end(machine.status, machine.error)
            if machine.error is not None:
                raise machine.error
        except GeneratorExit as left:
            self._dispatcher.tell(ConsumerLeft())  # the consumer has stopped reading
            self._end(JobStatus.CANCELED, left)
            raise
        except BaseException as error:
            if not self._is_over:
                self._end(JobStatus.CANCELED if told_to_end_by(error) else JobStatus.FAILED, error)
            raise
        finally:
            self._reporter.end()
            self._close()

    def _close(self) -> None:
        assert self._control is not None
        try:
            if self._machine.is_busy:
                self._runner.cancel()
            self._runner.close()
        finally:
            self._control.close()

    def _take_turn(self) -> None:
        """Look for work between epochs, or wait for an event."""
        try:
            self._take_turn_in(self._machine.phase)
        except PyFlinkStateError as error:
            self._dispatcher.tell(Failed(error))

    def _take_turn_in(self, phase: Phase) -> None:
        if phase is Phase.IDLE:
            self._take_mail()
            if self._machine.phase is Phase.IDLE:
                self._dispatcher.tell(self._next())
        elif phase is Phase.PAUSED:
            self._wait_for_restart()
        elif phase in (Phase.DRAINING, Phase.COMMITTING) and not self._has_pending():
            self._dispatcher.tell(CheckpointsSettled())
        elif phase in WAITING:
            self._receive(TICK_S)
        else:
            raise ImpossibleEventError(f"a job that is {phase.value} does not wait for anything")

    def _execute(self, instruction: Instruction) -> Event | None:
        return _EXECUTE[type(instruction)](self, instruction)

    # --- messages --------------------------------------------------------------------------------------

    def _receive(self, timeout_s: float) -> None:
        """Handle the next event, if one comes, and check that everything that owes an event still runs."""
        was_stopping = self._is_stopping()
        has_come = self._handle_next(timeout_s)
        if was_stopping and (not has_come or self._clock.monotonic_ms() >= (self._cut_off_at_ms or 0)):
            self._cut_off_slots()
        if was_stopping and not has_come and self._is_stopping():
            self._runner.cancel()  # again: the first time it may not have begun
        self._check_runner()
        self._check_alive()
        self._tick()

    def _check_alive(self) -> None:
        """Fail if what every attempt needs is gone, whatever the job is doing."""
        assert self._control is not None
        error = self._runner.gone()
        if error is None and not self._control.is_alive():
            error = DriverUnreachableError(f"job {self._settings.name!r}: its control server has ended")
        if error is not None:
            self.fail(error)

    def _handle_next(self, timeout_s: float) -> bool:
        """Handle the next event; return whether one has come."""
        try:
            mail = self._events.get(timeout=timeout_s)
        except queue.Empty:
            return False
        self._handle(mail, self._dispatcher.tell)
        return True

    def _tick(self) -> None:
        """Let checkpoints expire, unless their acknowledgements have come in the meantime."""
        if self._checkpointing is None or self._is_stopping():
            return
        self._take_mail()
        if not self._is_stopping():
            self._checkpointing.tick()

    def _is_stopping(self) -> bool:
        return self._machine.phase is Phase.STOPPING

    def _check_runner(self) -> None:
        """Tell the machine what has ended if the engine will never tell it."""
        error = self._runner.lost() if self._machine.is_running else None
        if error is not None:
            self._take_mail()  # its event may have arrived in the meantime
        if error is not None and self._machine.is_running:
            self._dispatcher.tell(EpochEnded(None, error, self._machine.run))
        ahead = self._machine.ahead
        if ahead is not None and self._runner.gone() is not None:
            self._dispatcher.tell(ShuffledAhead(ahead))

    def _take_mail(self) -> None:
        while not self._events.empty():
            self._handle(self._events.get_nowait(), self._dispatcher.tell)

    def _handle(self, mail: Any, tell: Callable[[Event], None]) -> None:
        if isinstance(mail, SlotOutput):
            self._reporter.printed(mail)
        elif isinstance(mail, (EpochEnded, ShuffledAhead, TaskReport, SlotLost, CancelJob, SavepointRequest)):
            tell(mail)
        elif self._checkpointing is not None:
            self._checkpointing.handle(mail)

    # --- the beginning of an attempt ---------------------------------------------------------------

    def _begin_attempt(self, instruction: BeginAttempt) -> AttemptBegun:
        assert self._control is not None
        self._registry = self._control.new_attempt(instruction.attempt)
        if self._checkpointing is not None:
            self._checkpointing.begin_attempt()
        return AttemptBegun(self._begin_from(instruction.attempt, self._restore))

    def _begin_from(self, attempt: int, restore: RestorePoint | None) -> int:
        metadata = None if restore is None else restore.metadata
        epoch = 0
        watermarks: dict[str, int] = {}
        counters: dict[str, int] = {}
        if metadata is not None:
            epoch, counters = metadata.epoch, metadata.counters
            watermarks = self._plan.watermarks_of(metadata.watermarks, metadata.source_position)
        # Before the job is taken over, another checkpoint may be the one to restore.
        position = self._start_of_source.position(restore, is_final=self._machine.has_taken_over)
        self._planner.begin(epoch, position)
        self._event_time.begin(epoch, watermarks)
        self._reporter.accumulators.reset(epoch, counters)
        self._deployments.begin_attempt(attempt, epoch, restore)
        self._timers.begin_attempt(are_restored=metadata is not None)
        return epoch

    def _go_back(self, instruction: GoBack) -> WentBack:
        self._sinks.go_back(instruction.epoch)
        return WentBack()

    # --- the beginning of a run --------------------------------------------------------------------

    def _claim(self, _: ClaimJob) -> JobClaimed:
        """Make any older driver of the job end, and restore the last checkpoint that it completed."""
        newest = None if self._checkpointing is None else self._checkpointing.claim(self._restore)
        epoch = 0 if self._restore is None else self._restore.metadata.epoch
        if newest is not None and newest is not self._restore:
            self._check_fits(newest)
            self._restore = newest
            epoch = self._begin_from(self._machine.attempt, newest)
        self._start_of_source.check(self._restore)
        return JobClaimed(epoch, self._restore is not None and bool(self._deployments.slots()))

    def _check_fits(self, newest: RestorePoint) -> None:
        settings = self._settings
        plan = fit(self._program, settings.name, newest.metadata, settings.allow_non_restored_state)
        if [op.max_parallelism for op in plan.operators] != [
            op.max_parallelism for op in self._plan.operators
        ]:
            raise IncompatibleCheckpointError(
                f"{newest.uri}, which another driver has just completed, has other max parallelisms than the "
                f"checkpoint before it: start the program again"
            )

    def _start_slots(self, instruction: StartSlots) -> None:
        slots, name = self._deployments.slots(), self._settings.name
        request = SlotsRequest(TaskLink(self._driver_link(), self._machine.epoch), slots, f"{name}: restore")
        self._start(instruction.run, partial(self._runner.start_slots, request))

    def _take_over(self, _: TakeOver) -> JobTakenOver:
        """Take over the job.

        Failures up to this point have left all checkpoints and all output as they were.
        """
        if self._checkpointing is not None:
            self._checkpointing.take_over(self._restore)
            self._line = self._checkpointing.line
        restored = None if self._restore is None else self._restore.metadata.epoch
        self._sinks.open(self._line, restored, self._machine.epoch)
        if self._sinks.rely_on_numbers and self._restore is not None and self._checkpointing is not None:
            planned = self._checkpointing.planned(self._restore.metadata.epoch)
            self._planner.remember(self._source.planned(planned))
        return JobTakenOver()

    def _check_run(self) -> None:
        """Raise ``JobSupersededError`` if another driver has taken the job over."""
        if self._checkpointing is not None:
            self._checkpointing.check_run()

    # --- epochs ------------------------------------------------------------------------------------

    def _next(self) -> SourceAsked:
        """Ask the source for the next epoch, if that matters."""
        epoch = self._machine.epoch
        if self._machine.is_stopped:
            return SourceAsked(None)
        self._reporter.epoch_is_planned()
        step = self._planner.next(epoch, whole=self._checkpointing is None)
        if step is not None:
            return SourceAsked(step)
        checkpointing = self._checkpointing
        is_due = checkpointing is not None and checkpointing.coordinator.is_due(self._clock.monotonic_ms())
        timers_are_due = self._timers.are_due(self._clock.now_ms())
        return SourceAsked(None, self._planner.is_over, self._has_pending(), is_due, timers_are_due)

    def _has_pending(self) -> bool:
        return self._checkpointing is not None and bool(self._checkpointing.coordinator.pending)

    def _plan_empty_epoch(self, _: PlanEmptyEpoch) -> SourceAsked:
        return SourceAsked(self._planner.empty(self._machine.epoch))

    def _rest(self, _: Rest) -> None:
        self._receive(self._source.poll_s)

    def _set_barrier(self, instruction: SetBarrier) -> BarrierSet:
        """Decide on the barrier: with a savepoint, or a checkpoint that is due by the end of the epoch."""
        self._epoch_started_ms = now_ms = self._clock.monotonic_ms()
        checkpointing, number = self._checkpointing, instruction.number
        if checkpointing is None:
            return BarrierSet(None)
        if instruction.savepoint is not None:
            trigger = self._trigger_savepoint(checkpointing, instruction.savepoint, number, now_ms)
            if trigger is not None:
                return BarrierSet(trigger, instruction.savepoint)
        if instruction.is_needed or checkpointing.coordinator.is_due(now_ms + self._last_duration_ms):
            return BarrierSet(checkpointing.trigger(number, now_ms))
        return BarrierSet(None)

    def _trigger_savepoint(
        self, checkpointing: Checkpointing, request: SavepointRequest, number: int, now_ms: int
    ) -> CheckpointTrigger | None:
        try:
            return checkpointing.trigger_savepoint(request, number, now_ms)
        except PyFlinkStateError as error:
            request.fail(error)
            raise

    def _run_epoch(self, instruction: RunEpoch) -> EpochStarted:
        assert self._registry is not None
        number = instruction.number
        request = attrs.evolve(
            self._request(number, instruction.step.epoch, f"epoch {number}"),
            barrier=instruction.barrier,
            addresses=self._registry.addresses(),
            event_time=self._event_time.progress(number - 1),
            is_final=instruction.is_final,
        )
        self._reporter.epoch_started(self._machine.attempt, number)
        self._start(instruction.run, partial(self._runner.start, request))
        return EpochStarted()

    def _request(self, number: int, epoch: Epoch | None, what: str) -> EpochRequest:
        link = TaskLink(self._driver_link(), number, self._reporter.sampled_now())
        description = f"{self._settings.name}: {what}"
        return EpochRequest(self._plan, link, epoch, None, {}, description, self._code, about=self._about)

    def _shuffle_ahead(self, instruction: ShuffleAhead) -> ShuffledAhead | None:
        """Begin with the next epoch; if that fails, it is planned and read in its turn, as any other."""
        number = instruction.number
        ended = ShuffledAhead(number)
        try:
            epoch = self._planner.ahead(number - 1, whole=self._checkpointing is None)
            if epoch is None:
                return ended
            request = self._request(number, epoch, f"ahead for epoch {number}")
            self._runner.shuffle_ahead(request, partial(self._events.put, ended))
        except PyFlinkStateError as error:
            self._reporter.log.not_ahead(number, error)
            return ended
        return None

    def _start(self, run: int, begin: Callable[[Callable[[EpochEnded], None]], None]) -> None:
        """Let the runner start something; ``run`` tells its end from that of an earlier request."""
        begin(lambda ended: self._events.put(attrs.evolve(ended, run=run)))

    def _driver_link(self) -> DriverLink:
        assert self._control is not None
        attempt, parameters = self._machine.attempt, self._settings.job_parameters
        return DriverLink(self._control.address, self._secret, attempt, parameters)

    def _prepare(self, instruction: PrepareOutput) -> OutputPrepared:
        number = instruction.number
        self._reporter.epoch_ran()
        self._sinks.prepare(number, instruction.results)
        self._planner.ended(number)
        self._event_time.ended(number)
        self._last_duration_ms = self._clock.monotonic_ms() - self._epoch_started_ms
        self._reporter.epoch_prepared(
            number, self._last_duration_ms, self._machine.attempt, self._event_time.at(number)
        )
        return OutputPrepared()

    def _align(self, instruction: AlignBarrier) -> None:
        assert self._checkpointing is not None
        self._checkpointing.barrier_aligned(instruction.trigger.checkpoint_id)

    def _commit(self, instruction: CommitOutput) -> OutputCommitted:
        epoch = instruction.epoch
        began_ms = self._clock.monotonic_ms()
        self._sinks.commit(epoch)
        self._planner.commit(epoch)
        self._event_time.commit(epoch)
        self._reporter.accumulators.fold(epoch)
        if self._sinks.rely_on_numbers and self._checkpointing is not None:
            self._checkpointing.forget_planned(epoch)
        self._reporter.committed(epoch, self._clock.monotonic_ms() - began_ms)
        return OutputCommitted(epoch)

    def _count(self, instruction: CountReport) -> None:
        report = instruction.report
        self._reporter.task_reported(report)
        self._event_time.report(report)
        if report.is_slot:
            self._timers.set_due(report.task, report.next_timer_ms)

    def _refuse(self, instruction: RefuseSavepoint) -> None:
        instruction.request.fail(instruction.error)

    # --- the end of an attempt, and the pause after it ---------------------------------------------

    def _cancel_epoch(self, _: CancelEpoch) -> None:
        """Cancel the epoch of the failed attempt.

        Its slots are cut off after the engine has ended the tasks, or has had a moment to do so. Otherwise
        each task would fail because its slot is gone, and Spark would log each failure.
        """
        self._cut_off_at_ms = self._clock.monotonic_ms() + CUT_OFF_MS
        self._runner.cancel()

    def _cut_off_slots(self) -> None:
        if self._cut_off_at_ms is not None and self._registry is not None:
            self._cut_off_at_ms = None
            self._registry.end()

    def _end_attempt(self, instruction: EndAttempt) -> AttemptEnded:
        self._cut_off_slots()
        error = self._reason_of(instruction.error)
        if self._checkpointing is not None:
            self._checkpointing.abort_pending(error)
        return AttemptEnded(error, self._falls_back(error), self._clock.monotonic_ms())

    def _reason_of(self, error: PyFlinkStateError) -> PyFlinkStateError:
        """Return why an attempt has failed: if there is another driver, most likely because of that."""
        try:
            self._check_run()
        except JobSupersededError as superseded:
            superseded.__cause__ = error if error is not superseded else None
            return superseded
        except CheckpointError:
            return error
        return error

    def _falls_back(self, error: PyFlinkStateError) -> bool:
        """Go back to the checkpoint before a damaged one, if the user allows it and there is one."""
        if not isinstance(error, CorruptCheckpointError) or not self._settings.fall_back:
            return False
        if self._checkpointing is None or self._restore is None or not self._source.is_rewindable:
            return False
        older = self._checkpointing.fall_back(self._restore)
        if older is None:
            return False
        self._reporter.log.falls_back(error, older.uri)
        self._restore = older
        self._planner.remember({})
        return True

    def _pause(self, instruction: Pause) -> None:
        self._pause_until_ms = self._clock.monotonic_ms() + instruction.delay_ms
        if self._registry is not None:
            self._registry.end()
        self._reporter.restarts(instruction.attempt, instruction.error, self._restore)

    def _wait_for_restart(self) -> None:
        """Wait before the restart, but handle cancellation and requests for savepoints at once."""
        left_ms = self._pause_until_ms - self._clock.monotonic_ms()
        mail = self._clock.receive(self._events, min(left_ms, CHECK_INTERVAL_MS)) if left_ms > 0 else None
        if mail is not None:
            self._handle(mail, self._dispatcher.tell)
            return
        self._take_mail()
        self._check_alive()
        if left_ms <= 0 and self._machine.phase is Phase.PAUSED:
            self._dispatcher.tell(PauseEnded())

    # --- the end of a job --------------------------------------------------------------------------

    def _close_slots(self, _: CloseSlots) -> SlotsClosed:
        if self._registry is not None:
            self._registry.close(CLOSE_TIMEOUT_S)
        while not self._events.empty():
            self._handle(self._events.get_nowait(), self._dispatcher.tell_at_once)
        return SlotsClosed()

    def _log_failure(self, instruction: LogLateFailure) -> None:
        self._reporter.log.failed_late(instruction.error)

    def _end(self, status: JobStatus, cause: BaseException | None = None) -> None:
        began, self._is_over = self._machine.has_begun, True
        self._machine.break_off(status)
        if self._registry is not None:
            self._registry.end()
        error = self._close_source(cause)
        if error is not None and cause is None:  # all is well but for that
            status, cause = JobStatus.FAILED, error
            self._machine.break_off(status)
        self._reporter.log.ended(status, self._machine.epoch, cause, self._is_heard)
        try:  # a streaming query cannot be stopped once Spark is gone
            self._end_checkpoints(status, began, JobStatus.FAILED if told_to_end_by(cause) else status)
        finally:
            self._reporter.ended(status, cause)
        if error is not None and cause is error:
            raise error

    def _close_source(self, cause: BaseException | None) -> BaseException | None:
        """Close the source and return what that raises; all hear of the end of the job nevertheless."""
        try:
            self._source.close(cause)
        except BaseException as error:  # noqa: BLE001 - it is raised when everything has ended, or logged
            if cause is not None:
                self._reporter.log.source_not_closed(error)
            return error
        return None

    def _end_checkpoints(self, status: JobStatus, began: bool, retained_as: JobStatus) -> None:
        """End the checkpoints; ``retained_as`` decides which stay. A signal is not a user's cancellation."""
        error = CheckpointError(f"the job ended: it is {status.name}")
        waiting = self._machine.savepoints
        while not self._events.empty():
            mail = self._events.get_nowait()
            if isinstance(mail, SavepointRequest):
                waiting.append(mail)
        for request in waiting:
            request.fail(error)
        waiting.clear()
        if self._checkpointing is None:
            return
        self._checkpointing.abort_pending(error)
        if began and deletes_checkpoints(self._settings.retention, retained_as):
            self._checkpointing.discard_all()
        else:
            self._checkpointing.end()

    # --- the view of checkpointing ---------------------------------------------------------

    def epoch_state(self, epoch: int) -> EpochState:
        """See :class:`JobView`."""
        watermarks = self._event_time.at(epoch)
        return EpochState(self._planner.position(epoch), self._reporter.accumulators.total(epoch), watermarks)

    def send(self, slot: SlotId, message: object) -> None:
        """See :class:`JobView`."""
        if self._registry is not None:
            self._registry.send(slot, message)

    def completed(self, restore: RestorePoint, stops_job: bool) -> None:
        """See :class:`JobView`."""
        self._restore = restore
        self._dispatcher.tell_at_once(CheckpointCompleted(restore.metadata.epoch, stops_job))

    def checkpoint_ended(self, stats: CheckpointStats) -> None:
        """See :class:`JobView`."""
        self._reporter.checkpoint_ended(stats)

    def checkpoint_written(self, checkpoint_id: int, parts: Iterable[CheckpointPart]) -> None:
        """See :class:`JobView`."""
        self._reporter.checkpoint_written(checkpoint_id, parts)

    def fail(self, error: PyFlinkStateError) -> None:
        """See :class:`JobView`."""
        self._dispatcher.tell(Failed(error))


#: The handler of each instruction; the event that it returns goes to the machine.
_EXECUTE: dict[type, Callable[[Job, Any], Event | None]] = {
    AlignBarrier: Job._align,
    BeginAttempt: Job._begin_attempt,
    CancelEpoch: Job._cancel_epoch,
    ClaimJob: Job._claim,
    CloseSlots: Job._close_slots,
    CommitOutput: Job._commit,
    CountReport: Job._count,
    EndAttempt: Job._end_attempt,
    GoBack: Job._go_back,
    LogLateFailure: Job._log_failure,
    Pause: Job._pause,
    PlanEmptyEpoch: Job._plan_empty_epoch,
    PrepareOutput: Job._prepare,
    RefuseSavepoint: Job._refuse,
    Rest: Job._rest,
    RunEpoch: Job._run_epoch,
    SetBarrier: Job._set_barrier,
    ShuffleAhead: Job._shuffle_ahead,
    StartSlots: Job._start_slots,
    TakeOver: Job._take_over,
}
