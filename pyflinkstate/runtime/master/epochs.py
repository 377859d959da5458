"""The epochs in flight: each is an object with a life of its own.

::

    PLANNED --------> RUNNING --------> PREPARED --------> COMMITTED
            RunEpoch          its run has ended,  a checkpoint covers it:
                              PrepareOutput       CommitOutput

An epoch is planned when its input is known; the engine may read and shuffle that input ahead, while an
earlier epoch runs. Nothing depends on that: the epoch does it again in its turn if it failed. A bounded
number of epochs are planned or running, and each step is taken in the order of their numbers. A failure
throws away all epochs after the last committed one.
"""

from __future__ import annotations

import enum
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress

import attrs

from pyflinkstate.errors import ImpossibleEventError, PyFlinkStateError
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.wire import CheckpointTrigger

#: The results of an epoch: for each sink the results of its tasks.
Results = list[list[object]]


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

    @property
    def is_final(self) -> bool:
        """Whether event time ends with it."""
        return self.step.is_last or (
            self.savepoint is not None and self.savepoint.stops_job and self.savepoint.drains
        )

    @property
    def ends_job(self) -> bool:
        """Whether no epoch follows, unless its savepoint fails."""
        return self.step.is_last or (self.savepoint is not None and self.savepoint.stops_job)

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
        return self.newest.number - self.prepared < self._most

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
