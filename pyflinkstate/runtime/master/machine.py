"""The life of a job as a script: a generator that yields instructions; no I/O, no clock, no threads.

The loop (``loop.py``) carries out an instruction and sends its answer back into the script, or throws its
failure. Where the job waits for somebody else it is in a *phase*, and the answer is the next event::

    CREATED --> RESTORING --> IDLE --> DRAINING --> RUNNING --> COMMITTING --> IDLE --> CLOSING --> ENDED
       ^   (if there is state)  ^  (before the last epoch)    (after the last epoch)
       |                        +------------- RUNNING <---- IDLE
    PAUSED <-- STOPPING <-- any failure              STOPPING --> CLOSING (cancelled) or ENDED

``TABLE`` shows which event ends which phase and which phase follows, and ``ANYTIME`` what may happen in every
phase. An event that is impossible in a phase is a bug in this package: ``ImpossibleEventError`` shows both.

What holds in every phase:

* An attempt starts from a completed checkpoint, or from nothing. Any failure ends it, and the restart
  strategy decides whether and when the next one begins. The first failure counts, as later ones are usually
  its consequences. Only a cancellation takes precedence.
* Every attempt but the first follows a pause, also if the one before it failed while it began: so a storage
  that is away does not use up all restarts at once, and a cancellation is heard between two attempts.
* Nothing of a failed attempt reaches the next one: reports and slots carry the number of the attempt, and
  each request to the engine has a number (``run``), which tells its end from that of an earlier request.
* What a task does after its epoch has ended changes nothing: it is a copy that nobody waits for.
* A bounded number of epochs is in flight (``epochs.py``), and nothing depends on what is shuffled ahead: what
  fails there is done again when the epoch runs, and counts then. It ends with its attempt, as everything that
  the engine runs.
* No existing checkpoint or output is touched before every slot has restored its state (``TakeOver``).
* The job never goes back to before its last commit: it only commits what a completed checkpoint covers.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Iterable
from functools import partial
from typing import Any, TypeVar

import attrs

from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    EpochBrokenOffError,
    ImpossibleEventError,
    JobCancelledError,
    JobFailedError,
    JobSupersededError,
    PyFlinkStateError,
    RuntimeFailure,
)
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master.epochs import (
    AlignBarrier,
    Announce,
    AskSource,
    AttemptEnded,
    BeginAttempt,
    CancelEpoch,
    CheckpointCompleted,
    Claim,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    ConfirmCheckpoint,
    ConsumerLeft,
    CountReport,
    EndAttempt,
    Epoch,
    EpochsInFlight,
    Event,
    Failed,
    Found,
    GoBack,
    Instruction,
    LogLateFailure,
    Outcome,
    Pause,
    PhaseOver,
    PrepareOutput,
    RunEpoch,
    SavepointRequest,
    SetBarrier,
    ShuffleAhead,
    ShuffledAhead,
    Stage,
    StartSlots,
    StopAtCheckpoint,
    TakeOver,
    Wait,
)
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.settings import JobStatus, RestartTracker
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, TaskReport

R = TypeVar("R")
#: A part of the script: yields instructions, receives their answers, and has a result.
Script = Generator[Instruction, Any, R]


class Phase(enum.Enum):
    """What the master of a job waits for."""

    #: To be run.
    CREATED = "created"
    #: For the delay before a restart.
    PAUSED = "paused"
    #: For the slots, which restore their state; nothing else has been touched.
    RESTORING = "restoring"
    #: Between two epochs: for the source.
    IDLE = "idle"
    #: Before the last epoch: until no checkpoint is pending.
    DRAINING = "draining"
    #: For the engine, which runs an epoch.
    RUNNING = "running"
    #: For the checkpoint with which the job ends or stops.
    COMMITTING = "committing"
    #: The attempt has failed: for the end of what the engine still runs.
    STOPPING = "stopping"
    #: For the slots, which close the user functions.
    CLOSING = "closing"
    #: For nothing any more.
    ENDED = "ended"


#: By phase: the event that ends it, and the phases that may follow. ``STOPPING`` may also follow a failure.
TABLE: dict[Phase, dict[type, set[Phase]]] = {
    Phase.CREATED: {PhaseOver: {Phase.RESTORING, Phase.IDLE}},
    Phase.PAUSED: {PhaseOver: {Phase.RESTORING, Phase.IDLE}},
    Phase.RESTORING: {EpochEnded: {Phase.IDLE}},
    Phase.IDLE: {
        PhaseOver: {Phase.DRAINING, Phase.RUNNING, Phase.CLOSING},
        ConsumerLeft: {Phase.CLOSING},
    },
    Phase.DRAINING: {PhaseOver: {Phase.RUNNING}},
    Phase.RUNNING: {EpochEnded: {Phase.IDLE, Phase.COMMITTING}},
    Phase.COMMITTING: {PhaseOver: {Phase.IDLE}},
    Phase.STOPPING: {PhaseOver: {Phase.PAUSED, Phase.CLOSING, Phase.ENDED}},
    Phase.CLOSING: {PhaseOver: {Phase.ENDED}},
    Phase.ENDED: {},
}
#: The events that are possible in every phase in which the job runs; a failure among them leads to STOPPING.
ANYTIME = {
    CancelJob,
    CheckpointCompleted,
    EpochEnded,
    Failed,
    SavepointRequest,
    ShuffledAhead,
    SlotLost,
    StopAtCheckpoint,
    TaskReport,
}
#: What follows a failure in these phases.
_AFTER_FAILURE = {Phase.STOPPING: Phase.ENDED, Phase.CLOSING: Phase.ENDED, Phase.ENDED: None}


class Course:
    """The phase of a job, and the event that came last in it. All changes go by the table."""

    def __init__(self) -> None:
        self.phase = Phase.CREATED
        self._last: type = type(None)

    def take(self, event: Event) -> None:
        """Note an event.

        Raises:
            ImpossibleEventError: the event is impossible in this phase.
        """
        is_own = type(event) in TABLE[self.phase]
        if not is_own and (type(event) not in ANYTIME or self.phase in (Phase.CREATED, Phase.ENDED)):
            raise ImpossibleEventError(f"a job that is {self.phase.value} got the impossible event {event!r}")
        self._last = type(event)

    def enter(self, phase: Phase) -> None:
        """Go to another phase.

        Raises:
            ImpossibleEventError: it does not follow this phase and the last event.
        """
        follows = TABLE[self.phase].get(self._last, ())
        if phase not in follows and phase is not _AFTER_FAILURE.get(self.phase, Phase.STOPPING):
            raise ImpossibleEventError(
                f"a job that is {self.phase.value} cannot be {phase.value} after {self._last.__name__}"
            )
        self.phase, self._last = phase, type(None)


@attrs.frozen
class JobFacts:
    """What the script must know about its job.

    Attributes:
        name: the name of the job, for messages.
        has_checkpoints: whether checkpoints are taken, with which sinks commit.
        uses_timers: whether an empty epoch at the end is needed to fire the remaining timers.
        commits_every_epoch: whether its source needs a checkpoint at the end of every epoch.
        epochs_in_flight: how many epochs may be planned or running at once.
    """

    name: str
    has_checkpoints: bool = False
    uses_timers: bool = False
    commits_every_epoch: bool = False
    epochs_in_flight: int = 1


class JobMachine:
    """The life of one job: its attempts, and what comes between and after them.

    Args:
        facts: what the script must know about the job.
        restarts: the restart strategy.
    """

    def __init__(self, facts: JobFacts, restarts: RestartTracker) -> None:
        self.facts = facts
        self.restarts = restarts
        self.course = Course()
        self.flight = EpochsInFlight(facts.epochs_in_flight)
        #: The status of the job that users see.
        self.status = JobStatus.CREATED
        #: Why the job has failed or was cancelled; None if it has not.
        self.error: PyFlinkStateError | None = None
        #: The number of the attempt, from 0.
        self.attempt = 0
        #: Savepoints that wait for a barrier.
        self.savepoints: list[SavepointRequest] = []
        #: The signal by which the job is told to stop at its next checkpoint; empty if it is not.
        self.stop_by = ""
        #: Whether the job has stopped with a savepoint, or at a checkpoint.
        self.is_stopped = False
        #: Whether any attempt has run epochs.
        self.has_begun = False
        #: Whether the slots have restored their state and the sinks are open.
        self.has_taken_over = False
        #: The last epoch of which is known that it is committed to whoever runs the job.
        self.announced = 0

    # --- what others may ask -----------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """What the job waits for."""
        return self.course.phase

    @property
    def epoch(self) -> int:
        """The last epoch that has run."""
        return self.flight.prepared

    @property
    def settled_epoch(self) -> int | None:
        """The epoch after which all slots stand, or will stand when it has run; None if there are no slots.

        Any thread may ask, and may be told of an epoch that the slots have just left behind.
        """
        epoch = self.epoch  # is looked at first: a new epoch is counted after its phase is left
        phase = self.phase
        if phase is Phase.RUNNING:
            return epoch + 1
        return epoch if phase in (Phase.IDLE, Phase.DRAINING, Phase.COMMITTING) else None

    def break_off(self, status: JobStatus) -> None:
        """End the job because the loop ends for a reason that is not an event."""
        self.course.phase, self.status = Phase.ENDED, status

    # --- the script --------------------------------------------------------------------------------

    def life(self) -> Script[None]:
        """Run attempts until one ends the job."""
        try:
            yield from until(self)
            while (error := (yield from failure_of(Attempt(self).script()))) is not None:
                if not (yield from self._fail(error)):
                    return
            if self.is_stopped and self.stop_by:
                yield from self._close(JobStatus.CANCELED, self._stopped("has stopped at a checkpoint"))
            else:
                yield from self._close(JobStatus.FINISHED)
        except PyFlinkStateError as error:  # what ends an attempt, or the job, has failed itself
            self._end(JobStatus.FAILED, error)

    def consumer_left(self) -> Script[None]:
        """End the job because the consumer of the results has stopped reading."""
        self.course.take(ConsumerLeft())
        yield from self._close(JobStatus.CANCELED)

    def _fail(self, error: PyFlinkStateError) -> Script[bool]:
        """End an attempt that has failed; return whether another one follows."""
        error = yield from self._stop(error)
        ended: AttemptEnded = yield EndAttempt(error)
        if _is_cancellation(error) and not isinstance(ended.error, JobSupersededError):
            yield from self._close(JobStatus.CANCELED, error)
            return False
        verdict = self._verdict(ended)
        if isinstance(verdict, PyFlinkStateError):
            self._end(JobStatus.FAILED, verdict)
            return False
        if self.stop_by:  # its last checkpoint is where it goes on from
            stopped = self._stopped(f"failed while it was to stop ({ended.error})")
            yield from self._close(JobStatus.CANCELED, stopped)
            return False
        self.attempt += 1
        yield Pause(self.attempt, verdict, ended.error)
        self.course.enter(Phase.PAUSED)
        # If the job is cancelled or Spark is gone, there is nothing to wait for. Other failures are
        # consequences of the one that has been told.
        hopeless = yield from failure_until(self, lambda later: not later.recoverable)
        return hopeless is None or (yield from self._fail(hopeless))

    def _stopped(self, how: str) -> JobCancelledError:
        return JobCancelledError(f"job {self.facts.name!r} {how}, by {self.stop_by}", by=self.stop_by)

    def _stop(self, error: PyFlinkStateError) -> Script[PyFlinkStateError]:
        """Wait until the engine runs nothing any more; return the error that counts."""
        self.course.enter(Phase.STOPPING)
        if self.has_begun:
            self.status = JobStatus.RESTARTING
        if self.flight.is_busy:
            yield from failure_of([CancelEpoch()])
        while later := (yield from failure_until(self, partial(_counts_after, error))):
            error = later
        return error

    def _verdict(self, ended: AttemptEnded) -> int | PyFlinkStateError:
        """Return the delay before the next attempt, or the error with which the job ends."""
        error = ended.error
        if ended.falls_back:
            self.has_taken_over = False
            return 0
        is_same_again = self.restarts.gives_up(error)
        if error.recoverable and not is_same_again:
            delay_ms = self.restarts.notify_failure(ended.now_ms)
            if delay_ms is not None:
                return delay_ms
        if self.attempt == 0 or not error.recoverable:
            return error
        failed = JobFailedError(
            f"job {self.facts.name!r} failed in epoch {self.epoch + 1} after "
            f"{self.attempt} restarts: {error}" + _SAME_AGAIN * is_same_again
        )
        failed.__cause__ = error
        return failed

    def _close(self, status: JobStatus, error: PyFlinkStateError | None = None) -> Script[None]:
        """Close the user functions, and end the job; its results are already committed."""
        self.course.enter(Phase.CLOSING)
        # A job that is cancelled in the middle of an epoch loses its slots, which is no error.
        expected = (
            (JobCancelledError, RuntimeFailure) if isinstance(error, JobCancelledError) else JobCancelledError
        )
        yield CloseSlots()
        while late := (yield from failure_until(self, lambda late: not isinstance(late, expected))):
            yield LogLateFailure(late)
        self._end(status, error)

    def _end(self, status: JobStatus, error: PyFlinkStateError | None) -> None:
        self.course.enter(Phase.ENDED)
        self.status, self.error = status, error


class Attempt:
    """The life of one attempt, which may fail at any point of its script."""

    def __init__(self, job: JobMachine) -> None:
        self._job = job
        self._flight = job.flight

    def script(self) -> Script[None]:
        """Begin, and run epochs until the input or the job is over."""
        yield from self._begin()
        while (step := (yield from self._next_step())) is not None:
            epoch = self._flight.next() or self._flight.plan(step)
            yield from self._set_barrier(epoch)
            yield from self._run(epoch)
            yield from self._finish(epoch)

    # --- the beginning -----------------------------------------------------------------------------

    def _begin(self) -> Script[None]:
        job = self._job
        begun: Epoch = yield BeginAttempt(job.attempt, is_final=job.has_taken_over)
        self._flight.begin(begun)
        if job.has_taken_over:
            yield GoBack(begun.number)
        else:
            yield from self._take_over(begun)
        job.course.enter(Phase.IDLE)
        job.status, job.has_begun = JobStatus.RUNNING, True

    def _take_over(self, begun: Epoch) -> Script[None]:
        """Make the job this driver's own; until the slots have restored their state nothing is changed."""
        claim: Claim = yield ClaimJob(begun)
        self._flight.begin(claim.epoch)
        if claim.restores:
            self._job.course.enter(Phase.RESTORING)
            yield from self._run_to_end(claim.epoch, StartSlots(claim.epoch))
        yield TakeOver(claim.epoch.number)
        self._job.has_taken_over, self._job.announced = True, claim.epoch.number

    # --- between two epochs ------------------------------------------------------------------------

    def _next_step(self) -> Script[Step | None]:
        """Ask the source until there is an epoch to run; None if there will be none any more."""
        job, rests = self._job, False
        while True:
            yield from until(job, rests)
            yield from self._announce()
            if job.is_stopped:
                return None
            last, ahead = self._flight.last, self._flight.next()
            found: Found = yield AskSource(last, None if ahead is None else ahead.step)
            if self._is_at_checkpoint(found):
                job.is_stopped = True
                return None
            if found.step is not None:
                return found.step
            if self._wants_empty_epoch(found):
                return Step(None, found.is_over, last.step.end)
            if found.is_over and self._flight.committed == job.epoch and not found.has_pending:
                return None
            rests = True

    def _is_at_checkpoint(self, found: Found) -> bool:
        """Return whether the job is to stop before its input ends, and is where its last checkpoint was."""
        job = self._job
        is_asked = bool(job.stop_by) and not job.savepoints and not found.is_over
        return is_asked and self._flight.committed == job.epoch and not found.has_pending

    def _announce(self) -> Script[None]:
        job, committed = self._job, self._flight.committed
        if committed > job.announced:
            epochs, job.announced = range(job.announced + 1, committed + 1), committed
            yield Announce(epochs)

    def _wants_empty_epoch(self, found: Found) -> bool:
        if found.is_over and not self._flight.last.is_final and self._job.facts.uses_timers:
            return True
        return self._wants_barrier(found) or (found.timers_are_due and not found.is_over)

    def _wants_barrier(self, found: Found) -> bool:
        """Return whether to run an empty epoch for its barrier, as there is nothing else to do."""
        job = self._job
        is_to_stop = bool(job.stop_by) and not found.is_over
        if not job.facts.has_checkpoints or job.savepoints or is_to_stop:
            return job.facts.has_checkpoints
        is_worth = self._flight.committed < job.epoch and not found.has_pending
        return is_worth and (found.is_over or job.facts.commits_every_epoch or found.is_due)

    # --- an epoch ----------------------------------------------------------------------------------

    def _set_barrier(self, epoch: Epoch) -> Script[None]:
        """Decide on the end of an epoch; before the last one, wait until no checkpoint is pending."""
        job = self._job
        if epoch.step.is_last:
            job.course.enter(Phase.DRAINING)
            yield from until(job)
        savepoint = job.savepoints[0] if job.savepoints else None
        is_needed = epoch.step.is_last or job.facts.commits_every_epoch or bool(job.stop_by)
        outcomes = yield SetBarrier(epoch, savepoint, is_needed)
        del job.savepoints[:1]  # not before: if this fails, the next attempt takes it
        epoch.stops_job = bool(job.stop_by) and epoch.trigger is not None
        yield from take_all(job, outcomes)

    def _run(self, epoch: Epoch) -> Script[None]:
        self._job.course.enter(Phase.RUNNING)
        yield from self._run_to_end(epoch, RunEpoch(epoch))
        yield PrepareOutput(epoch, self._flight.planned)

    def _run_to_end(self, epoch: Epoch, instruction: StartSlots | RunEpoch) -> Script[None]:
        """Let the engine run something; if it does not start, nobody waits for its end."""
        self._flight.start(epoch)
        try:
            yield instruction
        except PyFlinkStateError:
            epoch.run = 0
            raise
        yield from shuffle_ahead(self._job)
        while epoch.run:
            yield from take(self._job, (yield Wait()))

    def _finish(self, epoch: Epoch) -> Script[None]:
        """Go on after the output of an epoch is prepared; a checkpoint with which the job ends is awaited."""
        job = self._job
        is_awaited = job.facts.has_checkpoints and epoch.ends_job
        job.course.enter(Phase.COMMITTING if is_awaited else Phase.IDLE)
        self._flight.prepare(epoch)
        if job.facts.has_checkpoints:
            yield from take_all(job, (yield AlignBarrier(epoch)))
        else:
            yield from commit(job, epoch)
        if is_awaited:
            yield from until(job)
            if epoch.is_final and not epoch.step.is_last and not job.is_stopped:
                raise RuntimeFailure(
                    "the savepoint failed after event time had ended for it: the job goes back"
                )
            job.course.enter(Phase.IDLE)


# --- parts of the script that several others have ----------------------------------------------------


def failure_of(script: Iterable[Instruction]) -> Script[PyFlinkStateError | None]:
    """Run a part of the script; return its failure, if it fails."""
    try:
        yield from script
    except PyFlinkStateError as error:
        return error
    return None


def until(job: JobMachine, rests: bool = False) -> Script[None]:
    """Take events until the phase is over."""
    while not isinstance(event := (yield Wait(rests)), PhaseOver):
        rests = False
        yield from take(job, event)
    job.course.take(event)


def failure_until(
    job: JobMachine, counts: Callable[[PyFlinkStateError], bool]
) -> Script[PyFlinkStateError | None]:
    """Take events until the phase is over; return the next failure before that counts."""
    while not isinstance(event := (yield Wait()), PhaseOver):
        error = yield from failure_of(take(job, event))
        if error is not None and counts(error):
            return error
    job.course.take(event)
    return None


def _counts_after(error: PyFlinkStateError, later: PyFlinkStateError) -> bool:
    """Return whether a later failure is the one that counts: a cancellation, or what a first one came of."""
    if _is_cancellation(error):
        return False
    is_cause = isinstance(error, EpochBrokenOffError) and not isinstance(later, EpochBrokenOffError)
    return is_cause or _is_cancellation(later)


def _is_cancellation(error: PyFlinkStateError) -> bool:
    return isinstance(error, JobCancelledError)


def take(job: JobMachine, event: Event) -> Script[None]:
    """Do what an event leads to, in whatever phase it comes."""
    job.course.take(event)
    match event:
        case EpochEnded():
            _epoch_ended(job, event)
        case ShuffledAhead():
            yield from _shuffled_ahead(job, event)
        case CheckpointCompleted():
            yield from _checkpoint_completed(job, event)
        case TaskReport():
            yield from _task_reported(job, event)
        case SavepointRequest():
            _savepoint_requested(job, event)
        case CancelJob() | StopAtCheckpoint():
            _told_to_end(job, event)
        case Failed() | SlotLost():
            _failed(job, event)


def take_all(job: JobMachine, outcomes: list[Outcome]) -> Script[None]:
    """Take what comes of an instruction."""
    for outcome in outcomes:
        yield from take(job, outcome)


def commit(job: JobMachine, epoch: Epoch) -> Script[None]:
    """Let the sinks commit all epochs up to one."""
    yield CommitOutput(epoch)
    job.flight.commit(epoch)


def shuffle_ahead(job: JobMachine) -> Script[None]:
    """Have the input of the next epoch shuffled, if one more may be in flight and the job goes on to it."""
    newest = job.flight.newest
    is_next = job.phase is Phase.RUNNING and job.flight.ahead is None and not newest.ends_job
    if is_next and job.flight.has_room and (step := (yield ShuffleAhead(newest))) is not None:
        job.flight.ahead = job.flight.plan(step)


# --- what an event leads to --------------------------------------------------------------------------


def _epoch_ended(job: JobMachine, event: EpochEnded) -> None:
    epoch = job.flight.end(event.run)
    if epoch is not None and event.error is not None:
        raise event.error
    if epoch is not None:
        epoch.results = event.results or []


def _shuffled_ahead(job: JobMachine, event: ShuffledAhead) -> Script[None]:
    if job.flight.ahead is not None and job.flight.ahead.number == event.number:
        job.flight.ahead = None
    yield from shuffle_ahead(job)


def _failed(job: JobMachine, event: Failed | SlotLost) -> None:
    if isinstance(event, Failed) or event.attempt == job.attempt:
        raise event.error


def _checkpoint_completed(job: JobMachine, done: CheckpointCompleted) -> Script[None]:
    """Commit what a checkpoint covers. It exists: if that fails, a restart begins there and commits again."""
    job.restarts.notify_progress()
    epoch, error = job.flight.get(done.epoch), None
    job.is_stopped = job.is_stopped or done.stops_job or (epoch is not None and epoch.stops_at_checkpoint)
    if epoch is not None and epoch.number > job.flight.committed:
        error = yield from failure_of(commit(job, epoch))
    outcomes = yield ConfirmCheckpoint(done.checkpoint_id, error)
    if error is not None:
        raise error
    yield from take_all(job, outcomes)


def _task_reported(job: JobMachine, report: TaskReport) -> Script[None]:
    epoch = job.flight.get(report.epoch)
    if report.attempt != job.attempt or epoch is None or not epoch.is_awaited:
        return
    if report.error is not None:
        if epoch.stage is not Stage.PLANNED:  # what fails ahead is done again when its epoch runs
            raise report.error
        return
    if report.is_only_run and report.task in epoch.only_runs:
        raise RuntimeFailure(
            f"task {report.task!r} has ended twice in an epoch, because Spark ran it again: it calls an "
            f"async function, whose results may be different now, and other tasks may have read the first "
            f"ones; the job restarts from its last checkpoint",
            task=report.task,
        )
    if report.is_only_run:
        epoch.only_runs.add(report.task)
    yield CountReport(report)


def _savepoint_requested(job: JobMachine, request: SavepointRequest) -> None:
    if not job.facts.has_checkpoints:
        why = "a savepoint needs enable_checkpointing(), as it is taken with a checkpoint"
        request.fail(ConfigurationError(why))
    elif job.phase is Phase.PAUSED:
        why = "the job is waiting to restart: request the savepoint again when it is running"
        request.fail(CheckpointError(why))
    else:
        job.savepoints.append(request)


def _told_to_end(job: JobMachine, event: CancelJob | StopAtCheckpoint) -> None:
    """Cancel the job, or stop at the checkpoint of the running epoch, if it has one, or of the next epoch.

    Raises:
        JobCancelledError: the job ends at once. It also does if no checkpoint can come of this attempt.
    """
    may_stop = job.facts.has_checkpoints and job.phase not in (Phase.PAUSED, Phase.STOPPING)
    if isinstance(event, CancelJob) or not may_stop:
        by = event.by and f" by {event.by}"
        raise JobCancelledError(f"job {job.facts.name!r} was cancelled{by}", by=event.by)
    job.stop_by, running = event.by, job.flight.running
    if running is not None and not job.savepoints:
        running.stops_job = running.trigger is not None


_SAME_AGAIN = (
    "\nThe same error came with the same record as before the restart, so the job does not try again. To "
    "have it tried more often, as for a service that does not answer, choose a restart strategy"
)
