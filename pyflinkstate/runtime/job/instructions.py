"""The instructions of the job's machine to the driver loop.

Each docstring names the event that answers it, if any.
"""

from __future__ import annotations

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.checkpoints import SavepointRequest
from pyflinkstate.runtime.job.events import Results
from pyflinkstate.runtime.job.planner import Step
from pyflinkstate.runtime.wire import CheckpointTrigger, TaskReport


@attrs.frozen
class BeginAttempt:
    """Cut off previous attempts and go to the newest checkpoint: ``AttemptBegun``."""

    attempt: int


@attrs.frozen
class Pause:
    """End the slots, tell listeners that ``attempt`` follows ``error``, and wait for it: ``PauseEnded``."""

    attempt: int
    delay_ms: int
    error: PyFlinkStateError


@attrs.frozen
class GoBack:
    """Have the sinks, which are open, go back to the end of ``epoch``: ``WentBack``."""

    epoch: int


@attrs.frozen
class ClaimJob:
    """Make any older driver of the job end: ``JobClaimed``."""


@attrs.frozen
class StartSlots:
    """Let every slot restore its state, without reading a record: ``EpochEnded``."""

    run: int


@attrs.frozen
class TakeOver:
    """Set aside checkpoints from which the job does not go on, and open the sinks: ``JobTakenOver``."""


@attrs.frozen
class PlanEmptyEpoch:
    """Plan an epoch without records, for its barrier or for timers: ``SourceAsked``."""


@attrs.frozen
class Rest:
    """There is nothing to do: wait a little while for messages."""


@attrs.frozen
class SetBarrier:
    """Decide on the barrier at the end of epoch ``number``: ``BarrierSet``.

    Attributes:
        savepoint: the savepoint to take with it, if there is one.
        is_needed: whether a checkpoint is taken in any case, and not only if one is due by then.
    """

    number: int
    savepoint: SavepointRequest | None
    is_needed: bool


@attrs.frozen
class RunEpoch:
    """Let the engine run an epoch: ``EpochStarted``, and later ``EpochEnded`` with the same ``run``."""

    run: int
    number: int
    step: Step
    barrier: CheckpointTrigger | None
    #: Whether this is the last epoch.
    is_final: bool


@attrs.frozen
class ShuffleAhead:
    """Plan epoch ``number`` and let the engine read and shuffle its input: ``ShuffledAhead``, in any case."""

    number: int


@attrs.frozen
class CancelEpoch:
    """Make what runs end soon, and cut off its slots.

    ``EpochEnded`` and ``ShuffledAhead`` come all the same.
    """


@attrs.frozen
class PrepareOutput:
    """Let the sinks prepare the output of epoch ``number``: ``OutputPrepared``."""

    number: int
    results: Results


@attrs.frozen
class AlignBarrier:
    """Tell the checkpoints that every subtask has reached the barrier."""

    trigger: CheckpointTrigger


@attrs.frozen
class CommitOutput:
    """Let the sinks commit up to the end of ``epoch``: ``OutputCommitted``."""

    epoch: int


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
class CloseSlots:
    """Close the user functions: ``SlotsClosed``."""


@attrs.frozen
class LogLateFailure:
    """Log a failure that came after all results were committed."""

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
    | ShuffleAhead
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
