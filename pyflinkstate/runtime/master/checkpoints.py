"""The checkpoints of a running job: begins, completes and abandons them, as the coordinator decides.

The coordinator decides when; this module does the work, on the thread of the job's master. What handles a
message or an instruction returns what comes of it for the job (an ``Outcome``); nothing is called back.
"""

from __future__ import annotations

import math
from collections import deque
from itertools import islice

import attrs

from pyflinkstate.backends.format import CheckpointMetadata, OperatorState, OperatorSubtaskState
from pyflinkstate.errors import CheckpointError, CheckpointStorageError, PyFlinkStateError, assert_never
from pyflinkstate.runtime.master.checkpoint_files import CheckpointFiles, shared_files
from pyflinkstate.runtime.master.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    DiscardCheckpoint,
    DiscardState,
    FailJob,
    Instruction,
    NotifyComplete,
    PendingCheckpoint,
    SavepointTarget,
    WriteMetadata,
)
from pyflinkstate.runtime.master.deployment import JobSlots, RestorePoint
from pyflinkstate.runtime.master.epochs import CheckpointCompleted, Epoch, Failed, Outcome, SavepointRequest
from pyflinkstate.runtime.master.job_reporter import CheckpointLog, JobReporter
from pyflinkstate.runtime.master.observe import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.wire import (
    AbortCheckpoint,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    Clock,
    NotifyCheckpointComplete,
    SlotId,
    StateMaterialized,
)

#: How many checkpoints the job's result lists.
CHECKPOINT_HISTORY = 10_000
#: How many checkpoints the statistics file next to the checkpoints lists, newest first.
HISTORY_IN_FILE = 100

States = dict[SlotId, OperatorSubtaskState]


@attrs.define
class _Begun:
    """What is known of a pending checkpoint beside what the coordinator knows.

    Attributes:
        epoch: its epoch; a later one may have run before the checkpoint is complete.
        uri: its folder.
        request: asks for it, if it is a savepoint.
        counters: the record counts at the end of its epoch.
    """

    epoch: Epoch
    uri: str
    request: SavepointRequest | None = None
    counters: dict[str, int] = attrs.Factory(dict)


@attrs.frozen
class _Unconfirmed:
    """A complete checkpoint, whose output is being committed, and what is to be done then."""

    pending: PendingCheckpoint
    states: States
    begun: _Begun
    follows: list[Instruction]


class Checkpoints:
    """The checkpoints that one job takes.

    Args:
        plan: what the job runs.
        settings: when checkpoints are taken, and how many are kept.
        files: their files.
        slots: are told about them.
        reporter: tells others about them.
        clock: tells the time.
        restore: the checkpoint from which the job starts.
    """

    def __init__(
        self,
        plan: JobPlan,
        settings: CheckpointSettings,
        files: CheckpointFiles,
        slots: JobSlots,
        reporter: JobReporter,
        clock: Clock,
        restore: RestorePoint | None,
    ) -> None:
        self.history: deque[CheckpointStats] = deque(maxlen=CHECKPOINT_HISTORY)
        self.settings = settings
        self.coordinator = CheckpointCoordinator(settings)
        #: Where the job starts or goes back to.
        self.restore = restore
        self._plan = plan
        self._files = files
        self._slots = slots
        self._reporter = reporter
        self._clock = clock
        self._log = CheckpointLog(files.job_name, settings)
        self._increments_since_full = 0
        self._last_id_before = 0
        self._begun: dict[int, _Begun] = {}
        self._unconfirmed: dict[int, _Unconfirmed] = {}
        #: Folders of aborted savepoints, from which late files are deleted.
        self._failed_savepoints: dict[int, str] = {}

    # --- the life of the job -----------------------------------------------------------------------

    def forget_attempt(self) -> None:
        """Forget what the slots of an attempt that has ended knew of checkpoints."""
        self._files.registry.begin_attempt()
        self._last_id_before = self.coordinator.last_id
        self._increments_since_full = 0

    def abort_pending(self, error: PyFlinkStateError) -> None:
        """Abort what is pending: the attempt or the job is over."""
        self._carry_out(self.coordinator.abort_pending(error))

    def end_run(self) -> None:
        """Delete the completed checkpoints beyond the number to be kept."""
        self._carry_out(self.coordinator.discard_surplus())

    # --- barriers ----------------------------------------------------------------------------------

    def trigger(self, epoch: Epoch, now_ms: int) -> list[Outcome]:
        """Begin a checkpoint at the barrier of an epoch; there is none if its folder cannot be created.

        ``now_ms`` is monotonic.
        """
        timestamp_ms = self._clock.now_ms()
        pending = self.coordinator.trigger(
            now_ms, epoch.number, self._slots.deployments.slots(), timestamp_ms=timestamp_ms
        )
        checkpoint_id, is_incremental = pending.checkpoint_id, self.settings.incremental
        try:
            uri = self._files.storage.begin(self._files.job_id, checkpoint_id, is_incremental)
        except CheckpointError as error:
            return self._carry_out(self.coordinator.failed(checkpoint_id, error))
        self._begun[checkpoint_id] = _Begun(epoch, uri)
        base_id = self.coordinator.latest_completed if is_incremental else None
        self._increments_since_full += base_id is not None
        is_turn = self._increments_since_full % self.settings.materialization_interval == 0
        materialize = base_id is not None and is_turn
        writer = self._files.claim.token
        epoch.trigger = CheckpointTrigger(
            checkpoint_id, timestamp_ms, uri, is_incremental, base_id, materialize, writer=writer
        )
        return []

    def trigger_savepoint(self, request: SavepointRequest, epoch: Epoch, now_ms: int) -> list[Outcome]:
        """Begin a savepoint and a checkpoint at the barrier of an epoch, if their folders can be created.

        A savepoint that drains the job is taken alone: the job could not go on from a checkpoint after that.
        """
        try:
            uri = self._files.storage.begin_savepoint(request.directory, self._files.job_id)
        except PyFlinkStateError as error:
            request.fail(error)
            return []
        if request.drains:
            epoch.trigger, epoch.savepoint = self._savepoint(request, uri, epoch, now_ms), request
            return []
        outcomes = self.trigger(epoch, now_ms)
        if epoch.trigger is None:
            request.fail(
                CheckpointStorageError(
                    f"the checkpoint that the savepoint comes with failed: {self.history[-1].failure}"
                )
            )
            self._files.quietly(lambda: self._files.storage.discard(uri))
            return outcomes
        savepoint = self._savepoint(request, uri, epoch, now_ms, epoch.trigger.checkpoint_id)
        epoch.trigger, epoch.savepoint = attrs.evolve(epoch.trigger, savepoint=savepoint), request
        return []

    def _savepoint(
        self, request: SavepointRequest, uri: str, epoch: Epoch, now_ms: int, checkpoint_id: int | None = None
    ) -> CheckpointTrigger:
        target = SavepointTarget(request.stops_job, checkpoint_id)
        timestamp_ms = self._clock.now_ms()
        pending = self.coordinator.trigger(
            now_ms, epoch.number, self._slots.deployments.slots(), target, timestamp_ms
        )
        self._begun[pending.checkpoint_id] = _Begun(epoch, uri, request)
        return CheckpointTrigger(pending.checkpoint_id, timestamp_ms, uri, writer=self._files.claim.token)

    def barrier_aligned(self, epoch: Epoch, counters: dict[str, int]) -> list[Outcome]:
        """Go on after every subtask has reached the barrier of an epoch, and its output is prepared."""
        outcomes: list[Outcome] = []
        triggers = () if epoch.trigger is None else epoch.trigger.all()
        for trigger in reversed(triggers):  # a savepoint waits for its checkpoint
            if trigger.checkpoint_id in self._begun:
                self._begun[trigger.checkpoint_id].counters = counters
            outcomes += self._carry_out(
                self.coordinator.aligned(trigger.checkpoint_id, self._clock.monotonic_ms())
            )
        return outcomes

    # --- messages ----------------------------------------------------------------------------------

    def handle(self, message: object) -> list[Outcome]:
        """Handle a slot's message about checkpoints; ignore any other."""
        if isinstance(message, StateMaterialized):
            self._materialized(message)
        elif isinstance(message, CheckpointAck):
            self._note_barrier(message)
            return self._carry_out(self.coordinator.acknowledged(message))
        elif isinstance(message, CheckpointDecline):
            return self._carry_out(self.coordinator.failed(message.checkpoint_id, message.error))
        return []

    def _note_barrier(self, ack: CheckpointAck) -> None:
        """Note when a subtask reached its barrier: its parts had this time before its message came.

        Only lengths of time are taken from slots, because those on other hosts have other clocks.
        """
        reached_ms = self._clock.monotonic_ms() - math.ceil(ack.sync_ms + ack.async_ms)
        for pending in self.coordinator.pending:
            if pending.checkpoint_id == ack.checkpoint_id:
                known_ms = reached_ms if pending.barrier_ms is None else pending.barrier_ms
                pending.barrier_ms = min(known_ms, reached_ms)

    def _materialized(self, message: StateMaterialized) -> None:
        """Register the state that a slot has written in the background; ignore that of an earlier attempt."""
        if message.checkpoint_id > self._last_id_before:
            self._files.registry.materialized(message.slot, message.handle)
        else:
            late = shared_files([OperatorSubtaskState(message.handle)])
            self._files.discard_shared(late - self._files.registry.needed())

    def tick(self) -> list[Outcome]:
        """Let checkpoints expire whose time has passed."""
        self._files.claim.check_now_and_then()
        return self._carry_out(self.coordinator.time_passed(self._clock.monotonic_ms()))

    def _carry_out(self, instructions: list[Instruction]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for instruction in instructions:
            match instruction:
                case WriteMetadata(checkpoint):
                    outcomes += self._complete(checkpoint)
                case AbandonCheckpoint():
                    self._abandon(instruction)
                case DiscardCheckpoint(checkpoint_id):
                    self._files.discard(checkpoint_id)
                case DiscardState(ack):
                    self._files.give_up(
                        ack.checkpoint_id,
                        self._failed_savepoints.get(ack.checkpoint_id, self._files.uri_of(ack.checkpoint_id)),
                        [ack],
                    )
                case NotifyComplete(checkpoint_id):
                    self._slots.tell_all(NotifyCheckpointComplete(checkpoint_id))
                case FailJob(error):
                    outcomes.append(Failed(error))
                case _:
                    assert_never(instruction)
        return outcomes

    # --- completion --------------------------------------------------------------------------------

    def _complete(self, pending: PendingCheckpoint) -> list[Outcome]:
        """Publish a checkpoint. From then on the job restarts from it, and sinks commit up to it."""
        checkpoint_id = pending.checkpoint_id
        files, begun = self._files, self._begun[checkpoint_id]
        try:
            states = {slot: files.registry.whole(ack) for slot, ack in pending.acks.items()}
            metadata = self._metadata(pending, states, begun)
            files.claim.check()
            files.tried.add(checkpoint_id)
            files.storage.complete(metadata, begun.uri, bool(shared_files(states.values())))
        except CheckpointError as error:
            return self._carry_out(self.coordinator.failed(checkpoint_id, error))
        files.tried.discard(checkpoint_id)
        del self._begun[checkpoint_id]
        self._unconfirmed[checkpoint_id] = _Unconfirmed(
            pending, states, begun, self.coordinator.published(checkpoint_id, self._clock.monotonic_ms())
        )
        if begun.request is None:
            files.registry.register(checkpoint_id, states)
            files.quietly(files.claim.forget_savepoint)
        elif begun.request.stops_job:
            self.abort_pending(CheckpointError(f"the job stops with savepoint {checkpoint_id}"))
        else:
            return self.confirm(checkpoint_id, None)
        self.restore = RestorePoint(metadata, begun.uri)
        return [CheckpointCompleted(checkpoint_id, pending.epoch, begun.request is not None)]

    def confirm(self, checkpoint_id: int, error: PyFlinkStateError | None) -> list[Outcome]:
        """Do what follows a complete checkpoint, now that sinks have committed what it covers.

        Whoever asked for a savepoint hears of it when all is committed, as in Flink.

        Args:
            checkpoint_id: its id.
            error: why they have not; a restart begins at the checkpoint, and commits again.
        """
        done = self._unconfirmed.pop(checkpoint_id)
        if done.begun.request is not None and error is None:
            done.begun.request.succeed(done.begun.uri)
        elif done.begun.request is not None:
            done.begun.request.fail(_not_committed(done.begun.uri, error))
        outcomes = self._carry_out(done.follows)
        self._tell_of(done)
        if done.begun.request is None and error is None:
            outcomes += self._carry_out(self.coordinator.committed(done.pending.epoch))
        return outcomes

    def _metadata(self, pending: PendingCheckpoint, states: States, begun: _Begun) -> CheckpointMetadata:
        return CheckpointMetadata(
            checkpoint_id=pending.checkpoint_id,
            job_id=self._files.job_id,
            job_name=self._files.job_name,
            epoch=pending.epoch,
            source_position=begun.epoch.step.end,
            counters=begun.counters,
            watermarks=begun.epoch.watermarks,
            timestamp_ms=pending.timestamp_ms,
            runs=self._files.line.runs,
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

    def _tell_of(self, done: _Unconfirmed) -> None:
        pending, states = done.pending, done.states
        acks, now_ms = pending.acks.values(), self._clock.monotonic_ms()
        stats = CheckpointStats(
            pending.checkpoint_id,
            pending.epoch,
            max((ack.sync_ms for ack in acks), default=0.0),
            max((ack.async_ms for ack in acks), default=0.0),
            sum(state.size_bytes for state in states.values()),
            checkpointed_bytes=sum(ack.state.size_bytes for ack in acks),
            triggered_ms=pending.timestamp_ms,
            duration_ms=now_ms - pending.began_ms,
            is_incremental=any(ack.base_id is not None for ack in acks),
            is_savepoint=pending.savepoint is not None,
            uri=done.begun.uri,
        )
        self._reporter.checkpoint_written(
            stats.checkpoint_id,
            (
                CheckpointPart(slot, ack.sync_ms, ack.async_ms, ack.state.size_bytes, states[slot])
                for slot, ack in pending.acks.items()
            ),
        )
        self._note(stats)
        self._log.completed(stats, now_ms - pending.epoch_ended_ms)

    def _note(self, stats: CheckpointStats) -> None:
        self.history.append(stats)
        newest = [attrs.asdict(noted) for noted in islice(reversed(self.history), HISTORY_IN_FILE)]
        if self._files.has_taken_over:
            self._files.quietly(lambda: self._files.storage.write_history(self._files.job_id, newest))
        self._reporter.checkpoint_ended(stats)

    # --- failure -----------------------------------------------------------------------------------

    def _abandon(self, instruction: AbandonCheckpoint) -> None:
        pending = instruction.checkpoint
        checkpoint_id = pending.checkpoint_id
        self._slots.tell_all(AbortCheckpoint(checkpoint_id))
        begun = self._begun.pop(checkpoint_id, None)
        self._files.give_up(checkpoint_id, None if begun is None else begun.uri, pending.acks.values())
        if begun is not None and begun.request is not None:
            self._failed_savepoints[checkpoint_id] = begun.uri
            begun.request.fail(instruction.error)
        stats = CheckpointStats(
            checkpoint_id,
            pending.epoch,
            triggered_ms=pending.timestamp_ms,
            duration_ms=self._clock.monotonic_ms() - pending.began_ms,
            is_savepoint=pending.savepoint is not None,
            failure=str(instruction.error),
        )
        self._note(stats)
        (self._log.failed if instruction.is_failure else self._log.given_up)(stats)


def _not_committed(uri: str, cause: PyFlinkStateError | None) -> CheckpointError:
    failure = CheckpointError(
        f"savepoint {uri} is complete, but the job failed when it committed what the savepoint "
        f"covers: restore_from() the savepoint, unless the job restarts, to commit that: {cause}",
        savepoint=uri,
    )
    failure.__cause__ = cause
    return failure
