"""The events of the job's machine: plain values that the driver loop makes.

Messages from slots, tasks and the engine (``SlotLost``, ``TaskReport``, ``EpochEnded``) and requests of users
(``CancelJob``, ``SavepointRequest``) are used as events directly.
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
    """The job was started."""


@attrs.frozen
class AttemptBegun:
    """An attempt is set up; it goes on from the end of ``epoch``."""

    epoch: int


@attrs.frozen
class WentBack:
    """The sinks have gone back to where the attempt begins, and listeners know about the restart."""


@attrs.frozen
class PauseEnded:
    """The delay of the restart strategy is over."""


@attrs.frozen
class JobClaimed:
    """The job is claimed: no older driver may change anything any more.

    Attributes:
        epoch: from where the job goes on; an older driver may have completed one more checkpoint.
        restores: whether slots have state to restore.
    """

    epoch: int
    restores: bool


@attrs.frozen
class JobTakenOver:
    """Later checkpoints, from which the job does not go on, are set aside, and the sinks are open."""


@attrs.frozen
class SourceAsked:
    """The source was asked for the next epoch.

    Attributes:
        step: the next epoch; None if the source has nothing now, or was not asked for an epoch.
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
class CheckpointsSettled:
    """No checkpoint and no savepoint is pending."""


@attrs.frozen
class BarrierSet:
    """The barrier at the end of the next epoch is decided.

    Attributes:
        trigger: the checkpoint for which subtasks take snapshots; None if there is none.
        savepoint: the savepoint that is taken with it, if there is one.
    """

    trigger: CheckpointTrigger | None
    savepoint: SavepointRequest | None = None


@attrs.frozen
class EpochStarted:
    """The engine has begun to run the epoch."""


@attrs.frozen
class ShuffledAhead:
    """The engine runs nothing ahead any more: epoch ``number`` is shuffled, or could not be."""

    number: int


@attrs.frozen
class OutputPrepared:
    """The sinks have prepared what the epoch wrote."""


@attrs.frozen
class CheckpointCompleted:
    """A checkpoint is complete: the job would restart from it.

    ``stops_job``: the job stops with this savepoint.
    """

    epoch: int
    stops_job: bool


@attrs.frozen
class OutputCommitted:
    """The sinks have committed up to the end of ``epoch``."""

    epoch: int


@attrs.frozen
class Failed:
    """Something that the attempt needs has failed, other than what the machine is waiting for."""

    error: PyFlinkStateError


@attrs.frozen
class InstructionFailed:
    """An instruction failed; ``begins_run``: it was to start the engine, which therefore does not run."""

    error: PyFlinkStateError
    begins_run: bool = False


@attrs.frozen
class ConsumerLeft:
    """The consumer of the results has stopped reading."""


@attrs.frozen
class AttemptEnded:
    """Nothing of the failed attempt runs any more.

    Attributes:
        error: why it failed.
        falls_back: whether its checkpoint is damaged, and the next attempt begins from an earlier one.
        now_ms: the monotonic time.
    """

    error: PyFlinkStateError
    falls_back: bool
    now_ms: int


@attrs.frozen
class SlotsClosed:
    """All user functions are closed."""


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
    | EpochStarted
    | ShuffledAhead
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

#: The results of an epoch: for each sink the results of its tasks.
Results = list[list[Any]]
