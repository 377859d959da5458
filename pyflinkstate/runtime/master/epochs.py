"""The epochs in flight, what the script of a job asks for, and the events that it waits for.

An epoch is an object with a life of its own.

::

    PLANNED --------> RUNNING --------> PREPARED --------> COMMITTED
            RunEpoch          its run has ended,  a checkpoint covers it:
                              PrepareOutput       CommitOutput

An epoch is planned when its input is known; the engine may read and shuffle that input ahead, while an
earlier epoch runs. Nothing depends on that: the epoch does it again in its turn if it failed. A bounded
number of epochs are planned or running, and each step is taken in the order of their numbers. A failure
throws away all epochs after the last committed one.

Instructions and events are plain values. The docstring of an instruction says what its answer is, if there is
one. Messages of tasks, slots and the engine (``TaskReport``, ``SlotLost``, ``EpochEnded``) and requests of
users are events as they come.
"""

from __future__ import annotations

import enum
from concurrent.futures import InvalidStateError
from contextlib import suppress
from typing import TypeAlias

import attrs

from pyflinkstate.api import CompletableFuture
from pyflinkstate.errors import ImpossibleEventError, PyFlinkStateError
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, TaskReport

#: The results of an epoch: for each sink the results of its tasks.
Results = list[list[object]]


@attrs.frozen
class SavepointRequest:
    """A request for a savepoint; the future gets its URI or the error."""

    directory: str
    stops_job: bool
    done: CompletableFuture[str] = attrs.field(factory=CompletableFuture, eq=False)
    #: Whether event time advances to its end before the job stops (Flink: ``drain``).
    drains: bool = False

    def succeed(self, uri: str) -> None:
        """Tell the caller, unless the caller has cancelled the request."""
        with suppress(InvalidStateError):
            self.done.set_result(uri)

    def fail(self, error: PyFlinkStateError) -> None:
        """Tell the caller, unless the caller has cancelled the request."""
        with suppress(InvalidStateError):
            self.done.set_exception(error)


class Stage(enum.Enum):
    """How far an epoch is."""

    PLANNED = 1
    RUNNING = 2
    PREPARED = 3
    COMMITTED = 4


@attrs.define(eq=False)
class Epoch:
    """One epoch.

    Attributes:
        number: counts from 1; 0 is the beginning of the job.
        stage: how far it is.
        step: its input, and where the source is at its end.
        trigger: the checkpoint at its barrier, if there is one.
        savepoint: the savepoint that is taken with it, if there is one.
        run: the request with which the engine runs it now; 0 if it does not.
        results: what its tasks returned for the sinks.
        watermarks: those of assigners and operators at its end, by their ids, when its output is prepared.
        only_runs: the tasks that have ended and must not end again.
        lasts_ms: how long sources are read live; 0 if none is.
        stops_job: whether the job stops with the checkpoint at its barrier.
    """

    number: int
    stage: Stage = Stage.PLANNED
    step: Step = attrs.Factory(lambda: Step(None, False))
    trigger: CheckpointTrigger | None = None
    savepoint: SavepointRequest | None = None
    run: int = 0
    results: Results = attrs.Factory(list)
    watermarks: dict[str, int] = attrs.Factory(dict)
    only_runs: set[str] = attrs.Factory(set)
    lasts_ms: int = 0
    stops_job: bool = False

    @property
    def is_final(self) -> bool:
        """Whether event time ends with it."""
        return self.step.is_last or (
            self.savepoint is not None and self.savepoint.stops_job and self.savepoint.drains
        )

    @property
    def ends_job(self) -> bool:
        """Whether no epoch follows, unless its savepoint or its checkpoint fails."""
        stops = self.stops_job or (self.savepoint is not None and self.savepoint.stops_job)
        return self.step.is_last or stops

    @property
    def stops_at_checkpoint(self) -> bool:
        """Whether the job stops when the checkpoint is complete, and not only with a savepoint after it."""
        goes_on = not self.step.is_last and (self.savepoint is None or not self.savepoint.stops_job)
        return self.stops_job and goes_on

    @property
    def is_awaited(self) -> bool:
        """Whether reports of its tasks count: later ones come from copies that nobody waits for."""
        return self.run > 0 or self.stage is Stage.PLANNED


class EpochsInFlight:
    """The epochs from the last committed one to the last planned one, in order.

    The last committed one is always there. While the slots restore their state, the engine runs that one.
    Many may be prepared, as sinks commit with checkpoints: nothing here depends on how many. Any thread may
    read ``committed`` and ``prepared``.

    Args:
        most: how many epochs may be planned or running at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._epochs: dict[int, Epoch] = {}
        #: The epoch whose input the engine was told to read before its turn, as long as it does.
        self.ahead: Epoch | None = None
        #: Counts the requests to the engine, so that the end of one is not taken for that of another.
        self._requests = 0
        #: The last epoch that the sinks have committed, and the last one whose output is prepared.
        self.committed = self.prepared = 0
        self.begin(Epoch(0))

    def begin(self, epoch: Epoch) -> None:
        """Begin an attempt at the end of a committed epoch; all others are thrown away."""
        epoch.stage = Stage.COMMITTED
        self._epochs = {epoch.number: epoch}
        self.committed = self.prepared = epoch.number

    @property
    def newest(self) -> Epoch:
        """The epoch with the highest number."""
        return next(reversed(self._epochs.values()))

    @property
    def last(self) -> Epoch:
        """The last epoch that is prepared or committed."""
        return self._epochs[self.prepared]

    @property
    def running(self) -> Epoch | None:
        """The epoch that the engine runs now."""
        numbers = range(self.prepared, self.newest.number + 1)
        return next((self._epochs[number] for number in numbers if self._epochs[number].run), None)

    @property
    def is_busy(self) -> bool:
        """Whether the engine does anything for these epochs."""
        return self.running is not None or self.ahead is not None

    @property
    def has_room(self) -> bool:
        """Whether another epoch may be planned."""
        return self.planned < self._most

    @property
    def planned(self) -> int:
        """The number of epochs that are planned or running."""
        return self.newest.number - self.prepared

    def get(self, number: int) -> Epoch | None:
        """Return an epoch by its number, if it is in flight."""
        return self._epochs.get(number)

    def next(self) -> Epoch | None:
        """Return the epoch whose turn comes after the last prepared one, if it was planned ahead."""
        return self.get(self.prepared + 1)

    def plan(self, step: Step) -> Epoch:
        """Add an epoch after the newest one."""
        if not self.has_room:
            raise ImpossibleEventError(f"there are more than {self._most} epochs planned or running")
        epoch = Epoch(self.newest.number + 1, step=step)
        self._epochs[epoch.number] = epoch
        return epoch

    def start(self, epoch: Epoch) -> None:
        """The engine is asked to run an epoch: this is another request."""
        self._requests += 1
        epoch.run = self._requests
        if epoch.stage is Stage.PLANNED:
            epoch.stage = Stage.RUNNING

    def end(self, run: int) -> Epoch | None:
        """Return the epoch whose request has ended; None for a request that was given up."""
        epoch = self.running
        if epoch is None or epoch.run != run:
            return None
        epoch.run = 0
        return epoch

    def prepare(self, epoch: Epoch) -> None:
        """The output of an epoch is prepared: from now on it needs neither its input nor its results."""
        epoch.stage, self.prepared = Stage.PREPARED, epoch.number
        epoch.step, epoch.results = attrs.evolve(epoch.step, epoch=None), []

    def commit(self, epoch: Epoch) -> None:
        """The sinks have committed all epochs up to one."""
        for number in range(self.committed, epoch.number):
            del self._epochs[number]
        epoch.stage, self.committed = Stage.COMMITTED, epoch.number


# --- events ------------------------------------------------------------------------------------------


@attrs.frozen
class PhaseOver:
    """What the phase waits for has come, and all that came before it was told."""


@attrs.frozen
class ConsumerLeft:
    """The consumer of the results has stopped reading."""


@attrs.frozen
class StopAtCheckpoint:
    """The job is to stop at its next checkpoint. Savepoints that were requested before come first.

    ``by``: the name of the signal that asks for it.
    """

    by: str


@attrs.frozen
class ShuffledAhead:
    """The engine reads nothing ahead any more: the input of epoch ``number`` is shuffled, or could not be."""

    number: int


@attrs.frozen
class CheckpointCompleted:
    """A checkpoint is complete: the job would restart from it. What follows waits for ``ConfirmCheckpoint``.

    ``stops_job``: it is the savepoint with which the job stops.
    """

    checkpoint_id: int
    epoch: int
    stops_job: bool = False


@attrs.frozen
class Failed:
    """Something that the attempt needs has failed."""

    error: PyFlinkStateError


#: What comes of a message about a checkpoint, or of the time.
Outcome = CheckpointCompleted | Failed
Event: TypeAlias = (
    PhaseOver
    | ConsumerLeft
    | EpochEnded
    | ShuffledAhead
    | CheckpointCompleted
    | Failed
    | CancelJob
    | SavepointRequest
    | SlotLost
    | StopAtCheckpoint
    | TaskReport
)


# --- answers -----------------------------------------------------------------------------------------


@attrs.frozen
class Claim:
    """The job is claimed: no older driver may change anything any more.

    Attributes:
        epoch: from where the job goes on; an older driver may have completed one more checkpoint.
        restores: whether slots have state to restore.
    """

    epoch: Epoch
    restores: bool


@attrs.frozen
class Found:
    """What the source has for the next epoch.

    Attributes:
        step: the next epoch; None if the source has nothing now.
        is_over: whether the source has ended.
        has_pending: whether checkpoints are pending.
        is_due: whether a checkpoint is due.
        timers_are_due: whether a processing-time timer is due.
    """

    step: Step | None
    is_over: bool = False
    has_pending: bool = False
    is_due: bool = False
    timers_are_due: bool = False


@attrs.frozen
class AttemptEnded:
    """Nothing of the failed attempt runs any more.

    Attributes:
        error: why it failed.
        falls_back: whether its checkpoint is damaged, and the next attempt begins from an earlier one.
        now_ms: the monotonic time.
    """

    error: PyFlinkStateError
    falls_back: bool = False
    now_ms: int = 0


# --- instructions ------------------------------------------------------------------------------------


@attrs.frozen
class Wait:
    """Wait for the next ``Event``.

    ``rests``: the source has nothing, and is asked again when something has come or after a while.
    """

    rests: bool = False


@attrs.frozen
class Announce:
    """Yield the numbers of committed epochs to whoever runs the job."""

    epochs: range


@attrs.frozen
class BeginAttempt:
    """Cut off previous attempts and go to the newest checkpoint: its ``Epoch``.

    ``is_final``: no other checkpoint will be restored instead.
    """

    attempt: int
    is_final: bool


@attrs.frozen
class GoBack:
    """Have the sinks, which are open, go back to the end of ``epoch``."""

    epoch: int


@attrs.frozen
class ClaimJob:
    """Make any older driver of the job end: a ``Claim``.

    ``epoch``: where the attempt begins, unless an older driver has completed a newer checkpoint.
    """

    epoch: Epoch


@attrs.frozen
class StartSlots:
    """Let every slot restore its state as of ``epoch``. ``EpochEnded`` comes for its ``run``."""

    epoch: Epoch


@attrs.frozen
class TakeOver:
    """Set aside checkpoints from which the job does not go on, and open the sinks at ``epoch``."""

    epoch: int


@attrs.frozen
class AskSource:
    """Ask the source for the epoch after ``last``: what was ``Found``.

    ``ahead``: what was planned for it ahead.
    """

    last: Epoch
    ahead: Step | None = None


@attrs.frozen
class SetBarrier:
    """Decide on the checkpoint at the end of an epoch, and note it there: each ``Outcome`` if that failed.

    Attributes:
        savepoint: the savepoint to take with it, if there is one.
        is_needed: whether a checkpoint is taken in any case, and not only if one is due by then.
    """

    epoch: Epoch
    savepoint: SavepointRequest | None
    is_needed: bool


@attrs.frozen
class RunEpoch:
    """Let the engine run an epoch. ``EpochEnded`` comes for its ``run``."""

    epoch: Epoch


@attrs.frozen
class ShuffleAhead:
    """Plan the epoch after ``newest``, and let the engine read and shuffle its input: a ``Step``.

    ``ShuffledAhead`` comes for it. The answer is None if the source is to be asked in its turn.
    """

    newest: Epoch


@attrs.frozen
class CancelEpoch:
    """Make what runs end soon, and cut off its slots. Its ends come all the same."""


@attrs.frozen
class PrepareOutput:
    """Let the sinks prepare the output of an epoch that has run.

    ``in_flight`` epochs are planned or running, this one included.
    """

    epoch: Epoch
    in_flight: int = 1


@attrs.frozen
class AlignBarrier:
    """Every subtask has reached the barrier of an epoch, and its output is prepared: each ``Outcome``."""

    epoch: Epoch


@attrs.frozen
class CommitOutput:
    """Let the sinks commit up to the end of ``epoch``."""

    epoch: Epoch


@attrs.frozen
class ConfirmCheckpoint:
    """Carry out what follows a complete checkpoint when the sinks have committed: each ``Outcome``.

    ``error``: why they have not committed.
    """

    checkpoint_id: int
    error: PyFlinkStateError | None = None


@attrs.frozen
class CountReport:
    """Add the counts that a task has reported."""

    report: TaskReport


@attrs.frozen
class EndAttempt:
    """Abort the checkpoints of the failed attempt, and find out why it failed: ``AttemptEnded``."""

    error: PyFlinkStateError


@attrs.frozen
class Pause:
    """End the slots, tell listeners that ``attempt`` follows ``error``, and begin the delay before it."""

    attempt: int
    delay_ms: int
    error: PyFlinkStateError


@attrs.frozen
class CloseSlots:
    """Close the user functions."""


@attrs.frozen
class LogLateFailure:
    """Log a failure that came after all results were committed."""

    error: PyFlinkStateError


Instruction = (
    Wait
    | Announce
    | BeginAttempt
    | GoBack
    | ClaimJob
    | StartSlots
    | TakeOver
    | AskSource
    | SetBarrier
    | RunEpoch
    | ShuffleAhead
    | CancelEpoch
    | PrepareOutput
    | AlignBarrier
    | CommitOutput
    | ConfirmCheckpoint
    | CountReport
    | EndAttempt
    | Pause
    | CloseSlots
    | LogLateFailure
)
