"""What the job's machine asks of the driver loop. Each says what it is answered with, if with anything."""

from __future__ import annotations

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.checkpoints import SavepointRequest
from pyflinkstate.runtime.job.events import Results
from pyflinkstate.runtime.job.planner import Step
from pyflinkstate.runtime.wire import CheckpointTrigger, TaskReport


@attrs.frozen
class BeginAttempt:
    """Cut off what belongs to attempts before, and go to the newest checkpoint: ``AttemptBegun``."""

    attempt: int


@attrs.frozen
class GoBack:
    """Have sinks and listeners know that an attempt begins after ``error``: ``WentBack``.

    ``epoch`` is where the sinks go back to; None where they were not opened yet.
    """

    attempt: int
    epoch: int | None
    error: PyFlinkStateError


@attrs.frozen
class Pause:
    """Wait: ``PauseEnded``."""

    delay_ms: int


@attrs.frozen
class ClaimJob:
    """Have any older driver of the job end: ``JobClaimed``."""


@attrs.frozen
class StartSlots:
    """Have every slot restore its state; no record is read: ``EpochEnded``."""

    run: int


@attrs.frozen
class TakeOver:
    """Set aside what the job does not go on from, and open the sinks: ``JobTakenOver``."""


@attrs.frozen
class PlanEmptyEpoch:
    """Plan an epoch of nothing, for the sake of its barrier or of timers: ``SourceAsked``."""


@attrs.frozen
class Rest:
    """There is nothing to do: wait for mail, a little while."""


@attrs.frozen
class SetBarrier:
    """Settle the barrier at the end of epoch ``number``: ``BarrierSet``.

    Attributes:
        savepoint: to be taken with it.
        is_needed: a checkpoint is taken in any case; otherwise if one is due by then.
    """

    number: int
    savepoint: SavepointRequest | None
    is_needed: bool


@attrs.frozen
class RunEpoch:
    """Have the engine run an epoch: ``EpochEnded``, with the same ``run``."""

    run: int
    number: int
    step: Step
    barrier: CheckpointTrigger | None
    #: Nothing comes after it.
    is_final: bool


@attrs.frozen
class CancelEpoch:
    """Have what the engine runs end soon, and cut off its slots: ``EpochEnded`` comes all the same."""


@attrs.frozen
class PrepareOutput:
    """Have the sinks prepare what epoch ``number`` wrote: ``OutputPrepared``."""

    number: int
    results: Results


@attrs.frozen
class AlignBarrier:
    """Tell the checkpoints that every subtask has reached the barrier."""

    trigger: CheckpointTrigger


@attrs.frozen
class CommitOutput:
    """Have the sinks commit up to the end of ``epoch``: ``OutputCommitted``."""

    epoch: int


@attrs.frozen
class CountReport:
    """Count what a task has told."""

    report: TaskReport


@attrs.frozen
class RefuseSavepoint:
    """Tell who waits for a savepoint that there is none."""

    request: SavepointRequest
    error: PyFlinkStateError


@attrs.frozen
class EndAttempt:
    """Give up the checkpoints of the failed attempt, and find out why it failed: ``AttemptEnded``."""

    error: PyFlinkStateError


@attrs.frozen
class CloseSlots:
    """Close the functions: ``SlotsClosed``."""


@attrs.frozen
class LogLateFailure:
    """Say that something has failed when all results were committed."""

    error: PyFlinkStateError


Instruction = (
    BeginAttempt
    | GoBack
    | Pause
    | ClaimJob
    | StartSlots
    | TakeOver
    | PlanEmptyEpoch
    | Rest
    | SetBarrier
    | RunEpoch
    | CancelEpoch
    | PrepareOutput
    | AlignBarrier
    | CommitOutput
    | CountReport
    | RefuseSavepoint
    | EndAttempt
    | CloseSlots
    | LogLateFailure
)
