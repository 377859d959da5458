"""One epoch on its way to be run: what the job master asks of Spark, and what comes back."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from pyflinkstate.api.values import Reported
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.engine.shipping import CodeBook
from pyflinkstate.runtime.plan import Branch, JobPlan, SourceNode, Stage
from pyflinkstate.runtime.sources import Epoch, EpochSet, RddEpoch, SplitEpoch
from pyflinkstate.runtime.tasks import EventTimeSettings, TaskLink
from pyflinkstate.runtime.wire import Address, CheckpointTrigger, EventTimeProgress, SlotId


@attrs.frozen
class EpochRequest:
    """One epoch, ready to be run by an :class:`EpochRunner`."""

    plan: JobPlan
    link: TaskLink
    epoch: Epoch | None
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]
    description: str
    code: CodeBook
    event_time: EventTimeProgress = attrs.Factory(EventTimeProgress)
    #: Nothing comes after this epoch.
    is_final: bool = False

    def epoch_of(self, source: SourceNode) -> SplitEpoch | RddEpoch | None:
        """Return what is to be read of a source; None for nothing."""
        if isinstance(self.epoch, EpochSet):
            return self.epoch.epochs[self.plan.source_key(source)]
        return self.epoch

    def event_time_of(self, branch: Branch) -> EventTimeSettings | None:
        """Return what a task of ``branch`` must know; None in a job without event time."""
        if not self.plan.uses_event_time:
            return None
        assigners = [operator.assigner_id for operator in branch.operators if operator.assigner_id]
        is_idle = bool(assigners) and assigners[-1] in self.event_time.idle
        return EventTimeSettings(self._ends(branch.stage), is_idle, self.event_time.watermarks)

    def _ends(self, stage: Stage) -> bool:
        if self.is_final:
            return True
        has_ended = isinstance(self.epoch, EpochSet) and isinstance(stage, SourceNode)
        return has_ended and self.plan.source_key(stage) in self.epoch.ended  # type: ignore[arg-type, union-attr]


@attrs.frozen
class SlotsRequest:
    """Slots that shall run, with their state restored, before any epoch does."""

    link: TaskLink
    slots: tuple[SlotId, ...]
    description: str


@attrs.frozen
class EpochEnded:
    """Event: the Spark job of an epoch ended, with one list of results for each sink, or an error.

    Of the job that starts slots, with no results.
    ``run`` counts the epochs that this job has asked for. The job master sets it, to tell an epoch
    that was given up from the one that it waits for.
    """

    results: list[list[Reported]] | None
    error: PyFlinkStateError | None
    run: int = 0


class EpochRunner:
    """Runs epochs beside the job master; ``runtime.spark`` implements it."""

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """Begin; ``done`` is called from another thread, once."""
        raise NotImplementedError

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """Begin to start slots; ``done`` is called from another thread, once, when all of them run."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Make the running epoch end soon; its ``done`` is still called."""
        raise NotImplementedError

    def lost(self) -> PyFlinkStateError | None:
        """Return why nothing will be heard of the epoch that was started last; None while something runs it.

        It is asked again and again while the job master waits, and must not block. When it returns an error,
        ``done`` has been called before, or need not be waited for any more.
        """
        raise NotImplementedError
