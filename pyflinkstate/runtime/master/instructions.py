"""What the script of a job asks for, and the events that it waits for: plain values.

The docstring of an instruction says what its answer is, if there is one. Messages of tasks, slots and the
engine (``TaskReport``, ``SlotLost``, ``EpochEnded``) and requests of users are events as they come.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master.epochs import Epoch, SavepointRequest
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, TaskReport

# --- events ------------------------------------------------------------------------------------------


@attrs.frozen
class PhaseOver:
    """What the phase waits for has come, and all that came before it was told."""


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
    """Let the sinks prepare the output of an epoch that has run."""

    epoch: Epoch


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
