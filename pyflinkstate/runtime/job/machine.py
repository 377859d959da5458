"""The life of a job as a state machine: events in, instructions out; no I/O, no clock, no threads.

The driver loop (``job``) carries out the instructions. Their results, and the messages in the job's mailbox,
are the events. An attempt goes through these phases::

    CREATED -> BEGINNING -> CLAIMING -> RESTORING -> TAKING_OVER -> IDLE
                ^     |                                              ^
              PAUSED  +-> GOING_BACK --------------------------------+
                          (if the job has taken over before)

    IDLE -> DRAINING -> SETTING_BARRIER -> RUNNING -> PREPARING -> COMMITTING -> IDLE -> CLOSING -> ENDED
            (before the last epoch)                                (after the last one)

    any of them -> STOPPING -> ENDING_ATTEMPT -> PAUSED, or CLOSING or ENDED
                   (what the engine runs must end)

While an epoch is RUNNING, the engine may read and shuffle the input of the next one (``ShuffleAhead``).

What holds in every phase:

* An attempt starts from a completed checkpoint, or from nothing. Any failure ends it, and the restart
  strategy decides whether and when the next one begins. The first failure counts, as later ones are usually
  its consequences. Only a cancellation takes precedence.
* Every attempt but the first follows a pause, also if the one before it failed while it began: so a storage
  that is away does not use up all restarts at once, and a cancellation is heard between two attempts.
* Nothing of a failed attempt reaches the next one: reports and slots carry the number of the attempt, and
  each request to the engine has a number (``run``), which tells its end from that of an earlier request.
* What a task does after its epoch has ended changes nothing: it is a copy that nobody waits for.
* Never more than one epoch is shuffled ahead, and nothing depends on it: what fails there is done again when
  the epoch runs, and counts then. It ends with its attempt, as everything that the engine runs.
* No existing checkpoint or output is touched before every slot has restored its state (``TAKING_OVER``).
* The job never goes back to before its last commit: it only commits what a completed checkpoint covers.

An event that is impossible in a phase is a bug in this package: ``ImpossibleEventError`` shows both.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    ImpossibleEventError,
    JobCancelledError,
    JobFailedError,
    JobSupersededError,
    PyFlinkStateError,
    RuntimeFailure,
)
from pyflinkstate.runtime.checkpoints import SavepointRequest
from pyflinkstate.runtime.engine import EpochEnded
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
    InstructionFailed,
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
from pyflinkstate.runtime.job.planner import Step
from pyflinkstate.runtime.settings import JobStatus, RestartTracker
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, TaskReport

Instructions = list[Instruction]


class Phase(enum.Enum):
    """The phase of a job."""

    CREATED = "created"
    #: The job waits before a restart.
    PAUSED = "paused"
    #: An attempt is being set up.
    BEGINNING = "beginning"
    #: Sinks go back to where the attempt begins.
    GOING_BACK = "going back"
    #: Older drivers of the job are being excluded.
    CLAIMING = "claiming"
    #: Slots restore their state, and nothing else has been touched.
    RESTORING = "restoring"
    TAKING_OVER = "taking over"
    #: Between two epochs.
    IDLE = "idle"
    #: The last epoch waits until no checkpoint is pending.
    DRAINING = "draining"
    SETTING_BARRIER = "setting the barrier"
    #: The engine runs an epoch.
    RUNNING = "running"
    #: Sinks prepare the output of the epoch.
    PREPARING = "preparing output"
    #: The job waits for the checkpoint with which it ends or stops.
    COMMITTING = "committing"
    #: The attempt has failed, and the engine still runs a part of it.
    STOPPING = "stopping"
    ENDING_ATTEMPT = "ending the attempt"
    #: User functions are being closed.
    CLOSING = "closing"
    ENDED = "ended"


@attrs.frozen
class JobFacts:
    """What the machine must know about its job.

    Attributes:
        name: the name of the job, for messages.
        has_checkpoints: whether checkpoints are taken, with which sinks commit.
        uses_timers: whether an empty epoch at the end is needed to fire the remaining timers.
        commits_every_epoch: whether its source needs a checkpoint at the end of every epoch.
        shuffles_ahead: whether the input of an epoch is read and shuffled while the one before it runs.
    """

    name: str
    has_checkpoints: bool = False
    uses_timers: bool = False
    commits_every_epoch: bool = False
    shuffles_ahead: bool = False


class JobMachine:
    """The phases of one job.

    Args:
        facts: what the machine must know about the job.
        restarts: the restart strategy.
    """

    def __init__(self, facts: JobFacts, restarts: RestartTracker) -> None:
        self._facts = facts
        self._restarts = restarts
        self.phase = Phase.CREATED
        #: The status of the job that users see.
        self.status = JobStatus.CREATED
        #: Why the job has failed or was cancelled; None if it has not.
        self.error: PyFlinkStateError | None = None
        #: The number of the attempt, from 0.
        self.attempt = 0
        #: The last epoch that has run, and the last one that sinks have committed.
        self.epoch = 0
        self.committed = 0
        #: Savepoints that wait for a barrier.
        self.savepoints: list[SavepointRequest] = []
        #: Whether the job has stopped with a savepoint.
        self.is_stopped = False
        #: Whether any attempt has run epochs.
        self.has_begun = False
        #: Whether the engine runs an epoch, or starts slots.
        self.is_running = False
        #: Whether the slots have restored their state and the sinks are open.
        self.has_taken_over = False
        #: The epoch that the engine shuffles ahead at the moment, and the last one it was asked for.
        self.ahead: int | None = None
        self._asked_ahead = 0
        #: The last epoch that the engine was told to run.
        self._begun = 0
        #: Counts the requests to the engine.
        self._run = 0
        self._failure: PyFlinkStateError | None = None
        #: Whether the job has failed in the same way as before its last restart.
        self._is_same_again = False
        self._cancelled: JobCancelledError | None = None
        #: The running epoch, its barrier, and the savepoint with which the job stops.
        self._step: Step | None = None
        self._trigger: CheckpointTrigger | None = None
        self._stopping: SavepointRequest | None = None
        #: Whether it is the last epoch; and whether the epoch that ran last was.
        self._ends_with_it = False
        self._has_ended_time = False
        #: The tasks of the running epoch that have ended and must not end again.
        self._only_runs: set[str] = set()
        #: The final status of the job once its functions are closed.
        self._outcome = JobStatus.FINISHED
        #: Epochs up to this one were announced as committed or are in ``_unannounced``.
        self._announced = 0
        self._unannounced: list[int] = []

    def handle(self, event: Event) -> Instructions:
        """Process an event and return the resulting instructions in order.

        Raises:
            ImpossibleEventError: the event is impossible in this phase.
        """
        handler = _TRANSITIONS[self.phase].get(type(event)) or _ANYTIME.get(type(event))
        if handler is None:
            raise ImpossibleEventError(f"a job that is {self.phase.value} got the impossible event {event!r}")
        return handler(self, event)

    def take_announced(self) -> list[int]:
        """Return the committed epochs that were not announced yet."""
        announced, self._unannounced = self._unannounced, []
        return announced

    @property
    def run(self) -> int:
        """The number of the last request to the engine."""
        return self._run

    @property
    def is_ahead(self) -> bool:
        """Whether the engine shuffles the input of a later epoch."""
        return self.ahead is not None

    @property
    def is_busy(self) -> bool:
        """Whether the engine runs anything for the job."""
        return self.is_running or self.is_ahead

    @property
    def is_cancelled(self) -> bool:
        """Whether somebody has cancelled the job."""
        return self._cancelled is not None

    @property
    def settled_epoch(self) -> int | None:
        """The epoch after which all slots stand, or will stand when it has run; None if there are no slots.

        Any thread may ask, and may be told of an epoch that the slots have just left behind.
        """
        epoch = self.epoch  # is looked at first: a new epoch is counted after its phase is left
        phase = self.phase
        if phase in _FEEDS_SLOTS:
            return epoch + 1
        return epoch if phase in _LEAVES_SLOTS_ALONE else None

    def break_off(self, status: JobStatus) -> None:
        """End the machine because the driver loop ends for a reason that is not an event."""
        self.phase, self.status = Phase.ENDED, status

    # --- the beginning of an attempt ----------------------------------------------------------------

    def _started(self, _: JobStarted) -> Instructions:
        return self._begin()

    def _begin(self) -> Instructions:
        self.phase = Phase.BEGINNING
        return [BeginAttempt(self.attempt)]

    def _attempt_begun(self, event: AttemptBegun) -> Instructions:
        self._begin_at(event.epoch)
        self._has_ended_time = False
        if not self.has_taken_over:
            self.phase = Phase.CLAIMING
            return [ClaimJob()]
        self.phase = Phase.GOING_BACK
        self._announce(self.epoch)
        return [GoBack(self.epoch)]

    def _begin_at(self, epoch: int) -> None:
        self.epoch = self.committed = self._begun = self._asked_ahead = epoch

    def _went_back(self, _: WentBack) -> Instructions:
        return self._go_on()

    def _claimed(self, event: JobClaimed) -> Instructions:
        self._begin_at(event.epoch)
        if not event.restores:
            return self._restored()
        self.phase, self.is_running = Phase.RESTORING, True
        self._run += 1
        return [StartSlots(self._run)]

    def _slots_started(self, event: EpochEnded) -> Instructions:
        return self._ended_well(event, self._restored)

    def _restored(self) -> Instructions:
        self.phase = Phase.TAKING_OVER
        return [TakeOver()]

    def _taken_over(self, _: JobTakenOver) -> Instructions:
        self.has_taken_over = True
        self._announced = self.epoch
        return self._go_on()

    def _go_on(self) -> Instructions:
        self.phase, self.status, self.has_begun = Phase.IDLE, JobStatus.RUNNING, True
        return []

    # --- epochs ----------------------------------------------------------------------------------------

    def _source_asked(self, asked: SourceAsked) -> Instructions:
        if self.is_stopped:
            return self._close(JobStatus.FINISHED)
        if asked.step is not None:
            return self._begin_epoch(asked.step)
        if self._wants_empty_epoch(asked):
            return [PlanEmptyEpoch()]
        if asked.is_over and self.committed == self.epoch and not asked.has_pending:
            return self._close(JobStatus.FINISHED)
        return [Rest()]

    def _wants_empty_epoch(self, asked: SourceAsked) -> bool:
        if asked.is_over and not self._has_ended_time and self._facts.uses_timers:
            return True
        return self._wants_barrier(asked) or (asked.timers_are_due and not asked.is_over)

    def _wants_barrier(self, asked: SourceAsked) -> bool:
        """Return whether to run an empty epoch for its barrier, as there is nothing else to do."""
        if not self._facts.has_checkpoints:
            return False
        if self.savepoints:
            return True
        if self.committed == self.epoch or asked.has_pending:
            return False
        return asked.is_over or self._facts.commits_every_epoch or asked.is_due

    def _begin_epoch(self, step: Step) -> Instructions:
        self._only_runs.clear()
        self._step = step
        if step.is_last:
            self.phase = Phase.DRAINING
            return []
        return self._set_barrier()

    def _drained(self, _: CheckpointsSettled) -> Instructions:
        return self._set_barrier()

    def _set_barrier(self) -> Instructions:
        assert self._step is not None
        self.phase = Phase.SETTING_BARRIER
        savepoint = self.savepoints.pop(0) if self.savepoints else None
        is_needed = self._step.is_last or self._facts.commits_every_epoch
        return [SetBarrier(self.epoch + 1, savepoint, is_needed)]

    def _barrier_set(self, event: BarrierSet) -> Instructions:
        assert self._step is not None
        savepoint = event.savepoint
        self._trigger = event.trigger
        self._stopping = savepoint if savepoint is not None and savepoint.stops_job else None
        self._ends_with_it = self._step.is_last or (self._stopping is not None and self._stopping.drains)
        self.phase, self.is_running = Phase.RUNNING, True
        self._run += 1
        self._begun = self.epoch + 1
        return [RunEpoch(self._run, self.epoch + 1, self._step, self._trigger, self._ends_with_it)]

    def _epoch_started(self, _: EpochStarted) -> Instructions:
        return self._shuffle_next()

    def _shuffle_next(self) -> Instructions:
        """Have the input of the epoch after the running one shuffled, unless the job ends before it."""
        assert self._step is not None
        is_last = self._step.is_last or self._stopping is not None
        number = self.epoch + 2
        if not self._facts.shuffles_ahead or is_last or self.is_ahead or self._asked_ahead >= number:
            return []
        self.ahead = self._asked_ahead = number
        return [ShuffleAhead(number)]

    def _shuffled_ahead(self, _: ShuffledAhead) -> Instructions:
        self.ahead = None
        return self._shuffle_next() if self.phase is Phase.RUNNING else []

    def _epoch_ended(self, event: EpochEnded) -> Instructions:
        def prepare() -> Instructions:
            assert event.results is not None
            self.phase = Phase.PREPARING
            return [PrepareOutput(self.epoch + 1, event.results)]

        return self._ended_well(event, prepare)

    def _ended_well(self, event: EpochEnded, then: Callable[[], Instructions]) -> Instructions:
        """Go on if the engine has successfully ended its last request."""
        if event.run != self._run:
            return []
        self.is_running = False
        return then() if event.error is None else self._fail(event.error)

    def _output_prepared(self, _: OutputPrepared) -> Instructions:
        assert self._step is not None
        self.phase = Phase.IDLE
        self.epoch += 1
        self._has_ended_time = self._ends_with_it
        if not self._facts.has_checkpoints:
            return [CommitOutput(self.epoch)]
        if self._step.is_last or self._stopping is not None:
            self.phase = Phase.COMMITTING
        triggers = [] if self._trigger is None else reversed(self._trigger.all())
        return [AlignBarrier(trigger) for trigger in triggers]  # a savepoint waits for its checkpoint

    def _settled(self, _: CheckpointsSettled) -> Instructions:
        assert self._step is not None
        if self._ends_with_it and not self._step.is_last and not self.is_stopped:
            return self._fail(
                RuntimeFailure("the savepoint failed after event time had ended for it: the job goes back")
            )
        self.phase = Phase.IDLE
        return []

    # --- at any time -----------------------------------------------------------------------------------

    def _checkpoint_completed(self, event: CheckpointCompleted) -> Instructions:
        self._restarts.notify_progress()
        self.is_stopped = self.is_stopped or event.stops_job
        return [CommitOutput(event.epoch)] if event.epoch > self.committed else []

    def _committed(self, event: OutputCommitted) -> Instructions:
        self._announce(event.epoch)
        self.committed = event.epoch
        return []

    def _announce(self, epoch: int) -> None:
        self._unannounced.extend(range(self._announced + 1, epoch + 1))
        self._announced = max(self._announced, epoch)

    def _reported(self, report: TaskReport) -> Instructions:
        if report.attempt != self.attempt or self._is_left_over(report.epoch):
            return []
        if report.error is not None:
            return self._task_failed(report.epoch, report.error)
        if report.is_only_run and report.task in self._only_runs:
            return self.handle(Failed(_ran_twice(report.task)))
        if report.is_only_run:
            self._only_runs.add(report.task)
        return [CountReport(report)]

    def _task_failed(self, epoch: int, error: PyFlinkStateError) -> Instructions:
        """Fail, unless it was shuffled ahead: that is done again when its epoch runs, and may fail then."""
        is_ahead = self._begun < epoch <= self._asked_ahead
        return [] if is_ahead else self.handle(Failed(error))

    def _is_left_over(self, epoch: int) -> bool:
        """Return whether an epoch has ended: what is left of it are copies of tasks that Spark ends late.

        A task waits until its report is in the mailbox, so that those that count come before the end.
        """
        return epoch < self._begun or (epoch == self._begun and not self.is_running)

    def _slot_lost(self, event: SlotLost) -> Instructions:
        return self.handle(Failed(event.error)) if event.attempt == self.attempt else []

    def _cancel(self, event: CancelJob) -> Instructions:
        by = event.by and f" by {event.by}"
        error = JobCancelledError(f"job {self._facts.name!r} was cancelled{by}", by=event.by)
        return self.handle(Failed(error))

    def _savepoint_requested(self, request: SavepointRequest) -> Instructions:
        if not self._facts.has_checkpoints:
            why = "a savepoint needs enable_checkpointing(), as it is taken with a checkpoint"
            return [RefuseSavepoint(request, ConfigurationError(why))]
        self.savepoints.append(request)
        return []

    def _savepoint_while_paused(self, request: SavepointRequest) -> Instructions:
        error = CheckpointError(
            "the job is waiting to restart: request the savepoint again when it is running"
        )
        return [RefuseSavepoint(request, error)]

    def _nothing_to_do(self, _: Event) -> Instructions:
        return []

    # --- failures --------------------------------------------------------------------------------------

    def _failed(self, event: Failed | InstructionFailed) -> Instructions:
        return self._fail(event.error)

    def _could_not_start(self, event: InstructionFailed) -> Instructions:
        """Handle a failed instruction; if the engine did not start, do not wait for its end."""
        self.is_running = self.is_running and not event.begins_run
        return self._fail(event.error)

    def _fail(self, error: PyFlinkStateError) -> Instructions:
        self._note(error)
        return self._stop()

    def _note(self, error: PyFlinkStateError) -> None:
        if isinstance(error, JobCancelledError):
            self._cancelled = error
        self._failure = self._cancelled or self._failure or error

    def _noted(self, event: Failed | InstructionFailed) -> Instructions:
        self._note(event.error)
        return []

    def _failed_while_paused(self, event: Failed) -> Instructions:
        """End the job if there is nothing to wait for any more, as when it is cancelled or Spark is gone.

        Other failures are consequences of the one that has been told.
        """
        if event.error.recoverable:
            return []
        self._failure = None
        return self._fail(event.error)

    def _pause_ended(self, _: PauseEnded) -> Instructions:
        self._failure = None
        return self._begin()

    def _stop(self) -> Instructions:
        assert self._failure is not None
        if self.has_begun:
            self.status = JobStatus.RESTARTING
        if self.is_busy:
            self.phase = Phase.STOPPING
            return [CancelEpoch()]
        return self._end_attempt()

    def _end_attempt(self) -> Instructions:
        assert self._failure is not None
        self.phase = Phase.ENDING_ATTEMPT
        return [EndAttempt(self._failure)]

    def _end_of_what_was_given_up(self, event: EpochEnded) -> Instructions:
        if event.run != self._run:
            return []
        self.is_running = False
        return [] if self.is_busy else self._end_attempt()

    def _end_of_what_was_ahead(self, _: ShuffledAhead) -> Instructions:
        self.ahead = None
        return [] if self.is_busy else self._end_attempt()

    def _attempt_ended(self, event: AttemptEnded) -> Instructions:
        error = event.error
        if self._cancelled is not None and not isinstance(error, JobSupersededError):
            return self._close(JobStatus.CANCELED, self._cancelled)
        delay_ms = 0 if event.falls_back else self._delay_after(error, event.now_ms)
        if delay_ms is None:
            return self._end(JobStatus.FAILED, self._reason(error))
        if event.falls_back:
            self.has_taken_over = False
        self.attempt += 1
        self.phase = Phase.PAUSED
        return [Pause(self.attempt, delay_ms, error)]

    def _delay_after(self, error: PyFlinkStateError, now_ms: int) -> int | None:
        self._is_same_again = self._restarts.gives_up(error)
        if self._is_same_again or not error.recoverable:
            return None
        return self._restarts.notify_failure(now_ms)

    def _reason(self, error: PyFlinkStateError) -> PyFlinkStateError:
        """Return the error with which the job ends: the failure or, after restarts, a ``JobFailedError``."""
        if self.attempt == 0 or not error.recoverable:
            return error
        failed = JobFailedError(
            f"job {self._facts.name!r} failed in epoch {self.epoch + 1} after "
            f"{self.attempt} restarts: {error}" + _SAME_AGAIN * self._is_same_again
        )
        failed.__cause__ = error
        return failed

    # --- the end ---------------------------------------------------------------------------------------

    def _consumer_left(self, _: ConsumerLeft) -> Instructions:
        return self._close(JobStatus.CANCELED)

    def _close(self, outcome: JobStatus, error: PyFlinkStateError | None = None) -> Instructions:
        self.phase = Phase.CLOSING
        self._outcome, self.error = outcome, error
        return [CloseSlots()]

    def _closed(self, _: SlotsClosed) -> Instructions:
        return self._end(self._outcome, self.error)

    def _failed_late(self, event: Failed) -> Instructions:
        """Log an error of ``close``: the results are already committed.

        A job that is cancelled in the middle of an epoch loses its slots, which is no error.
        """
        expected = (JobCancelledError, RuntimeFailure) if self.is_cancelled else JobCancelledError
        return [] if isinstance(event.error, expected) else [LogLateFailure(event.error)]

    def _could_not_end(self, event: InstructionFailed) -> Instructions:
        return self._end(JobStatus.FAILED, event.error)

    def _end(self, status: JobStatus, error: PyFlinkStateError | None) -> Instructions:
        self.phase, self.status, self.error = Phase.ENDED, status, error
        return []


_SAME_AGAIN = (
    "\nThe same error came with the same record as before the restart, so the job does not try again. To "
    "have it tried more often, as for a service that does not answer, choose a restart strategy"
)


def _ran_twice(task: str) -> RuntimeFailure:
    return RuntimeFailure(
        f"task {task!r} has ended twice in an epoch, because Spark ran it again: it calls an async function, "
        f"whose results may be different now, and other tasks may have read the first ones; the job restarts "
        f"from its last checkpoint",
        task=task,
    )


#: The phases in which slots process the next epoch or have just done so, and those in which they stand still.
_FEEDS_SLOTS = frozenset({Phase.RUNNING, Phase.PREPARING})
_LEAVES_SLOTS_ALONE = frozenset({Phase.IDLE, Phase.DRAINING, Phase.SETTING_BARRIER, Phase.COMMITTING})

_Handler = Callable[[JobMachine, Any], Instructions]
_M = JobMachine
#: The possible events of each phase and their handlers. A failure usually ends the attempt.
_TRANSITIONS: dict[Phase, dict[type, _Handler]] = {
    Phase.CREATED: {JobStarted: _M._started},
    Phase.PAUSED: {
        PauseEnded: _M._pause_ended,
        Failed: _M._failed_while_paused,
        SavepointRequest: _M._savepoint_while_paused,
    },
    Phase.BEGINNING: {AttemptBegun: _M._attempt_begun},
    Phase.GOING_BACK: {WentBack: _M._went_back},
    Phase.CLAIMING: {JobClaimed: _M._claimed},
    Phase.RESTORING: {EpochEnded: _M._slots_started, InstructionFailed: _M._could_not_start},
    Phase.TAKING_OVER: {JobTakenOver: _M._taken_over},
    Phase.IDLE: {SourceAsked: _M._source_asked, ConsumerLeft: _M._consumer_left},
    Phase.DRAINING: {CheckpointsSettled: _M._drained},
    Phase.SETTING_BARRIER: {BarrierSet: _M._barrier_set},
    Phase.RUNNING: {
        EpochStarted: _M._epoch_started,
        EpochEnded: _M._epoch_ended,
        InstructionFailed: _M._could_not_start,
    },
    Phase.PREPARING: {OutputPrepared: _M._output_prepared},
    Phase.COMMITTING: {CheckpointsSettled: _M._settled},
    Phase.STOPPING: {
        EpochEnded: _M._end_of_what_was_given_up,
        ShuffledAhead: _M._end_of_what_was_ahead,
        Failed: _M._noted,
        InstructionFailed: _M._noted,
    },
    Phase.ENDING_ATTEMPT: {
        AttemptEnded: _M._attempt_ended,
        Failed: _M._noted,
        InstructionFailed: _M._could_not_end,
    },
    Phase.CLOSING: {
        SlotsClosed: _M._closed,
        Failed: _M._failed_late,
        InstructionFailed: _M._could_not_end,
    },
    Phase.ENDED: {Failed: _M._nothing_to_do, InstructionFailed: _M._nothing_to_do},
}
#: The events that are possible in any phase, and their handlers unless the phase has its own.
_ANYTIME: dict[type, _Handler] = {
    CheckpointCompleted: _M._checkpoint_completed,
    OutputCommitted: _M._committed,
    TaskReport: _M._reported,
    SlotLost: _M._slot_lost,
    CancelJob: _M._cancel,
    SavepointRequest: _M._savepoint_requested,
    Failed: _M._failed,
    InstructionFailed: _M._failed,
    EpochEnded: _M._nothing_to_do,
    ShuffledAhead: _M._shuffled_ahead,
}
