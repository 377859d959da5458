"""The interface between the job master and the engine: requests to run an epoch, code, and results."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import attrs

from pyflinkstate.api import Reported, UserFunction
from pyflinkstate.errors import PyFlinkStateError
from pyflinkstate.runtime.plan import Branch, JobPlan, SourceNode, Stage, functions_of
from pyflinkstate.runtime.sources import Epoch, EpochSet, InitialRows, RddEpoch, SplitEpoch
from pyflinkstate.runtime.tasks import EventTimeSettings, TaskLink
from pyflinkstate.runtime.wire import (
    Address,
    CheckpointTrigger,
    EventTimeProgress,
    ShippedFunction,
    SlotId,
    pickled,
)


class CodeBook:
    """The pickled functions of a plan that run inside Spark tasks.

    Raises:
        ConfigurationError: one of them cannot be pickled.
    """

    def __init__(self, plan: JobPlan) -> None:
        #: The pickles by digest.
        self.codes: dict[str, bytes] = {}
        #: Functions and the digests of their pickles, by the ids of the functions.
        self._functions: dict[int, tuple[UserFunction, str]] = {}
        for name, function in functions_of(plan):
            data = pickled(name, function)
            digest = hashlib.sha256(data).hexdigest()
            self.codes[digest] = data
            self._functions[id(function)] = function, digest

    def shipped(self, function: UserFunction, codes: object) -> UserFunction:
        """Return the object to send in place of ``function``: itself, if it is not part of the plan."""
        _, digest = self._functions.get(id(function), (None, None))
        return function if digest is None else ShippedFunction(digest, codes)


@attrs.frozen
class EpochRequest:
    """A request to an :class:`EpochRunner` to run one epoch."""

    plan: JobPlan
    link: TaskLink
    epoch: Epoch | None
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]
    description: str
    code: CodeBook
    event_time: EventTimeProgress = attrs.Factory(EventTimeProgress)
    #: Whether this is the last epoch.
    is_final: bool = False
    #: More about the job than its name, for whoever looks at the engine: its operators, its page.
    about: str = ""

    def epoch_of(self, source: SourceNode) -> SplitEpoch | RddEpoch | None:
        """Return the part of the epoch that a source reads, or None if it reads nothing."""
        if isinstance(self.epoch, EpochSet):
            return self.epoch.epochs.get(self.plan.source_key(source))
        return self.epoch

    def takes_part(self, stage: Stage) -> bool:
        """Return whether a stage has a part in this epoch. Initial rows have one only in the epoch of theirs.

        After that they are no input any more, so nobody waits for their watermark.
        """
        if isinstance(stage, SourceNode) and isinstance(stage.source, InitialRows):
            return self.epoch_of(stage) is not None
        return True

    def event_time_of(self, branch: Branch) -> EventTimeSettings | None:
        """Return the event time of a task of ``branch``, or None if the job does not use event time."""
        if not self.plan.uses_event_time:
            return None
        assigners = [operator.assigner_id for operator in branch.operators if operator.assigner_id]
        return EventTimeSettings(
            self._ends(branch.stage),
            bool(assigners) and assigners[-1] in self.event_time.idle,
            self.event_time.watermarks,
        )

    def _ends(self, stage: Stage) -> bool:
        if self.is_final:
            return True
        if isinstance(self.epoch, EpochSet) and isinstance(stage, SourceNode):
            return self.plan.source_key(stage) in self.epoch.ended
        return False


@attrs.frozen
class SlotsRequest:
    """A request to start slots and restore their state before any epoch runs."""

    link: TaskLink
    slots: tuple[SlotId, ...]
    description: str


@attrs.frozen
class EpochEnded:
    """Event: the Spark job of an epoch ended, with one list of results for each sink, or with an error.

    The job that starts slots ends with this event too, without results. ``run`` counts the requests to the
    engine. The job master sets it, to tell the request that it waits for from one that it gave up.
    """

    results: list[list[Reported]] | None
    error: PyFlinkStateError | None
    run: int = 0


class EpochRunner:
    """Runs epochs concurrently with the job master; ``runtime.spark`` implements it."""

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """Start an epoch; ``done`` is called once, from another thread."""
        raise NotImplementedError

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """Start slots; ``done`` is called once, from another thread, when all of them run."""
        raise NotImplementedError

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        """Read and shuffle the input of an epoch while the one before it runs, and keep the result.

        This is what comes before the first shuffles of the epoch, and no more. A later ``start`` with the
        same link and the same input goes on from there. An engine need not do anything. If something fails
        nobody is told, as the epoch does it again when it is started. At most one epoch is shuffled ahead.

        Args:
            request: the epoch; its barrier, its addresses and ``is_final`` are not known yet.
            done: called once, from any thread, when nothing of it runs any more.
        """
        done()

    def cancel(self) -> None:
        """Make the running epoch and what is shuffled ahead end soon; ``done`` is called all the same.

        The job master calls this again and again until they have ended.
        """
        raise NotImplementedError

    def lost(self) -> PyFlinkStateError | None:
        """Return why the epoch that was started last will never end, or None while something runs it.

        The job master calls this again and again while it waits, so it must not block. If it returns an
        error, ``done`` was called before or will not be called any more.
        """
        raise NotImplementedError

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """Return why the engine can run nothing any more, or None as long as it can.

        The job master calls this whenever it waits, also while nothing runs, so it must not block.

        Args:
            at_once: whether an answer of a moment ago will not do, because an attempt has just failed.
        """
        return None

    def close(self) -> None:
        """Release what was kept for the job, which has ended; results that were handed over stay."""
