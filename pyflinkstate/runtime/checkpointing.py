"""Carries out what the checkpoint coordinator decides: folders, files, messages to slots, statistics.

The coordinator knows when; this room knows how. It belongs to the job master and runs on its thread.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.state_handles import OperatorSubtaskState
from pyflinkstate.errors import CheckpointError, PyFlinkStateError
from pyflinkstate.runtime.clock import Clock
from pyflinkstate.runtime.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    CheckpointSettings,
    DiscardCheckpoint,
    DiscardState,
    FailJob,
    Instruction,
    NotifyComplete,
    PendingCheckpoint,
    SavepointTarget,
    WriteMetadata,
)
from pyflinkstate.runtime.messages import (
    AbortCheckpoint,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    NotifyCheckpointComplete,
    SlotId,
    StateMaterialized,
)
from pyflinkstate.runtime.observe import CheckpointStats
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.shared_state import SharedStateRegistry, shared_files
from pyflinkstate.runtime.storage import CheckpointStorage

_log = logging.getLogger("pyflinkstate.checkpoints")

#: So many checkpoints are told of in the result.
CHECKPOINT_HISTORY = 10_000
#: And so many, the newest first, in the file beside the checkpoints.
HISTORY_IN_FILE = 100


@attrs.frozen
class RestorePoint:
    """A completed checkpoint to start from, and the URI or path of its folder."""

    metadata: CheckpointMetadata
    uri: str


@attrs.frozen
class SavepointRequest:
    """Somebody wants a savepoint; the future gets its URI or the error."""

    directory: str
    stops_job: bool
    done: Future[str] = attrs.field(factory=Future, eq=False)
    #: Event time is to pass before the job stops.
    drains: bool = False

    def succeed(self, uri: str) -> None:
        """Tell whoever waits; nobody does any more when it was cancelled."""
        with suppress(InvalidStateError):
            self.done.set_result(uri)

    def fail(self, error: PyFlinkStateError) -> None:
        """Tell whoever waits; nobody does any more when it was cancelled."""
        with suppress(InvalidStateError):
            self.done.set_exception(error)


@attrs.frozen
class EpochState:
    """What a checkpoint keeps of the job at the end of an epoch.

    Attributes:
        position: of the source.
        counters: records so far.
        watermarks: of assigners and operators, by their ids.
    """

    position: object
    counters: dict[str, int]
    watermarks: dict[str, int] = attrs.Factory(dict)


class JobView:
    """What checkpointing asks of the job, and tells it."""

    def epoch_state(self, epoch: int) -> EpochState:
        """Return what the checkpoint of ``epoch`` keeps of the job."""
        raise NotImplementedError

    def send(self, slot: SlotId, message: object) -> None:
        """Send a message to a slot, if it runs."""
        raise NotImplementedError

    def completed(self, restore: RestorePoint, stops_job: bool) -> None:
        """A checkpoint is complete: the job restarts from it, and commits up to it."""
        raise NotImplementedError

    def checkpoint_ended(self, stats: CheckpointStats) -> None:
        """Tell whoever listens."""
        raise NotImplementedError

    def fail(self, error: PyFlinkStateError) -> None:
        """More checkpoints failed than the job tolerates."""
        raise NotImplementedError


class Checkpointing:
    """The checkpoints of one job.

    Args:
        storage: where they go.
        restore: the checkpoint that the job starts from, if any.
    """

    def __init__(
        self,
        job_id: str,
        job_name: str,
        plan: JobPlan,
        settings: CheckpointSettings,
        storage: CheckpointStorage,
        clock: Clock,
        job: JobView,
        restore: RestorePoint | None,
    ) -> None:
        self.history: deque[CheckpointStats] = deque(maxlen=CHECKPOINT_HISTORY)
        self._job_id = job_id
        self._job_name = job_name
        self._plan = plan
        self._settings = settings
        self._storage = storage
        self._clock = clock
        self._job = job
        self._registry = SharedStateRegistry()
        self._increments_since_full = 0
        self._last_id_before = 0
        self._savepoints: dict[int, SavepointRequest] = {}
        self._uris: dict[int, str] = {}
        #: What is known of a checkpoint's epoch; a later one may be committed before it is complete.
        self._epoch_states: dict[int, EpochState] = {}
        #: Folders of savepoints that were given up: what comes late is deleted from there.
        self._failed_savepoints: dict[int, str] = {}
        last_id, completed = self._ids_in_use(restore)
        self.coordinator = CheckpointCoordinator(settings, last_id, completed)
        self._knows_all_files = True
        #: The slots have restored what this run began with.
        self._is_proven = False
        #: Checkpoints that were passed over: they stay for somebody to look at.
        self._damaged: set[int] = set()
        for checkpoint_id in completed:
            self._register_restored(checkpoint_id)
        if restore is not None:
            self._registry.register_restored(restore.metadata)

    def _ids_in_use(self, restore: RestorePoint | None) -> tuple[int, list[int]]:
        if restore is None:
            return 0, []
        restored = restore.metadata.checkpoint_id
        used = [restored, *self._storage.checkpoint_ids(self._job_id)]
        return max(used), [done for done in self._storage.completed(self._job_id) if done <= restored]

    def _register_restored(self, checkpoint_id: int) -> None:
        uri = self._storage.uri_of(self._job_id, checkpoint_id)
        try:
            self._registry.register_restored(self._storage.load(uri))
        except CheckpointError as error:
            self._knows_all_files = False
            _log.warning("checkpoint %d cannot be read, and is left alone: %s", checkpoint_id, error)

    # --- the life of the job -----------------------------------------------------------------------

    def forget_later(self, restored: RestorePoint) -> None:
        """Delete what is newer than the restored checkpoint: the sinks will forget it as well.

        Whoever restores an older checkpoint begins from there. If the newer ones stayed, "latest" could
        go back to one of them, to find its output deleted.
        """
        for checkpoint_id in self._storage.checkpoint_ids(self._job_id):
            if checkpoint_id > restored.metadata.checkpoint_id:
                self._storage.discard(self._storage.uri_of(self._job_id, checkpoint_id))

    def begin_attempt(self) -> None:
        """The slots of the attempt before are cut off: what they were writing is nobody's."""
        self._registry.begin_attempt()
        self._last_id_before = self.coordinator.last_id
        self._increments_since_full = 0
        if self._knows_all_files:
            self._quietly(self._sweep)

    def end(self, is_finished: bool) -> None:
        """The run is over, and its checkpoints stay: as many as shall be kept, and nothing half-written.

        A run that failed before it had restored the newest does not know that it is whole: the older ones
        stay too, for the next run to fall back to.
        """
        if is_finished or self._is_proven:
            self.execute(self.coordinator.subsume())
        self.begin_attempt()

    def _sweep(self) -> None:
        """Delete what could not be deleted when it was to be, and what was half-written."""
        kept = {*self.coordinator.retained, *self._damaged}
        for checkpoint_id in self._storage.checkpoint_ids(self._job_id):
            if checkpoint_id not in kept:
                self._storage.discard(self._storage.uri_of(self._job_id, checkpoint_id))
                self._registry.unregister(checkpoint_id)
        self._storage.sweep_shared(self._job_id, self._registry.needed())

    def fall_back(self, damaged: RestorePoint) -> RestorePoint | None:
        """Return the newest retained checkpoint before ``damaged``, which is left where it is, unused."""
        for checkpoint_id in reversed(self.coordinator.retained):
            if checkpoint_id == damaged.metadata.checkpoint_id:
                self._damaged.add(checkpoint_id)
                self.coordinator.forget(checkpoint_id)
            if checkpoint_id >= damaged.metadata.checkpoint_id:
                continue
            uri = self._storage.uri_of(self._job_id, checkpoint_id)
            try:
                return RestorePoint(self._storage.load(uri), uri)
            except CheckpointError as error:
                _log.warning("checkpoint %d cannot be read either: %s", checkpoint_id, error)
        return None

    def abort_pending(self, error: PyFlinkStateError) -> None:
        """The attempt, or the job, is over."""
        self.execute(self.coordinator.abort_pending(error))

    def planned(self, restored: int) -> dict[int, Any]:
        """Return where the epochs after ``restored`` ended that an earlier run may not have completed.

        One that comes after a gap is of a run that went another way, and counts no more.
        """
        found = self._storage.read_planned(self._job_id)
        kept: dict[int, Any] = {}
        while restored + 1 in found:
            restored += 1
            kept[restored] = found.pop(restored)
        self._storage.forget_planned(self._job_id, found)
        return kept

    def plan(self, epoch: int, end: object) -> None:
        """Note where ``epoch`` will end; raises ``CheckpointStorageError``."""
        self._storage.write_planned(self._job_id, epoch, end)

    def forget_planned(self, epoch: int) -> None:
        """Epochs up to ``epoch`` are committed."""
        self._quietly(lambda: self._storage.forget_planned(self._job_id, range(epoch + 1)))

    def forget_all_planned(self) -> None:
        """The job goes back further than to its last checkpoint, and may cut epochs anew."""
        self._storage.forget_planned(self._job_id, self._storage.read_planned(self._job_id))

    def discard_all(self) -> None:
        """Delete every checkpoint of the job; savepoints stay."""
        for checkpoint_id in self._storage.checkpoint_ids(self._job_id):
            uri = self._storage.uri_of(self._job_id, checkpoint_id)
            if self._quietly(lambda uri=uri: self._storage.discard(uri)):  # type: ignore[misc]
                self._registry.unregister(checkpoint_id)
        self._registry.begin_attempt()
        self._quietly(lambda: self._storage.sweep_shared(self._job_id, self._registry.needed()))

    # --- barriers ----------------------------------------------------------------------------------

    def trigger(self, epoch: int, now_ms: int) -> CheckpointTrigger | None:
        """Begin a checkpoint at the barrier of ``epoch``; None where its folder cannot be made."""
        pending = self.coordinator.trigger(now_ms, epoch, self._subtasks())
        try:
            uri = self._storage.begin(self._job_id, pending.checkpoint_id, self._settings.incremental)
        except CheckpointError as error:
            self.execute(self.coordinator.not_completed(pending.checkpoint_id, error))
            return None
        self._uris[pending.checkpoint_id] = uri
        base_id = self.coordinator.latest_completed if self._settings.incremental else None
        materialize = False
        if base_id is not None:
            self._increments_since_full += 1
            materialize = self._increments_since_full % self._settings.materialization_interval == 0
        return CheckpointTrigger(
            pending.checkpoint_id, now_ms, uri, self._settings.incremental, base_id, materialize
        )

    def trigger_savepoint(
        self, request: SavepointRequest, epoch: int, now_ms: int
    ) -> CheckpointTrigger | None:
        """Begin a savepoint at the barrier of ``epoch``; None where its folder cannot be made."""
        try:
            uri = self._storage.begin_savepoint(request.directory, self._job_id)
        except PyFlinkStateError as error:
            request.fail(error)
            return None
        target = SavepointTarget(uri, request.stops_job)
        pending = self.coordinator.trigger(now_ms, epoch, self._subtasks(), target)
        self._uris[pending.checkpoint_id] = uri
        self._savepoints[pending.checkpoint_id] = request
        return CheckpointTrigger(pending.checkpoint_id, now_ms, uri)

    def _subtasks(self) -> list[SlotId]:
        return [
            SlotId(operator.operator_id, subtask)
            for operator in self._plan.operators
            for subtask in range(operator.parallelism)
        ]

    def barrier_aligned(self, checkpoint_id: int) -> None:
        """Every subtask has reached the barrier, and the epoch's output is prepared."""
        self._is_proven = True
        epochs = {pending.checkpoint_id: pending.epoch for pending in self.coordinator.pending}
        if checkpoint_id in epochs:
            self._epoch_states[checkpoint_id] = self._job.epoch_state(epochs[checkpoint_id])
        self.execute(self.coordinator.barrier_aligned(checkpoint_id, self._clock.now_ms()))

    # --- events ------------------------------------------------------------------------------------

    def handle(self, event: object) -> None:
        """Handle what a slot tells of checkpoints; anything else is nothing to do with them."""
        if isinstance(event, CheckpointAck):
            self.acknowledge(event)
        elif isinstance(event, CheckpointDecline):
            self.decline(event)
        elif isinstance(event, StateMaterialized):
            self.materialized(event)

    def acknowledge(self, ack: CheckpointAck) -> None:
        """A slot has written its part."""
        self.execute(self.coordinator.acknowledge(ack))

    def decline(self, message: CheckpointDecline) -> None:
        """A slot could not write its part."""
        self.execute(self.coordinator.decline(message))

    def materialized(self, message: StateMaterialized) -> None:
        """A slot has written all of its state in the background; of an earlier attempt, that is nobody's."""
        if message.checkpoint_id > self._last_id_before:
            self._registry.materialized(message.slot, message.handle)
        else:
            self._discard_shared({file.path for file in message.handle.files()})

    def tick(self) -> None:
        """Time has passed."""
        self.execute(self.coordinator.tick(self._clock.now_ms()))

    def execute(self, instructions: list[Instruction]) -> None:
        """Carry out what the coordinator says."""
        for instruction in instructions:
            if isinstance(instruction, WriteMetadata):
                self._complete(instruction.checkpoint)
            elif isinstance(instruction, AbandonCheckpoint):
                self._abandon(instruction)
            elif isinstance(instruction, DiscardCheckpoint):
                self._discard(instruction.checkpoint_id)
            elif isinstance(instruction, DiscardState):
                self._discard_late(instruction.ack)
            elif isinstance(instruction, NotifyComplete):
                self._tell_slots(NotifyCheckpointComplete(instruction.checkpoint_id))
            elif isinstance(instruction, FailJob):
                self._job.fail(instruction.error)

    # --- completion --------------------------------------------------------------------------------

    def _complete(self, pending: PendingCheckpoint) -> None:
        checkpoint_id = pending.checkpoint_id
        uri = self._uris[checkpoint_id]
        try:
            states = {slot: self._registry.whole(ack) for slot, ack in pending.acks.items()}
            metadata = self._metadata(pending, states)
            self._storage.complete(metadata, uri)
        except CheckpointError as error:
            self.execute(self.coordinator.not_completed(checkpoint_id, error))
            return
        del self._uris[checkpoint_id]
        instructions = self.coordinator.completed(checkpoint_id, self._clock.now_ms())
        savepoint = self._savepoints.pop(checkpoint_id, None)
        if savepoint is None:
            self._registry.register(checkpoint_id, states)
        else:
            savepoint.succeed(uri)
        if savepoint is not None and savepoint.stops_job:
            self.abort_pending(CheckpointError(f"the job stops with savepoint {checkpoint_id}"))
        try:
            # The checkpoint exists. If a sink's commit fails now, the restart begins here, and commits again.
            if savepoint is None or savepoint.stops_job:
                self._job.completed(RestorePoint(metadata, uri), savepoint is not None)
        finally:
            self.execute(instructions)
        self._tell_of(pending, states, uri)

    def _metadata(
        self, pending: PendingCheckpoint, states: dict[SlotId, OperatorSubtaskState]
    ) -> CheckpointMetadata:
        state = self._epoch_states.pop(pending.checkpoint_id)
        return CheckpointMetadata(
            checkpoint_id=pending.checkpoint_id,
            job_id=self._job_id,
            job_name=self._job_name,
            epoch=pending.epoch,
            source_position=state.position,
            counters=state.counters,
            watermarks=state.watermarks,
            timestamp_ms=pending.triggered_ms,
            operators=tuple(
                OperatorState(
                    operator.operator_id,
                    operator.parallelism,
                    operator.max_parallelism,
                    tuple(
                        states[SlotId(operator.operator_id, subtask)]
                        for subtask in range(operator.parallelism)
                    ),
                )
                for operator in self._plan.operators
            ),
        )

    def _tell_of(
        self, pending: PendingCheckpoint, states: dict[SlotId, OperatorSubtaskState], uri: str
    ) -> None:
        acks = pending.acks.values()
        stats = CheckpointStats(
            pending.checkpoint_id,
            pending.epoch,
            max((ack.sync_ms for ack in acks), default=0.0),
            max((ack.async_ms for ack in acks), default=0.0),
            sum(state.size_bytes for state in states.values()),
            checkpointed_bytes=sum(ack.state.size_bytes for ack in acks),
            triggered_ms=pending.triggered_ms,
            duration_ms=self._clock.now_ms() - (pending.aligned_ms or pending.triggered_ms),
            is_incremental=any(ack.base_id is not None for ack in acks),
            is_savepoint=pending.savepoint is not None,
            uri=uri,
        )
        self._note(stats)

    def _note(self, stats: CheckpointStats) -> None:
        self.history.append(stats)
        newest = [attrs.asdict(noted) for noted in islice(reversed(self.history), HISTORY_IN_FILE)]
        self._quietly(lambda: self._storage.write_history(self._job_id, newest))
        self._job.checkpoint_ended(stats)

    # --- deletion ----------------------------------------------------------------------------------

    def _abandon(self, instruction: AbandonCheckpoint) -> None:
        pending = instruction.checkpoint
        checkpoint_id = pending.checkpoint_id
        self._tell_slots(AbortCheckpoint(checkpoint_id, self.coordinator.latest_completed or 0))
        self._epoch_states.pop(checkpoint_id, None)
        uri = self._uris.pop(checkpoint_id, None)
        written = {ack.slot: ack.state for ack in pending.acks.values()}
        if uri is not None and not self._quietly(lambda: self._storage.discard(uri)):
            # It may be complete after all: an error may come after the deed.
            self._registry.keep(checkpoint_id, self._chains_of(pending))
        self._discard_shared(shared_files(written.values()) - self._registry.needed())
        savepoint = self._savepoints.pop(checkpoint_id, None)
        if savepoint is not None:
            if uri is not None:
                self._failed_savepoints[checkpoint_id] = uri
            savepoint.fail(instruction.error)
        stats = CheckpointStats(
            checkpoint_id,
            pending.epoch,
            triggered_ms=pending.triggered_ms,
            duration_ms=self._clock.now_ms() - (pending.aligned_ms or pending.triggered_ms),
            is_savepoint=pending.savepoint is not None,
            failure=str(instruction.error),
        )
        self._note(stats)

    def _chains_of(self, pending: PendingCheckpoint) -> list[OperatorSubtaskState]:
        states = []
        for ack in pending.acks.values():
            try:
                states.append(self._registry.whole(ack))
            except CheckpointError:
                states.append(ack.state)
        return states

    def _discard(self, checkpoint_id: int) -> None:
        uri = self._storage.uri_of(self._job_id, checkpoint_id)
        # Where the folder stays, the checkpoint does, and with it what it needs.
        if self._quietly(lambda: self._storage.discard(uri)):
            self._discard_shared(self._registry.unregister(checkpoint_id))

    def _discard_late(self, ack: CheckpointAck) -> None:
        own = self._storage.uri_of(self._job_id, ack.checkpoint_id)
        uri = self._failed_savepoints.get(ack.checkpoint_id, own)
        self._quietly(lambda: self._storage.discard(uri))
        self._discard_shared(shared_files([ack.state]) - self._registry.needed())

    def _discard_shared(self, paths: set[str]) -> None:
        if paths:
            self._quietly(lambda: self._storage.discard_shared(self._job_id, sorted(paths)))

    def _quietly(self, delete: Callable[[], None]) -> bool:
        """Delete, and return whether that went well. What cannot be deleted harms nobody."""
        try:
            delete()
        except CheckpointError as error:
            _log.warning("%s", error)
            return False
        return True

    def _tell_slots(self, message: object) -> None:
        for slot in self._subtasks():
            self._job.send(slot, message)
