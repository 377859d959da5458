"""What happens to a job, as its machine is told: plain values that the driver loop makes.

What slots, tasks and the engine tell (``SlotLost``, ``TaskReport``, ``EpochEnded``) and what people ask for
(``CancelJob``, ``SavepointRequest``) are events as they are.
"""

from __future__ import annotations

from typing import Any

import attrs

from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.checkpoints import SavepointRequest
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.job.planner import Step
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, TaskReport


@attrs.frozen
class JobStarted:
    """Somebody runs the job."""


@attrs.frozen
class AttemptBegun:
    """All is set for an attempt, which goes on from the end of ``epoch``."""

    epoch: int


@attrs.frozen
class WentBack:
    """The sinks have gone back to where the attempt begins, and listeners know of the restart."""


@attrs.frozen
class PauseEnded:
    """The restart has been put off for as long as its strategy says."""


@attrs.frozen
class JobClaimed:
    """No older driver of the job may change anything any more.

    Attributes:
        epoch: where the job goes on; an older driver may have completed one more checkpoint.
        restores: there are slots that have state to restore.
    """

    epoch: int
    restores: bool


@attrs.frozen
class JobTakenOver:
    """What the job does not go on from is set aside, and the sinks are open."""


@attrs.frozen
class SourceAsked:
    """The source was asked what comes next.

    Attributes:
        step: the next epoch; None where there is nothing now, or nothing is needed.
        is_over: nothing is left, nor will anything ever come.
        has_pending: checkpoints are under way.
        is_due: a checkpoint is due.
        timers_are_due: a timer by processing time is to fire.
    """

    step: Step | None
    is_over: bool = False
    has_pending: bool = False
    is_due: bool = False
    timers_are_due: bool = False


@attrs.frozen
class CheckpointsSettled:
    """No checkpoint and no savepoint is under way."""


@attrs.frozen
class BarrierSet:
    """It is settled which barrier ends the next epoch.

    Attributes:
        trigger: what subtasks are told; None where no checkpoint is taken.
        savepoint: the one that is taken with it, if there is one.
    """

    trigger: CheckpointTrigger | None
    savepoint: SavepointRequest | None = None


@attrs.frozen
class OutputPrepared:
    """The sinks have prepared what the epoch wrote."""


@attrs.frozen
class CheckpointCompleted:
    """A checkpoint exists: the job would restart from it. ``stops_job``: it is a savepoint to stop with."""

    epoch: int
    stops_job: bool


@attrs.frozen
class OutputCommitted:
    """The sinks have committed up to the end of ``epoch``."""

    epoch: int


@attrs.frozen
class Failed:
    """Something that the attempt needs has failed, beside what the machine is waiting for."""

    error: PyFlinkStateError


@attrs.frozen
class InstructionFailed:
    """What the machine asked for could not be done; ``begins_run``: the engine did not begin."""

    error: PyFlinkStateError
    begins_run: bool = False


@attrs.frozen
class ConsumerLeft:
    """Who reads the results wants no more of them."""


@attrs.frozen
class AttemptEnded:
    """Nothing of the failed attempt runs any more.

    Attributes:
        error: why it failed.
        falls_back: the checkpoint that it began with is damaged, and the next one begins before it.
        now_ms: when; monotonic.
    """

    error: PyFlinkStateError
    falls_back: bool
    now_ms: int


@attrs.frozen
class SlotsClosed:
    """All functions are closed."""


Event = (
    JobStarted
    | AttemptBegun
    | WentBack
    | PauseEnded
    | JobClaimed
    | JobTakenOver
    | SourceAsked
    | CheckpointsSettled
    | BarrierSet
    | EpochEnded
    | OutputPrepared
    | CheckpointCompleted
    | OutputCommitted
    | Failed
    | InstructionFailed
    | ConsumerLeft
    | AttemptEnded
    | SlotsClosed
    | CancelJob
    | SavepointRequest
    | SlotLost
    | TaskReport
)

#: The results of an epoch: for each sink what its tasks returned.
Results = list[list[Any]]
