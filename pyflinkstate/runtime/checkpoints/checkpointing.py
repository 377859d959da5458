"""Carries out what the checkpoint coordinator decides: folders, files, messages to slots, statistics.

The coordinator decides when; this module does the work. It belongs to the job master and runs on its thread.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import islice
from typing import Any

import attrs

from pyflinkstate.backends.format import (
    CheckpointMetadata,
    OperatorState,
    OperatorSubtaskState,
    written_at,
    written_by,
)
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointStorageError,
    JobSupersededError,
    PyFlinkStateError,
    assert_never,
)
from pyflinkstate.runtime.checkpoints.checkpoint_log import CheckpointLog
from pyflinkstate.runtime.checkpoints.checkpoint_stats import CheckpointPart, CheckpointStats
from pyflinkstate.runtime.checkpoints.coordinator import (
    AbandonCheckpoint,
    BarrierAligned,
    CheckpointCoordinator,
    DiscardCheckpoint,
    DiscardState,
    EpochCommitted,
    Event,
    FailJob,
    Instruction,
    MetadataNotPublished,
    MetadataPublished,
    NotifyComplete,
    PendingAborted,
    PendingCheckpoint,
    RunEnded,
    SavepointTarget,
    TimePassed,
    WriteMetadata,
)
from pyflinkstate.runtime.checkpoints.run_claim import RunClaim
from pyflinkstate.runtime.checkpoints.shared_state import SharedStateRegistry, shared_files
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, history_of
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

_log = logging.getLogger("pyflinkstate.checkpoints")

#: How many checkpoints the job's result lists.
CHECKPOINT_HISTORY = 10_000
#: How many checkpoints the statistics file next to the checkpoints lists, newest first.
HISTORY_IN_FILE = 100


@attrs.frozen
class RestorePoint:
    """A completed checkpoint to start from, and the URI or path of its folder."""

    metadata: CheckpointMetadata
    uri: str
    #: Whether it is "the newest" and was not named explicitly.
    is_latest: bool = False

    @property
    def history(self) -> RunHistory:
        """The runs that led to it."""
        return history_of(self.metadata)


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


@attrs.frozen
class EpochState:
    """What a checkpoint keeps about the job at the end of an epoch.

    Attributes:
        position: the position of the source.
        counters: the record counts so far.
        watermarks: the watermarks of assigners and operators, by their ids.
    """

    position: object
    counters: dict[str, int]
    watermarks: dict[str, int] = attrs.Factory(dict)


class JobView:
    """The view of the job that checkpointing has."""

    def epoch_state(self, epoch: int) -> EpochState:
        """Return what the checkpoint of ``epoch`` keeps about the job."""
        raise NotImplementedError

    def send(self, slot: SlotId, message: object) -> None:
        """Send a message to a slot, if it runs."""
        raise NotImplementedError

    def completed(self, restore: RestorePoint, stops_job: bool) -> None:
        """A checkpoint is complete: from now on the job restarts from it; sinks commit up to it."""
        raise NotImplementedError

    def checkpoint_ended(self, stats: CheckpointStats) -> None:
        """Report a checkpoint that has ended."""
        raise NotImplementedError

    def checkpoint_written(self, checkpoint_id: int, parts: Iterable[CheckpointPart]) -> None:
        """Report what each subtask contributed to a checkpoint that is complete."""
        raise NotImplementedError

    def fail(self, error: PyFlinkStateError) -> None:
        """More checkpoints failed than the job tolerates."""
        raise NotImplementedError


def _continued(restore: RestorePoint | None, run: str) -> RunHistory:
    if restore is None:
        return RunHistory().continued(0, run)
    return restore.history.continued(restore.metadata.epoch, run)


class Checkpointing:
    """The checkpoints of one job. A run must :meth:`claim` them before it uses them.

    Args:
        storage: where checkpoints are kept.
    """

    def __init__(
        self,
        job_id: str,
        job_name: str,
        plan: JobPlan,
        settings: CheckpointSettings,
        storage: CheckpointFolders,
        clock: Clock,
        job: JobView,
    ) -> None:
        self.history: deque[CheckpointStats] = deque(maxlen=CHECKPOINT_HISTORY)
        self._job_id = job_id
        self._job_name = job_name
        self._plan = plan
        self._settings = settings
        self._storage = storage
        self._clock = clock
        self._job = job
        self._log = CheckpointLog(job_name, settings)
        self._registry = SharedStateRegistry()
        self._increments_since_full = 0
        self._last_id_before = 0
        #: The highest id of a checkpoint of earlier runs.
        self._last_id_before_run = 0
        self._savepoints: dict[int, SavepointRequest] = {}
        self._uris: dict[int, str] = {}
        #: The state of a checkpoint's epoch; a later epoch may be committed before the checkpoint is
        #: complete.
        self._epoch_states: dict[int, EpochState] = {}
        #: Folders of aborted savepoints, from which late files are deleted.
        self._failed_savepoints: dict[int, str] = {}
        self.coordinator = CheckpointCoordinator(settings)
        self._claim = RunClaim(job_id, job_name, storage, clock)
        #: The runs that led here; after the claim, the last one is the run of this driver.
        self.line = RunHistory()
        self._has_claimed = False
        #: Whether the slots have restored the state and checkpoints of other histories are set aside.
        self._has_taken_over = False
        #: Checkpoints that exist but cannot be read, so that the files which they share are unknown.
        self._unreadable: set[str] = set()
        #: Checkpoints whose publication was tried: they may be complete even if that failed.
        self._tried: set[int] = set()
        #: The folders of checkpoints that were not published and could not be deleted.
        self._unpublished: list[str] = []

    # --- the life of the job -----------------------------------------------------------------------

    def claim(self, restore: RestorePoint | None) -> RestorePoint | None:
        """Begin a run: from now on no older driver of the job may change anything. Nothing else is changed.

        Returns:
            the checkpoint to restore: ``restore``, or a newer one if the newest was asked for.
        """
        if self._has_claimed:
            self.check_run()
            return restore
        run = self._claim.make(RunHistory() if restore is None else restore.history)
        restore = self._newest(restore)
        self.line = _continued(restore, run)
        self._find_checkpoints(restore)
        self._has_claimed = True
        return restore

    def _newest(self, restore: RestorePoint | None) -> RestorePoint | None:
        """Return the newest checkpoint, which an older driver may have completed before it noticed this one.

        Raises:
            CheckpointNotFoundError: the older driver has ended the job, and its checkpoints are gone.
        """
        if restore is None or not restore.is_latest:
            return restore
        metadata = self._storage.load_newest(self._job_id, self._job_name, fall_back=True)
        if metadata is None:
            raise CheckpointNotFoundError(
                f"checkpoint {restore.metadata.checkpoint_id} of job {self._job_name!r} was the newest when "
                f"this driver began, and is gone: another driver has ended the job, or goes on from an older "
                f"checkpoint. Find out what that driver did before you start the program again"
            )
        if metadata.checkpoint_id <= restore.metadata.checkpoint_id:
            return restore
        return RestorePoint(metadata, self._storage.uri_of(self._job_id, metadata.checkpoint_id), True)

    def _find_checkpoints(self, restore: RestorePoint | None) -> None:
        """Find the existing checkpoints.

        This comes after the claim, as an older driver may have begun one.
        """
        if restore is None:
            return
        restored = restore.metadata.checkpoint_id
        last_id = max(restored, self.coordinator.last_id, *self._storage.ids_in_use(self._job_id))
        before = [done for done in self._storage.completed(self._job_id) if self._is_kept(done, restored)]
        self._last_id_before_run = last_id
        self.coordinator = CheckpointCoordinator(self._settings, last_id, before)
        self._registry.register_restored(restore.metadata)

    def _is_kept(self, checkpoint_id: int, restored: int) -> bool:
        """Return whether a checkpoint belongs to the history of the restored one; record its shared files.

        The id decides for a checkpoint that cannot be read.
        """
        uri = self._storage.uri_of(self._job_id, checkpoint_id)
        self._unreadable.discard(uri)  # an earlier attempt to claim the job may have failed to read it
        try:
            metadata = self._storage.load(uri)
        except CheckpointNotFoundError:
            return False  # an older driver has deleted it since it was listed
        except CheckpointError as error:
            self._unreadable.add(uri)
            _log.warning("checkpoint %d cannot be read and is left alone: %s", checkpoint_id, error)
            return checkpoint_id <= restored
        self._registry.register_restored(metadata)
        return self.line.holds(history_of(metadata), metadata.epoch)

    def take_over(self, restore: RestorePoint | None) -> None:
        """Set aside later checkpoints than the restored one, now that all slots have restored their state.

        The sinks will go back as well. If later checkpoints stayed where they are, "latest" could be one of
        them, whose output is gone. The sinks will also commit what the restored one covers, so that must not
        be lost any more.
        """
        if restore is not None:
            self._storage.make_durable(restore.uri)
        found = self._storage.checkpoint_ids(self._job_id)
        completed = set(self._storage.completed(self._job_id))
        self.check_run()
        for checkpoint_id in found:
            if checkpoint_id in completed and checkpoint_id not in self.coordinator.retained:
                self._set_aside(checkpoint_id)
        self._keep_superseded()
        self._claim.take_over(self.line, self.coordinator.last_id)
        self._has_taken_over = True
        self._sweep_quietly()

    def _set_aside(self, checkpoint_id: int) -> None:
        assert self._claim.run is not None
        uri = self._storage.set_aside(self._job_id, checkpoint_id, self._claim.run)
        self._unreadable.discard(self._storage.uri_of(self._job_id, checkpoint_id))
        self._registry.unregister(checkpoint_id)
        _log.warning(
            "this run does not go on from checkpoint %d: it is set aside as %s, stays there until you "
            "delete it, and restore_from() goes back to it",
            checkpoint_id,
            uri,
        )

    def _keep_superseded(self) -> None:
        """Keep the files that checkpoints which were set aside share with others."""
        for uri in self._storage.superseded(self._job_id):
            self._unreadable.discard(uri)
            try:
                self._registry.keep_superseded(self._storage.load(uri))
            except CheckpointNotFoundError:
                continue  # the move was interrupted: the checkpoint is still complete at its old place
            except CheckpointError as error:
                self._unreadable.add(uri)
                _log.warning("%s cannot be read, so no file that it may share is deleted: %s", uri, error)

    def check_run(self) -> None:
        """Raise ``JobSupersededError`` if another driver has taken the job over."""
        self._claim.check()

    def begin_attempt(self) -> None:
        """Begin an attempt: the slots of the previous one are cut off, and what they wrote is dropped.

        Raises:
            CheckpointStorageError: a checkpoint after the restored one cannot be deleted, or the storage does
                not say whether there is one.
            JobSupersededError: another driver has taken the job over.
        """
        self._forget_attempt()
        if self._has_taken_over:
            try:
                self._delete_later()
            except CheckpointStorageError as error:
                # The job tells of the failure before this one.
                _log.warning("the attempt cannot begin: %s", error)
                raise
        self._sweep_quietly()

    def _forget_attempt(self) -> None:
        self._registry.begin_attempt()
        self._last_id_before = self.coordinator.last_id
        self._increments_since_full = 0

    def _delete_later(self) -> None:
        """Delete checkpoints after the restored one, which are complete but were reported as failed.

        The storage has published such a checkpoint, and its answer was lost. The sinks now go back to the
        restored one. If a later one stayed, "latest" would be a checkpoint whose output is gone.
        """
        restored = self.coordinator.latest_completed or 0
        later = [found for found in self._storage.completed(self._job_id) if found > restored]
        if later:
            self.check_run()  # so nothing in the list belongs to a newer run
        for checkpoint_id in later:
            try:
                self._delete(self._storage.uri_of(self._job_id, checkpoint_id))
            except CheckpointStorageError as error:
                raise CheckpointStorageError(
                    f"checkpoint {checkpoint_id} was reported as failed, but it is complete and cannot be "
                    f"deleted. The job does not go back to an older checkpoint before it is deleted, as "
                    f'restore_from("latest") would find it: {error}',
                    checkpoint_id=checkpoint_id,
                ) from error
            self._registry.unregister(checkpoint_id)

    def end(self) -> None:
        """End the run: keep as many checkpoints as configured, and delete what is incomplete.

        A run that failed before it had restored the newest checkpoint does not know whether that is intact,
        so it keeps the older ones too, for the next run to fall back to.
        """
        if self._has_taken_over:
            self._tell(RunEnded())
        self._forget_attempt()
        self._sweep_quietly()

    def _sweep_quietly(self) -> None:
        if self._has_taken_over and not self._quietly(self._sweep):
            self._sweep_own()

    def _sweep_own(self) -> None:
        """Delete what the subtasks of this driver wrote for checkpoints that it did not publish.

        No other driver needs these files, so they are deleted even if a newer one has taken the job over.
        That one would find them too, but it may have ended before they were written.
        """
        self._registry.begin_attempt()
        writer, storage = self._claim.token, self._storage
        try:
            own = {path for path in storage.shared_paths(self._job_id) if written_by(path) == writer}
            storage.discard_shared(self._job_id, sorted(self._unneeded(own - self._registry.needed())))
            while self._unpublished:
                storage.discard_written(self._unpublished.pop(), writer)
        except CheckpointError as error:
            _log.warning("%s", error)

    def _sweep(self) -> None:
        """Delete incomplete checkpoints, and those whose deletion failed before."""
        found = self._storage.checkpoint_ids(self._job_id)
        shared = self._storage.shared_paths(self._job_id)
        self.check_run()  # so nothing in the list belongs to a newer run
        for checkpoint_id in set(found) - set(self.coordinator.retained):
            self._delete(self._storage.uri_of(self._job_id, checkpoint_id))
            self._registry.unregister(checkpoint_id)
        self._storage.discard_shared(self._job_id, sorted(self._unneeded(shared - self._registry.needed())))

    def fall_back(self, damaged: RestorePoint) -> RestorePoint | None:
        """Return the newest retained checkpoint before ``damaged``; going on from there is a new run.

        That run finds anew which checkpoints there are. Without an older one, the damaged one stays: whoever
        could not read it may be able to later.
        """
        for checkpoint_id in reversed(self.coordinator.retained):
            if checkpoint_id >= damaged.metadata.checkpoint_id:
                continue
            uri = self._storage.uri_of(self._job_id, checkpoint_id)
            try:
                older = RestorePoint(self._storage.load(uri), uri)
            except CheckpointError as error:
                _log.warning("checkpoint %d cannot be read either: %s", checkpoint_id, error)
                continue
            self._has_claimed = self._has_taken_over = False
            return older
        return None

    def abort_pending(self, error: PyFlinkStateError) -> None:
        """Abort what is pending: the attempt or the job is over."""
        self._tell(PendingAborted(error))

    def planned(self, restored: int) -> dict[int, Any]:
        """Return the planned ends of epochs after ``restored``, which an earlier run may not have completed.

        An epoch after a gap belongs to a run with another history and is left out.
        """
        found = self._storage.read_planned(self._job_id)
        kept: dict[int, Any] = {}
        while restored + 1 in found:
            restored += 1
            kept[restored] = found.pop(restored)
        self.check_run()
        self._storage.forget_planned(self._job_id, found)
        return kept

    def plan(self, epoch: int, end: object) -> None:
        """Record where ``epoch`` will end; raise ``CheckpointStorageError`` if that fails."""
        self.check_run()
        self._storage.write_planned(self._job_id, epoch, end)

    def forget_planned(self, epoch: int) -> None:
        """Forget the planned ends of epochs up to ``epoch``, which are committed."""
        self._quietly(lambda: self._storage.forget_planned(self._job_id, range(epoch + 1)))

    def discard_all(self) -> None:
        """Delete every checkpoint of the job, including those that were set aside; savepoints stay."""
        if not self._quietly(self._discard_all):
            self._sweep_own()

    def _discard_all(self) -> None:
        found = self._storage.checkpoint_ids(self._job_id)
        superseded = self._storage.superseded(self._job_id)
        shared = self._storage.shared_paths(self._job_id)
        for checkpoint_id in found:
            uri = self._storage.uri_of(self._job_id, checkpoint_id)
            if self._quietly(lambda uri=uri: self._delete(uri)):  # type: ignore[misc]
                self._registry.unregister(checkpoint_id)
        if all(self._quietly(lambda uri=uri: self._delete(uri)) for uri in superseded):  # type: ignore[misc]
            self._registry.forget_superseded()
        self._registry.begin_attempt()
        self._discard_shared(self._unneeded(shared - self._registry.needed()))

    # --- barriers ----------------------------------------------------------------------------------

    def trigger(self, epoch: int, now_ms: int) -> CheckpointTrigger | None:
        """Begin a checkpoint at the barrier of ``epoch``; return None if its folder cannot be created.

        ``now_ms`` is monotonic.
        """
        timestamp_ms = self._clock.now_ms()
        pending = self.coordinator.trigger(now_ms, epoch, self._subtasks(), timestamp_ms=timestamp_ms)
        try:
            uri = self._storage.begin(self._job_id, pending.checkpoint_id, self._settings.incremental)
        except CheckpointError as error:
            self._tell(MetadataNotPublished(pending.checkpoint_id, error))
            return None
        self._uris[pending.checkpoint_id] = uri
        base_id = self.coordinator.latest_completed if self._settings.incremental else None
        materialize = False
        if base_id is not None:
            self._increments_since_full += 1
            materialize = self._increments_since_full % self._settings.materialization_interval == 0
        return CheckpointTrigger(
            pending.checkpoint_id,
            timestamp_ms,
            uri,
            self._settings.incremental,
            base_id,
            materialize,
            writer=self._claim.token,
        )

    def trigger_savepoint(
        self, request: SavepointRequest, epoch: int, now_ms: int
    ) -> CheckpointTrigger | None:
        """Begin a savepoint and a checkpoint at the barrier of ``epoch``; None if a folder cannot be created.

        A savepoint that drains the job is taken alone: the job could not go on from a checkpoint after that.
        """
        try:
            uri = self._storage.begin_savepoint(request.directory, self._job_id)
        except PyFlinkStateError as error:
            request.fail(error)
            return None
        if request.drains:
            return self._savepoint(request, uri, epoch, now_ms)
        checkpoint = self.trigger(epoch, now_ms)
        if checkpoint is None:
            why = f"the checkpoint that the savepoint comes with failed: {self.history[-1].failure}"
            request.fail(CheckpointStorageError(why))
            self._quietly(lambda: self._storage.discard(uri))
            return None
        savepoint = self._savepoint(request, uri, epoch, now_ms, checkpoint.checkpoint_id)
        return attrs.evolve(checkpoint, savepoint=savepoint)

    def _savepoint(
        self, request: SavepointRequest, uri: str, epoch: int, now_ms: int, checkpoint_id: int | None = None
    ) -> CheckpointTrigger:
        target = SavepointTarget(uri, request.stops_job, checkpoint_id)
        timestamp_ms = self._clock.now_ms()
        pending = self.coordinator.trigger(now_ms, epoch, self._subtasks(), target, timestamp_ms)
        self._uris[pending.checkpoint_id] = uri
        self._savepoints[pending.checkpoint_id] = request
        return CheckpointTrigger(pending.checkpoint_id, timestamp_ms, uri, writer=self._claim.token)

    def _subtasks(self) -> list[SlotId]:
        return [
            SlotId(operator.operator_id, subtask)
            for operator in self._plan.operators
            for subtask in range(operator.parallelism)
        ]

    def barrier_aligned(self, checkpoint_id: int) -> None:
        """Continue after every subtask has reached the barrier and the epoch's output is prepared."""
        epochs = {pending.checkpoint_id: pending.epoch for pending in self.coordinator.pending}
        if checkpoint_id in epochs:
            self._epoch_states[checkpoint_id] = self._job.epoch_state(epochs[checkpoint_id])
        self._tell(BarrierAligned(checkpoint_id, self._clock.monotonic_ms()))

    # --- events ------------------------------------------------------------------------------------

    def handle(self, event: object) -> None:
        """Handle a slot's message about checkpoints; ignore any other."""
        if isinstance(event, CheckpointAck):
            self._note_barrier(event)
        if isinstance(event, (CheckpointAck, CheckpointDecline)):
            self._tell(event)
        elif isinstance(event, StateMaterialized):
            self.materialized(event)

    def _note_barrier(self, ack: CheckpointAck) -> None:
        """Note when a subtask reached its barrier: its parts had this time before its message came.

        Only lengths of time are taken from slots, because those on other hosts have other clocks.
        """
        reached_ms = self._clock.monotonic_ms() - math.ceil(ack.sync_ms + ack.async_ms)
        for pending in self.coordinator.pending:
            if pending.checkpoint_id == ack.checkpoint_id:
                pending.reached_barrier(reached_ms)

    def materialized(self, message: StateMaterialized) -> None:
        """Register the state that a slot has written in the background; ignore that of an earlier attempt."""
        if message.checkpoint_id > self._last_id_before:
            self._registry.materialized(message.slot, message.handle)
        else:
            self._discard_shared({file.path for file in message.handle.files()})

    def tick(self) -> None:
        """Tell the coordinator the time."""
        self._claim.check_now_and_then()
        self._tell(TimePassed(self._clock.monotonic_ms()))

    def _tell(self, event: Event) -> None:
        self._carry_out(self.coordinator.handle(event))

    def _carry_out(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case WriteMetadata(checkpoint):
                    self._complete(checkpoint)
                case AbandonCheckpoint():
                    self._abandon(instruction)
                case DiscardCheckpoint(checkpoint_id):
                    self._discard(checkpoint_id)
                case DiscardState(ack):
                    self._discard_late(ack)
                case NotifyComplete(checkpoint_id):
                    self._tell_slots(NotifyCheckpointComplete(checkpoint_id))
                case FailJob(error):
                    self._job.fail(error)
                case _:
                    assert_never(instruction)

    # --- completion --------------------------------------------------------------------------------

    def _complete(self, pending: PendingCheckpoint) -> None:
        checkpoint_id = pending.checkpoint_id
        uri = self._uris[checkpoint_id]
        try:
            states = {slot: self._registry.whole(ack) for slot, ack in pending.acks.items()}
            metadata = self._metadata(pending, states)
            self.check_run()
            self._tried.add(checkpoint_id)
            self._storage.complete(metadata, uri, bool(shared_files(states.values())))
        except CheckpointError as error:
            self._tell(MetadataNotPublished(checkpoint_id, error))
            return
        self._tried.discard(checkpoint_id)
        del self._uris[checkpoint_id]
        instructions = self.coordinator.handle(MetadataPublished(checkpoint_id, self._clock.monotonic_ms()))
        savepoint = self._savepoints.pop(checkpoint_id, None)
        if savepoint is None:
            self._registry.register(checkpoint_id, states)
        try:
            self._tell_job(RestorePoint(metadata, uri), savepoint)
        finally:
            self._carry_out(instructions)
            self._tell_of(pending, states, uri)
        if savepoint is None:
            self._tell(EpochCommitted(pending.epoch))

    def _tell_job(self, done: RestorePoint, savepoint: SavepointRequest | None) -> None:
        """Let sinks commit what a checkpoint, or the savepoint with which the job stops, covers.

        It exists. If a sink's commit fails now, a restart begins here, and commits again.
        """
        if savepoint is None:
            self._job.completed(done, stops_job=False)
        elif savepoint.stops_job:
            self.abort_pending(CheckpointError(f"the job stops with savepoint {done.metadata.checkpoint_id}"))
            self._stop_with(done, savepoint)
        else:
            savepoint.succeed(done.uri)

    def _stop_with(self, done: RestorePoint, savepoint: SavepointRequest) -> None:
        """Stop the job; who asked for it hears of the savepoint when all is committed, as in Flink."""
        try:
            self._job.completed(done, stops_job=True)
        except Exception as error:
            failure = CheckpointError(
                f"savepoint {done.uri} is complete, but the job failed when it committed what the savepoint "
                f"covers: restore_from() the savepoint, unless the job restarts, to commit that: {error}",
                savepoint=done.uri,
            )
            failure.__cause__ = error
            savepoint.fail(failure)
            raise
        savepoint.succeed(done.uri)

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
            timestamp_ms=pending.timestamp_ms,
            runs=self.line.runs,
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
            uri=uri,
        )
        self._job.checkpoint_written(
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
        if self._has_taken_over:
            self._quietly(lambda: self._storage.write_history(self._job_id, newest))
        self._job.checkpoint_ended(stats)

    # --- deletion ----------------------------------------------------------------------------------

    def _abandon(self, instruction: AbandonCheckpoint) -> None:
        pending = instruction.checkpoint
        checkpoint_id = pending.checkpoint_id
        self._tell_slots(AbortCheckpoint(checkpoint_id))
        self._epoch_states.pop(checkpoint_id, None)
        uri = self._uris.pop(checkpoint_id, None)
        written = {ack.slot: ack.state for ack in pending.acks.values()}
        if uri is not None and not self._quietly(lambda: self._storage.discard(uri)):
            if checkpoint_id in self._tried:
                # It may be complete after all: an error may come after the files are written.
                self._registry.keep(checkpoint_id, self._chains_of(pending))
            else:
                self._unpublished.append(uri)
        self._discard_shared(shared_files(written.values()) - self._registry.needed())
        savepoint = self._savepoints.pop(checkpoint_id, None)
        if savepoint is not None:
            if uri is not None:
                self._failed_savepoints[checkpoint_id] = uri
            savepoint.fail(instruction.error)
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
        # If the folder stays, so does the checkpoint, and with it the files that it needs.
        if self._quietly(lambda: self._delete(uri)):
            self._discard_shared(self._unneeded(self._registry.unregister(checkpoint_id)))

    def _delete(self, uri: str) -> None:
        """Delete a checkpoint; if it could not be read, it no longer keeps shared files alive."""
        self._storage.discard(uri)
        self._unreadable.discard(uri)

    def _discard_late(self, ack: CheckpointAck) -> None:
        own = self._storage.uri_of(self._job_id, ack.checkpoint_id)
        uri = self._failed_savepoints.get(ack.checkpoint_id, own)
        if not self._quietly(lambda: self._storage.discard(uri)) and ack.checkpoint_id not in self._tried:
            self._unpublished.append(uri)
        self._discard_shared(shared_files([ack.state]) - self._registry.needed())

    def _unneeded(self, paths: set[str]) -> set[str]:
        """Return which shared files may be deleted, of those that no checkpoint is known to need.

        While there is a checkpoint that could not be read, it may need any that an earlier run has written.
        """
        if not self._unreadable:
            return paths
        return {path for path in paths if written_at(path) > self._last_id_before_run}

    def _discard_shared(self, paths: set[str]) -> None:
        if paths:
            self._quietly(lambda: self._storage.discard_shared(self._job_id, sorted(paths)))

    def _quietly(self, delete: Callable[[], None]) -> bool:
        """Delete, and return whether that succeeded. A failed deletion does no harm.

        A driver that was superseded deletes nothing; it finds that out when it is about to commit.
        """
        try:
            self.check_run()
            delete()
        except (CheckpointError, JobSupersededError) as error:
            _log.warning("%s", error)
            return False
        return True

    def _tell_slots(self, message: object) -> None:
        for slot in self._subtasks():
            self._job.send(slot, message)
