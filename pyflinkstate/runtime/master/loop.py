"""The master of a job: one thread in the driver that runs the script of the job, and waits where it waits.

The Spark job of an epoch runs concurrently, and everything that happens meanwhile (acknowledgements, reports,
the death of a slot, a request for a savepoint) arrives in one mailbox. So checkpoint ``n`` is written and
completed while epoch ``n + 1`` runs.

:class:`~pyflinkstate.runtime.master.machine.JobMachine` has the script; :class:`Job` carries out its
instructions with the methods of ``actions.py``; :class:`Inbox` finds the next event. No wait is unbounded:
before each it is checked whether everything that owes an event still runs, and if not, that is an event too.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from pyflinkstate.errors import CheckpointError, DriverUnreachableError, PyFlinkStateError, StateQueryError
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master.actions import Actions, JobParts
from pyflinkstate.runtime.master.checkpoint_files import CHECK_INTERVAL_MS
from pyflinkstate.runtime.master.epochs import (
    AlignBarrier,
    Announce,
    AskSource,
    BeginAttempt,
    CancelEpoch,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    ConfirmCheckpoint,
    CountReport,
    EndAttempt,
    Event,
    Failed,
    GoBack,
    LogLateFailure,
    Pause,
    PhaseOver,
    PrepareOutput,
    RunEpoch,
    SavepointRequest,
    SetBarrier,
    ShuffleAhead,
    ShuffledAhead,
    StartSlots,
    StopAtCheckpoint,
    TakeOver,
    Wait,
)
from pyflinkstate.runtime.master.job_reporter import told_to_end_by
from pyflinkstate.runtime.master.machine import JobMachine, Phase, Script
from pyflinkstate.runtime.master.observe import JobExecutionResult
from pyflinkstate.runtime.queries import LiveSlots, StateQueries
from pyflinkstate.runtime.settings import JobStatus, OnSigterm, deletes_checkpoints
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import (
    CancelJob,
    Clock,
    DumpThreads,
    SlotId,
    SlotOutput,
    TaskReport,
    WakeUp,
    take,
)

TICK_S = 0.5
#: Messages that are events of the script as they are.
EVENTS = (EpochEnded, ShuffledAhead, TaskReport, SlotLost, CancelJob, SavepointRequest, StopAtCheckpoint)


class Inbox:
    """Finds the next event: in the mailbox, on the clock, or because something is gone that owes an event.

    Args:
        mailbox: where messages arrive.
        machine: says what the engine is to do.
        actions: knows the checkpoints, the slots and the engine.
        clock: tells the time.
    """

    def __init__(
        self, mailbox: queue.SimpleQueue[object], machine: JobMachine, actions: Actions, clock: Clock
    ) -> None:
        self._mailbox = mailbox
        self._machine = machine
        self._actions = actions
        self._runner = actions.engine.runner
        self._clock = clock
        self._found: deque[Event] = deque()
        self._pause_until_ms = 0

    def pause(self, instruction: Pause) -> None:
        """Begin the delay before a restart."""
        self._pause_until_ms = self._clock.monotonic_ms() + instruction.delay_ms
        self._actions.pause(instruction)

    def next_event(self, wait: Wait) -> Event:
        """Wait for the next event."""
        rests = wait.rests
        while not self._found:
            try:
                self._turn(rests)
            except PyFlinkStateError as error:
                self._found.append(Failed(error))
            rests = False
        return self._found.popleft()

    def _turn(self, rests: bool) -> None:
        phase = self._machine.phase
        if phase is Phase.PAUSED:
            self._wait_for_restart()
        elif rests:
            self._receive(self._actions.input.source.poll_s)
        elif phase in (Phase.IDLE, Phase.CLOSING) and not self._mailbox.empty():
            self._sort(self._mailbox.get_nowait())
        elif self._is_over(phase):
            self._found.append(PhaseOver())
        else:
            self._receive(TICK_S)

    def _is_over(self, phase: Phase) -> bool:
        """Return whether nothing more is to come in a phase but what is in the mailbox."""
        if phase in (Phase.DRAINING, Phase.COMMITTING):
            return not self._actions.has_pending()
        if phase is Phase.STOPPING:
            return not self._machine.flight.is_busy
        return phase not in (Phase.RESTORING, Phase.RUNNING)

    def _receive(self, timeout_s: float) -> None:
        """Look whether all is well, and wait for a message."""
        is_stopping = self._machine.phase is Phase.STOPPING
        if self._mailbox.empty():
            self._look()
        if self._found:
            return
        try:
            mail = take(self._mailbox, timeout_s)
        except queue.Empty:
            if is_stopping:
                self._actions.slots.cut_off()
                self._runner.cancel()  # again: the first time it may not have begun
            return
        if is_stopping:
            self._actions.slots.cut_off(if_due=True)
        self._sort(mail)

    def _sort(self, mail: object) -> None:
        """Find what events a message brings."""
        checkpoints = self._actions.checkpoints
        if isinstance(mail, SlotOutput):
            self._actions.reporter.printed(mail)
        elif isinstance(mail, EVENTS):
            if isinstance(mail, EpochEnded):
                self._found.extend(mail.reports)
            self._found.append(mail)
        elif checkpoints is not None:
            self._found.extend(checkpoints.handle(mail))

    def _look(self) -> None:
        """Find out whether what the job waits for will never come, and let checkpoints expire."""
        running, ahead = self._machine.flight.running, self._machine.flight.ahead
        lost = None if running is None else self._runner.lost()
        if lost is not None and not self._mailbox.empty():
            return  # its event may have arrived in the meantime
        if lost is not None and running is not None:
            self._found.append(EpochEnded(None, lost, running.run))
        if ahead is not None and self._runner.gone() is not None:
            self._found.append(ShuffledAhead(ahead.number))
        if self._machine.phase is Phase.STOPPING:
            return  # the attempt has failed already
        gone = self._gone()
        if gone is not None:
            self._found.append(Failed(gone))
        if self._actions.checkpoints is not None:
            self._found.extend(self._actions.checkpoints.tick())

    def _gone(self) -> PyFlinkStateError | None:
        """Return why nothing can run any more, if what every attempt needs is gone."""
        error = self._runner.gone()
        if error is None and not self._actions.slots.control.is_alive():
            error = DriverUnreachableError(f"job {self._machine.facts.name!r}: its control server has ended")
        return error

    def _wait_for_restart(self) -> None:
        """Wait before the restart, but pass on cancellation and requests for savepoints at once."""
        left_ms = self._pause_until_ms - self._clock.monotonic_ms()
        mail = self._clock.receive(self._mailbox, min(left_ms, CHECK_INTERVAL_MS)) if left_ms > 0 else None
        if mail is None and not self._mailbox.empty():
            mail = self._mailbox.get_nowait()
        if mail is not None:
            self._sort(mail)
            return
        gone = self._gone()
        if gone is not None and not gone.recoverable:
            self._found.append(Failed(gone))
        elif left_ms <= 0:
            self._found.append(PhaseOver())


def _is_called() -> bool:
    return True


class Job:
    """One run of a plan.

    Args:
        parts: what it is made of.
    """

    def __init__(self, parts: JobParts) -> None:
        self.job_id = parts.job_id
        self._settings = parts.settings
        #: What makes it fail is raised where somebody waits for it.
        self._is_heard = _is_called
        self._is_over = False
        self._mailbox = parts.mailbox
        actions = self._actions = Actions(parts)
        self.plan = actions.plan
        self._reporter = actions.reporter
        self._slots = actions.slots
        self._machine = JobMachine(actions.facts(), parts.settings.restart.tracker())
        self._inbox = Inbox(self._mailbox, self._machine, actions, parts.clock)
        self._execute = executors(actions, self._inbox)
        #: Answers questions to its live state.
        self.queries = StateQueries(actions.plan.operators, self._live_slots, parts.clock.now_ms)

    # --- requests, from any thread -----------------------------------------------------------------

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
        self._mailbox.put(CancelJob(by))

    def stop(self, by: str) -> None:
        """End the job as its settings say; a handler of signals may call this.

        Args:
            by: the name of the signal that asks for it.
        """
        stopping = self._settings.stopping
        if stopping.on_sigterm is OnSigterm.AT_ONCE:
            self.cancel(by)
            return
        if stopping.on_sigterm is OnSigterm.SAVEPOINT and stopping.savepoints is not None:
            self._mailbox.put(SavepointRequest(stopping.savepoints, stops_job=True))
        self._mailbox.put(StopAtCheckpoint(by))

    @property
    def stop_timeout_ms(self) -> int:
        """How long :meth:`stop` may take before the job is to be cancelled."""
        return self._settings.stopping.timeout_ms

    def request_savepoint(self, request: SavepointRequest) -> None:
        """Request a savepoint at the next barrier."""
        self._mailbox.put(request)

    def sample(self, stream: str, for_ms: int) -> None:
        """Tell observers a few records of a stream with each epoch that begins in the next milliseconds.

        Args:
            stream: the id of a vertex in the job's description: the results of a source or an operator, or
                the input of a sink.
            for_ms: how long; 0 ends it.
        """
        self._reporter.sample(stream, for_ms)

    def dump_threads(self, slot: SlotId) -> bool:
        """Ask a slot for the stacks of its threads, which come as lines of its output.

        Returns:
            Whether the slot runs, and was asked.
        """
        registry = self._actions.slots.registry
        registry.send(slot, DumpThreads())
        return slot in registry.addresses()

    def wake_up(self) -> None:
        """Tell the job that the source has new input."""
        self._mailbox.put(WakeUp())

    def result(self) -> JobExecutionResult:
        """Return what is known about the job so far."""
        checkpoints = self._actions.checkpoints
        return self._reporter.result(
            self._machine.epoch,
            self._machine.attempt,
            () if checkpoints is None else tuple(checkpoints.history),
        )

    def missing_progress_ms(self) -> int:
        """Return for how long the job has neither got further nor been without anything to do."""
        return self._reporter.progress.missing_ms()

    def slot_pids(self) -> dict[SlotId, int]:
        """Return the process ids of the slots that run now."""
        return self._slots.registry.pids()

    def _live_slots(self) -> LiveSlots | None:
        """Return the slots and where they stand, or None while the job starts or restarts."""
        if self._machine.phase in (Phase.CLOSING, Phase.ENDED):
            raise StateQueryError(
                f"job {self._settings.name!r} is over, and so are its slots: read its state from its last "
                f"checkpoint, with pyflinkstate.state_access.open_checkpoint()"
            )
        epoch = self._machine.settled_epoch
        return None if epoch is None else self._slots.live(epoch)

    # --- the loop ----------------------------------------------------------------------------------

    def run(self, is_heard: Callable[[], bool] = _is_called) -> Iterator[int]:
        """Run to the end of the input, and yield the number of each epoch when it is committed.

        Args:
            is_heard: returns at the end whether somebody waits to whom a failure is raised. If not, the log
                has the whole error. Default: the caller does.

        Raises:
            JobCancelledError: the job was cancelled.
            JobFailedError: it failed after restarts, and may not restart again; ``__cause__`` is the failure.
            PyFlinkStateError: the failure itself, if no restart was tried.
        """
        machine, restore = self._machine, self._actions.restore
        self._is_heard = is_heard
        self._reporter.begin()
        self._slots.open(self._mailbox)
        self._reporter.log.started(self._slots.control.address, restore)
        try:
            self._reporter.started(restore)
            self._actions.input.source.open(self.wake_up)
            yield from self._follow(machine.life())
            self._end(machine.status, machine.error)
            if machine.error is not None:
                raise machine.error
        except GeneratorExit as left:  # the consumer has stopped reading
            deque(self._follow(machine.consumer_left()), maxlen=0)
            self._end(JobStatus.CANCELED, left)
            raise
        except BaseException as error:
            if not self._is_over:
                self._end(JobStatus.CANCELED if told_to_end_by(error) else JobStatus.FAILED, error)
            raise
        finally:
            self._reporter.end()
            self._close()

    def _follow(self, script: Script[None]) -> Iterator[int]:
        """Carry out a script, and yield the epochs that it announces."""
        answer, failure = None, None
        while True:
            try:
                instruction = script.send(answer) if failure is None else script.throw(failure)
            except StopIteration:
                return
            answer, failure = None, None
            if isinstance(instruction, Announce):
                yield from instruction.epochs
                continue
            try:
                answer = self._execute[type(instruction)](instruction)
            except PyFlinkStateError as error:
                failure = error

    def _close(self) -> None:
        runner = self._actions.engine.runner
        try:
            if self._machine.flight.is_busy:
                runner.cancel()
            runner.close()
        finally:
            self._slots.control.close()

    # --- the end -----------------------------------------------------------------------------------

    def _end(self, status: JobStatus, cause: BaseException | None = None) -> None:
        began, self._is_over = self._machine.has_begun, True
        self._machine.break_off(status)
        self._slots.registry.end()
        error = self._close_source(cause)
        if error is not None and cause is None:  # all is well but for that
            status, cause = JobStatus.FAILED, error
            self._machine.break_off(status)
        log, is_heard = self._reporter.log, self._is_heard()
        log.ended(status, self._machine.epoch, cause, is_heard, self._actions.restore)
        try:  # a streaming query cannot be stopped once Spark is gone
            self._end_checkpoints(status, began, JobStatus.FAILED if told_to_end_by(cause) else status)
        finally:
            self._reporter.ended(status, cause)
        if error is not None and cause is error:
            raise error

    def _close_source(self, cause: BaseException | None) -> BaseException | None:
        """Close the source and return what that raises; all hear of the end of the job nevertheless."""
        try:
            self._actions.input.source.close(cause)
        except BaseException as error:  # noqa: BLE001 - it is raised when everything has ended, or logged
            if cause is not None:
                self._reporter.log.source_not_closed(error)
            return error
        return None

    def _end_checkpoints(self, status: JobStatus, began: bool, retained_as: JobStatus) -> None:
        """End the checkpoints; ``retained_as`` decides which stay. A signal is not a user's cancellation."""
        error = CheckpointError(f"the job ended: it is {status.name}")
        waiting: list[object] = [*self._machine.savepoints]
        while not self._mailbox.empty():
            waiting.append(self._mailbox.get_nowait())
        for request in waiting:
            if isinstance(request, SavepointRequest):
                request.fail(error)
        takeover = self._actions.takeover
        if takeover is None:
            return
        takeover.checkpoints.abort_pending(error)
        if began and deletes_checkpoints(self._settings.retention, retained_as):
            takeover.files.discard_all()
        else:
            takeover.end()


def executors(actions: Actions, inbox: Inbox) -> dict[type, Callable[[Any], object]]:
    """Return what carries out each instruction, but for ``Announce``."""
    return {
        AlignBarrier: actions.align,
        AskSource: actions.ask_source,
        BeginAttempt: actions.begin_attempt,
        CancelEpoch: actions.engine.cancel,
        ClaimJob: actions.claim,
        CloseSlots: actions.close,
        CommitOutput: actions.commit,
        ConfirmCheckpoint: actions.confirm,
        CountReport: actions.count,
        EndAttempt: actions.end_attempt,
        GoBack: lambda back: actions.sinks.go_back(back.epoch),
        LogLateFailure: lambda late: actions.reporter.log.failed_late(late.error),
        Pause: inbox.pause,
        PrepareOutput: actions.prepare,
        RunEpoch: actions.engine.run_epoch,
        SetBarrier: actions.set_barrier,
        ShuffleAhead: actions.engine.shuffle_ahead,
        StartSlots: actions.engine.start_slots,
        TakeOver: actions.take_over,
        Wait: inbox.next_event,
    }
