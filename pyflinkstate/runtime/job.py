"""The job master: drives epochs, checkpoints, commits and restarts from the driver.

One thread handles one event at a time; the Spark job of an epoch runs beside it, and what happens
meanwhile (acknowledgements, reports, a slot that died) arrives in one queue. So checkpoint ``n`` is
written and completed while epoch ``n + 1`` runs.

An attempt starts from a completed checkpoint, or from nothing. Any failure ends it: its slots are cut
off, what its sinks prepared is thrown away, and the restart strategy decides whether the next one
starts. Nothing of a failed attempt reaches the next one: tasks, reports and slots carry the attempt's
number, and a checkpoint's id is never used again.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import secrets
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.key_groups import check_parallelism, key_group_range
from pyflinkstate.backends.operator_state.repartition import assign_state
from pyflinkstate.backends.state_handles import StateAssignment
from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    IncompatibleCheckpointError,
    JobFailedError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.clock import Clock
from pyflinkstate.runtime.control import ControlServer, Endpoint, SlotLost, SlotRegistry
from pyflinkstate.runtime.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    CheckpointSettings,
    DiscardCheckpoint,
    FailJob,
    Instruction,
    PendingCheckpoint,
    WriteMetadata,
)
from pyflinkstate.runtime.messages import (
    AbortCheckpoint,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    DeploySlot,
    SlotId,
    TaskReport,
)
from pyflinkstate.runtime.observe import (
    Accumulators,
    CheckpointStats,
    EpochStats,
    JobExecutionResult,
    JobListener,
)
from pyflinkstate.runtime.pickling import dumps_by_value
from pyflinkstate.runtime.plan import JobPlan, KeyedOperator, functions_of
from pyflinkstate.runtime.restart import RestartStrategy
from pyflinkstate.runtime.slot_client import DriverLink
from pyflinkstate.runtime.sources import Epoch
from pyflinkstate.runtime.storage import CheckpointStorage
from pyflinkstate.runtime.tasks import TaskLink

_log = logging.getLogger("pyflinkstate")

TICK_S = 0.5
CLOSE_TIMEOUT_S = 30
#: So many completed checkpoints are told of in the result.
CHECKPOINT_HISTORY = 10_000


@attrs.frozen
class JobSettings:
    """What the environment was told."""

    name: str
    checkpoints: CheckpointSettings
    restart: RestartStrategy
    listeners: tuple[JobListener, ...] = ()
    state_backend: HashMapStateBackend = attrs.Factory(HashMapStateBackend)


@attrs.frozen
class EpochRequest:
    """One epoch, ready to be run by an :class:`EpochRunner`."""

    plan: JobPlan
    link: TaskLink
    epoch: Epoch | None
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Any]
    description: str


@attrs.frozen
class EpochEnded:
    """Event: the Spark job of an epoch ended, with one list of results for each sink, or an error."""

    results: list[list[Any]] | None
    error: PyFlinkStateError | None


class EpochRunner:
    """Runs epochs beside the job master; ``runtime.spark`` implements it."""

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        """Begin; ``done`` is called from another thread, once."""
        raise NotImplementedError

    def cancel(self) -> None:
        """Make the running epoch end soon; its ``done`` is still called."""
        raise NotImplementedError


@attrs.frozen
class RestorePoint:
    """A completed checkpoint to start from, and the URI or path of its folder."""

    metadata: CheckpointMetadata
    uri: str


class Job:
    """One run of a plan.

    Args:
        plan: what to run.
        settings: how.
        runner: what runs an epoch.
        endpoint: where this process listens, and where tasks reach it.
        storage: where checkpoints go; None where none are taken.
        restore: the checkpoint to start from.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: JobSettings,
        runner: EpochRunner,
        endpoint: Endpoint,
        clock: Clock,
        storage: CheckpointStorage | None = None,
        restore: RestorePoint | None = None,
    ) -> None:
        self._settings = settings
        self._runner = runner
        self._clock = clock
        self._storage = storage
        self._restore = restore
        self._plan = plan if restore is None else _fit(plan, settings.name, restore.metadata)
        self._functions = {op.operator_id: _pickled(op.name, op.node.function) for op in self._plan.operators}
        for name, function in functions_of(self._plan):
            _pickled(name, function)  # found now, and not by Spark in the middle of the first epoch
        self.job_id = uuid.uuid4().hex if restore is None else restore.metadata.job_id
        last_id, completed = self._ids_in_use()
        self._coordinator = CheckpointCoordinator(settings.checkpoints, last_id, completed)
        self._accumulators = Accumulators()
        self._checkpoints: deque[CheckpointStats] = deque(maxlen=CHECKPOINT_HISTORY)
        self._attempt = 0
        self._restarts_since_progress = 0
        self._epoch = 0
        self._committed = 0
        self._unannounced: list[int] = []
        self._positions: dict[int, Any] = {}
        self._last_duration_ms = 0
        self._running = False
        self._ended: EpochEnded | None = None
        self._failure: PyFlinkStateError | None = None
        self._secret = secrets.token_bytes(32)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._endpoint = endpoint
        self._control: ControlServer | None = None
        self._registry: SlotRegistry | None = None

    def _ids_in_use(self) -> tuple[int, list[int]]:
        if self._storage is None or self._restore is None:
            return 0, []
        restored = self._restore.metadata.checkpoint_id
        used = [restored, *self._storage.checkpoint_ids(self.job_id)]
        return max(used), [done for done in self._storage.completed(self.job_id) if done <= restored]

    # --- the life of a job -----------------------------------------------------------------------

    def run(self) -> Iterator[int]:
        """Run to the end of the input; yields the number of each epoch when it is committed.

        Raises:
            JobFailedError: it was restarted, and may not be again; ``__cause__`` is the failure.
            PyFlinkStateError: the failure itself, where no restart was tried.
        """
        self._control = ControlServer(self._endpoint, self._secret, self._events, self._deployment_of)
        try:
            self._forget_later_checkpoints()
            restored = None if self._restore is None else self._restore.metadata.epoch
            for sink in self._plan.sinks:
                sink.sink.open(self.job_id, restored)
            self._begin_attempt()
            while True:
                try:
                    yield from self._run_attempt()
                    break
                except PyFlinkStateError as error:
                    self._recover(error)
            self._close_slots()
        except GeneratorExit:
            self._close_slots()  # nobody wants more results; no epoch is running
            raise
        finally:
            self._control.close()
            if self._running:
                self._runner.cancel()
            if self._storage is not None:
                self._execute(self._coordinator.abort_pending(CheckpointError("the job ended")))

    def _close_slots(self) -> None:
        """Close the functions. What ``close`` raises is logged: the results are committed."""
        assert self._registry is not None
        self._failure = None
        self._registry.close(CLOSE_TIMEOUT_S)
        while not self._events.empty():
            self._handle(self._events.get())
        if self._failure is not None:
            _log.warning("job %r has ended, but: %s", self._settings.name, self._failure)

    def _forget_later_checkpoints(self) -> None:
        """Delete what is newer than the restored checkpoint: the sinks will forget it as well.

        Whoever restores an older checkpoint begins from there. If the newer ones stayed, "latest" could
        go back to one of them, to find its output deleted.
        """
        if self._storage is None or self._restore is None:
            return
        for checkpoint_id in self._storage.checkpoint_ids(self.job_id):
            if checkpoint_id > self._restore.metadata.checkpoint_id:
                self._storage.discard(self.job_id, checkpoint_id)

    def result(self) -> JobExecutionResult:
        """Return what is known of the job so far."""
        return JobExecutionResult(
            self.job_id,
            self._accumulators.total(self._epoch),
            self._accumulators.rejected(),
            tuple(self._checkpoints),
            self._epoch,
            self._attempt,
        )

    def slot_pids(self) -> dict[SlotId, int]:
        """Return the process ids of the slots that run now."""
        return {} if self._registry is None else self._registry.pids()

    def _begin_attempt(self) -> None:
        assert self._control is not None
        metadata = None if self._restore is None else self._restore.metadata
        self._epoch = self._committed = 0 if metadata is None else metadata.epoch
        self._positions = {self._epoch: None if metadata is None else metadata.source_position}
        self._accumulators.reset(self._epoch, {} if metadata is None else metadata.counters)
        self._registry = self._control.new_attempt(self._attempt)
        self._failure = None

    def _recover(self, error: PyFlinkStateError) -> None:
        self._await_end_of_epoch()
        self._execute(self._coordinator.abort_pending(error))
        if not self._settings.restart.allows(error, self._restarts_since_progress):
            if self._attempt == 0 or not error.recoverable:
                raise error
            raise JobFailedError(
                f"job {self._settings.name!r} failed in epoch {self._epoch + 1} after "
                f"{self._attempt} restarts: {error}"
            ) from error
        self._attempt += 1
        self._restarts_since_progress += 1
        self._begin_attempt()
        for sink in self._plan.sinks:
            sink.sink.rewind(self._epoch)
            sink.sink.commit(self._epoch)  # again, if it was the commit that failed
        for listener in self._settings.listeners:
            listener.on_restart(self._attempt, error)
        self._clock.sleep_ms(self._settings.restart.delay_ms)

    def _await_end_of_epoch(self) -> None:
        """Cancel what the failed attempt has running; its slots are cut off, so tasks end too."""
        if self._running:
            assert self._registry is not None
            self._registry.end()
            self._runner.cancel()
        while self._running:
            self._handle(self._events.get())

    # --- epochs ----------------------------------------------------------------------------------

    def _run_attempt(self) -> Iterator[int]:
        while True:
            self._raise_failure()
            epoch = self._next_epoch()
            if epoch is None and self._committed == self._epoch:
                return
            self._run_epoch(epoch)
            if self._storage is None:
                self._commit(self._epoch)
            elif epoch is None or epoch.is_last:
                self._wait_until(lambda: self._coordinator.pending is None)
            yield from self._newly_committed()

    def _next_epoch(self) -> Epoch | None:
        return self._plan.source.source.plan(
            self._positions[self._epoch], bounded_epochs=self._storage is not None
        )

    def _run_epoch(self, epoch: Epoch | None) -> None:
        """Run one epoch; None is an empty one at the end of the input, to take the last checkpoint."""
        number = self._epoch + 1
        is_last = epoch is None or epoch.is_last
        if is_last:
            self._wait_until(lambda: self._coordinator.pending is None)
        started_ms = self._clock.now_ms()
        barrier = self._barrier(number, started_ms, is_last)
        self._ended = None
        self._runner.start(self._request(number, epoch, barrier), self._events.put)
        self._running = True
        self._wait_until(lambda: not self._running)
        ended = self._ended
        assert ended is not None
        if ended.error is not None:
            raise self._failure or ended.error
        assert ended.results is not None
        for sink, results in zip(self._plan.sinks, ended.results, strict=True):
            sink.sink.prepare(number, results)
        self._positions[number] = self._positions[number - 1] if epoch is None else epoch.end
        self._epoch = number
        self._last_duration_ms = self._clock.now_ms() - started_ms
        self._tell_of_epoch(number)
        if barrier is not None:
            self._execute(self._coordinator.barrier_aligned(barrier.checkpoint_id, self._clock.now_ms()))

    def _request(self, number: int, epoch: Epoch | None, barrier: CheckpointTrigger | None) -> EpochRequest:
        assert self._control is not None
        assert self._registry is not None
        driver = DriverLink(self._control.address, self._secret, self._attempt)
        return EpochRequest(
            self._plan,
            TaskLink(driver, number),
            epoch,
            barrier,
            self._registry.addresses(),
            f"{self._settings.name}: epoch {number}",
        )

    def _barrier(self, number: int, now_ms: int, is_last: bool) -> CheckpointTrigger | None:
        """Return the barrier at the end of the epoch, if a checkpoint is due by then."""
        if self._storage is None:
            return None
        expected_ms = now_ms + self._last_duration_ms
        if not is_last and not self._coordinator.is_due(expected_ms):
            return None
        checkpoint_id = self._coordinator.trigger(now_ms, number, self._subtasks())
        try:
            folder = self._storage.begin(self.job_id, checkpoint_id)
        except CheckpointError as error:
            self._execute(self._coordinator.not_completed(checkpoint_id, error))
            return None
        return CheckpointTrigger(checkpoint_id, now_ms, folder)

    def _subtasks(self) -> Iterator[SlotId]:
        for operator in self._plan.operators:
            for subtask in range(operator.parallelism):
                yield SlotId(operator.operator_id, subtask)

    def _commit(self, epoch: int) -> None:
        for sink in self._plan.sinks:
            sink.sink.commit(epoch)
        self._accumulators.fold(epoch)
        self._unannounced.extend(range(self._committed + 1, epoch + 1))
        self._committed = epoch
        self._positions = {n: position for n, position in self._positions.items() if n >= epoch}

    def _newly_committed(self) -> Iterator[int]:
        while self._unannounced:
            yield self._unannounced.pop(0)

    def _tell_of_epoch(self, number: int) -> None:
        records = self._accumulators.of_epoch(number, f"{self._plan.source.name}.records_out")
        stats = EpochStats(number, records, self._last_duration_ms, self._attempt)
        for listener in self._settings.listeners:
            listener.on_epoch(stats)

    # --- events ----------------------------------------------------------------------------------

    def _wait_until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._raise_failure()
            with contextlib.suppress(queue.Empty):
                self._handle(self._events.get(timeout=TICK_S))
            self._execute(self._coordinator.tick(self._clock.now_ms()))

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _handle(self, event: Any) -> None:
        if isinstance(event, EpochEnded):
            self._running = False
            self._ended = event
        elif isinstance(event, TaskReport):
            self._handle_report(event)
        elif isinstance(event, SlotLost):
            if event.attempt == self._attempt:
                self._failure = self._failure or event.error
        elif isinstance(event, CheckpointAck):
            self._execute(self._coordinator.acknowledge(event))
        elif isinstance(event, CheckpointDecline):
            self._execute(self._coordinator.decline(event))

    def _handle_report(self, report: TaskReport) -> None:
        if report.attempt != self._attempt:
            return
        if report.error is None:
            self._accumulators.add(report)
        else:
            self._failure = self._failure or report.error

    # --- checkpoints -----------------------------------------------------------------------------

    def _execute(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            if isinstance(instruction, WriteMetadata):
                self._complete(instruction.checkpoint)
            elif isinstance(instruction, AbandonCheckpoint):
                self._abandon(instruction)
            elif isinstance(instruction, DiscardCheckpoint):
                self._discard(instruction.checkpoint_id)
            elif isinstance(instruction, FailJob):
                self._failure = self._failure or instruction.error

    def _complete(self, pending: PendingCheckpoint) -> None:
        assert self._storage is not None
        metadata = self._metadata(pending)
        try:
            self._storage.complete(metadata)
        except CheckpointError as error:
            self._execute(self._coordinator.not_completed(pending.checkpoint_id, error))
            return
        # The checkpoint exists. If a sink's commit fails now, the restart begins here and commits again.
        self._restore = RestorePoint(metadata, self._storage.uri_of(self.job_id, pending.checkpoint_id))
        self._restarts_since_progress = 0
        subsumed = self._coordinator.completed(pending.checkpoint_id)
        try:
            self._commit(pending.epoch)
        finally:
            self._execute(subsumed)
        self._tell_of_checkpoint(pending)

    def _metadata(self, pending: PendingCheckpoint) -> CheckpointMetadata:
        return CheckpointMetadata(
            checkpoint_id=pending.checkpoint_id,
            job_id=self.job_id,
            job_name=self._settings.name,
            epoch=pending.epoch,
            source_position=self._positions[pending.epoch],
            counters=self._accumulators.total(pending.epoch),
            timestamp_ms=pending.triggered_ms,
            operators=tuple(
                OperatorState(
                    operator.operator_id,
                    operator.parallelism,
                    operator.max_parallelism,
                    tuple(
                        pending.acks[SlotId(operator.operator_id, subtask)].state
                        for subtask in range(operator.parallelism)
                    ),
                )
                for operator in self._plan.operators
            ),
        )

    def _tell_of_checkpoint(self, pending: PendingCheckpoint) -> None:
        acks = pending.acks.values()
        stats = CheckpointStats(
            pending.checkpoint_id,
            pending.epoch,
            max((ack.sync_ms for ack in acks), default=0.0),
            max((ack.async_ms for ack in acks), default=0.0),
            sum(ack.state.size_bytes for ack in acks),
        )
        self._checkpoints.append(stats)
        for listener in self._settings.listeners:
            listener.on_checkpoint(stats)

    def _abandon(self, instruction: AbandonCheckpoint) -> None:
        if self._registry is not None:
            for slot in self._subtasks():
                self._registry.send(slot, AbortCheckpoint(instruction.checkpoint_id))
        self._discard(instruction.checkpoint_id)

    def _discard(self, checkpoint_id: int) -> None:
        """Delete; what cannot be deleted is without ``_metadata`` or superseded, and harms nobody."""
        assert self._storage is not None
        try:
            self._storage.discard(self.job_id, checkpoint_id)
        except CheckpointError:
            return

    # --- slots -----------------------------------------------------------------------------------

    def _deployment_of(self, slot: SlotId) -> DeploySlot:
        """Return what a slot shall run. Called from the control server's threads."""
        operator = next(op for op in self._plan.operators if op.operator_id == slot.operator_id)
        restore = self._restore
        state = None if restore is None else restore.metadata.operator(operator.operator_id)
        owned = key_group_range(operator.max_parallelism, operator.parallelism, slot.subtask)
        assignment = StateAssignment()
        if state is not None:
            assignments = assign_state(state.subtasks, operator.parallelism, operator.max_parallelism)
            assignment = assignments[slot.subtask]
        return DeploySlot(
            name=operator.name,
            function=self._functions[operator.operator_id],
            key_type=operator.node.key_type,
            key_group_range=owned,
            max_parallelism=operator.max_parallelism,
            parallelism=operator.parallelism,
            attempt=self._attempt,
            epoch=self._epoch,
            storage=None if self._storage is None else self._storage.settings,
            state_backend=self._settings.state_backend,
            restored_checkpoint_id=None if restore is None else restore.metadata.checkpoint_id,
            restore_uri=None if restore is None or state is None else restore.uri,
            state=assignment,
        )


def _pickled(operator: str, function: Any) -> bytes:
    try:
        return dumps_by_value(function)
    except Exception as error:
        raise ConfigurationError(
            f"operator {operator!r}: its function cannot be pickled, so it cannot be sent to where it "
            f"runs: {error}. Make what it needs (connections, files) in open()",
            operator=operator,
        ) from error


def _fit(plan: JobPlan, job_name: str, metadata: CheckpointMetadata) -> JobPlan:
    """Check that a checkpoint is of this job, and take over its max parallelisms."""
    where = f"checkpoint {metadata.checkpoint_id} of job {metadata.job_id}"
    if metadata.job_name != job_name:
        raise IncompatibleCheckpointError(
            f"{where} is of job {metadata.job_name!r}, not of {job_name!r}: give the checkpoint or the "
            f"job name that belongs to this program"
        )
    known = {operator.operator_id for operator in plan.operators}
    for state in metadata.operators:
        if state.operator_id not in known and not state.is_empty:
            raise IncompatibleCheckpointError(
                f"{where} has state of operator {state.operator_id!r}, which the program does not have "
                f"(it has {', '.join(sorted(known)) or 'none'}): set uid() so that operators are found again"
            )
    operators = tuple(_with_max_parallelism(operator, metadata, where) for operator in plan.operators)
    return attrs.evolve(plan, operators=operators)


def _with_max_parallelism(operator: KeyedOperator, metadata: CheckpointMetadata, where: str) -> KeyedOperator:
    state = metadata.operator(operator.operator_id)
    if state is None or state.is_empty or state.max_parallelism == operator.max_parallelism:
        return operator
    if operator.max_parallelism_is_set:
        raise IncompatibleCheckpointError(
            f"{where}: operator {operator.operator_id!r} has max parallelism {state.max_parallelism}, "
            f"and the program sets {operator.max_parallelism}: it cannot change once there is state"
        )
    check_parallelism(operator.parallelism, state.max_parallelism)
    return attrs.evolve(operator, max_parallelism=state.max_parallelism)
