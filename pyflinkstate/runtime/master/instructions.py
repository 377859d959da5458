"""What the script of a job asks for, and the events that it waits for: plain values.

The docstring of an instruction says what its answer is, if there is one. Messages of tasks, slots and the
engine (``TaskReport``, ``SlotLost``, ``EpochEnded``) and requests of users are events as they come.
"""

from __future__ import annotations

import enum
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, TaskReport

#: The results of an epoch: for each sink the results of its tasks.
Results = list[list[Any]]


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


@attrs.frozen
class SavepointRequest:
    """A request for a savepoint; the future gets its URI or the error."""

    directory: str
    stops_job: bool
    done: Future[str] = attrs.field(factory=Future, eq=False)
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


# --- events ------------------------------------------------------------------------------------------


@attrs.frozen
class JobStarted:
    """The job was started."""


@attrs.frozen
class PauseEnded:
    """The delay of the restart strategy is over."""


@attrs.frozen
class SourceDue:
    """All mail is read, and it is time to ask the source for the next epoch."""


@attrs.frozen
class CheckpointsSettled:
    """No checkpoint and no savepoint is pending."""


@attrs.frozen
class EngineStopped:
    """The engine runs nothing any more."""


@attrs.frozen
class SlotsClosed:
    """All user functions are closed, and all mail is read."""


@attrs.frozen
class ConsumerLeft:
    """The consumer of the results has stopped reading."""


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
Event = (
    JobStarted
    | PauseEnded
    | SourceDue
    | CheckpointsSettled
    | EngineStopped
    | SlotsClosed
    | ConsumerLeft
    | EpochEnded
    | ShuffledAhead
    | CheckpointCompleted
    | Failed
    | CancelJob
    | SavepointRequest
    | SlotLost
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

    epoch: int
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
class Barrier:
    """What happens at the end of an epoch.

    Attributes:
        trigger: the checkpoint for which subtasks take snapshots; None if there is none.
        savepoint: the savepoint that is taken with it, if there is one.
        outcomes: what has come of it already, if a folder could not be made.
    """

    trigger: CheckpointTrigger | None = None
    savepoint: SavepointRequest | None = None
    outcomes: list[Outcome] = attrs.Factory(list)


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
    """Wait for the next event: an ``Event`` that is possible in the phase.

    ``rests``: the source has nothing, and is asked again when something has come or after a while.
    """

    phase: Phase
    rests: bool = False


@attrs.frozen
class Announce:
    """Yield the numbers of committed epochs to whoever runs the job."""

    epochs: range


@attrs.frozen
class BeginAttempt:
    """Cut off previous attempts and go to the newest checkpoint: the number of its epoch.

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
    """Make any older driver of the job end: a ``Claim``."""


@attrs.frozen
class StartSlots:
    """Let every slot restore its state, without reading a record. ``EpochEnded`` comes for ``run``."""

    run: int
    epoch: int


@attrs.frozen
class TakeOver:
    """Set aside checkpoints from which the job does not go on, and open the sinks at ``epoch``."""

    epoch: int


@attrs.frozen
class AskSource:
    """Ask the source for the epoch after ``epoch``: what was ``Found``."""

    epoch: int


@attrs.frozen
class PlanEmptyEpoch:
    """Plan an epoch without records after ``epoch``, for its barrier or for timers: a ``Step``."""

    epoch: int


@attrs.frozen
class SetBarrier:
    """Decide on what happens at the end of epoch ``number``: a ``Barrier``.

    Attributes:
        savepoint: the savepoint to take with it, if there is one.
        is_needed: whether a checkpoint is taken in any case, and not only if one is due by then.
    """

    number: int
    savepoint: SavepointRequest | None
    is_needed: bool


@attrs.frozen
class RunEpoch:
    """Let the engine run an epoch. ``EpochEnded`` comes for ``run``.

    ``is_final``: event time ends with this epoch.
    """

    run: int
    number: int
    step: Step
    trigger: CheckpointTrigger | None
    is_final: bool


@attrs.frozen
class ShuffleAhead:
    """Let the engine read and shuffle the input of epoch ``number`` ahead: whether it has begun to.

    If so, ``ShuffledAhead`` comes.
    """

    number: int


@attrs.frozen
class CancelEpoch:
    """Make what runs end soon, and cut off its slots. Its ends come all the same."""


@attrs.frozen
class PrepareOutput:
    """Let the sinks prepare the output of epoch ``number``."""

    number: int
    results: Results


@attrs.frozen
class AlignBarrier:
    """Every subtask has reached the barrier of epoch ``number``: a list of each ``Outcome``."""

    checkpoint_id: int
    number: int


@attrs.frozen
class CommitOutput:
    """Let the sinks commit up to the end of ``epoch``."""

    epoch: int


@attrs.frozen
class ConfirmCheckpoint:
    """Carry out what follows a complete checkpoint, now that sinks have committed: a list of each ``Outcome``.

    ``error``: why they have not.
    """

    checkpoint_id: int
    error: PyFlinkStateError | None = None


@attrs.frozen
class CountReport:
    """Add the counts that a task has reported."""

    report: TaskReport


@attrs.frozen
class RefuseSavepoint:
    """Refuse a savepoint that was requested."""

    request: SavepointRequest
    error: PyFlinkStateError


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
    | PlanEmptyEpoch
    | SetBarrier
    | RunEpoch
    | ShuffleAhead
    | CancelEpoch
    | PrepareOutput
    | AlignBarrier
    | CommitOutput
    | ConfirmCheckpoint
    | CountReport
    | RefuseSavepoint
    | EndAttempt
    | Pause
    | CloseSlots
    | LogLateFailure
)
