"""The files of a job's checkpoints: which may be deleted, and by whom.

:class:`RunClaim` says which of several drivers may change anything, :class:`SharedStateRegistry` which files
several checkpoints share, and :class:`CheckpointFiles` deletes those that nobody needs.

Two programs can end up running the same job, because a supervisor restarts a program that it believes dead.
Each program writes a file, named by the id of its run, into the folder ``runs`` of the job. Ids are ordered,
and a new run takes one that is greater than all that it sees, so listing the folder shows whether a newer run
has begun. A driver lists it before it publishes a checkpoint, commits to sinks, or deletes or moves anything,
and now and then while it waits. If there is a newer run, the driver ends and leaves everything as it is.

A driver may be suspended between its check and its action, and resume long after another one has taken over.
Its action must then be harmless, which three rules ensure:

* A new driver first claims the job, then finds out which checkpoint ids are in use, and takes others. If it
  did not see a checkpoint of the older driver, that one had not begun yet, and its driver checks the claims
  again before it publishes it.
* A driver that cleans up first lists files, then checks the claims, and deletes only what was listed, so it
  deletes nothing of a newer run.
* A checkpoint knows the runs that led to it, and a new driver adds its own run when it takes over. A
  checkpoint outside that history cannot be the "latest" one.

As its last act, a driver that another one has followed deletes the state files that its own subtasks wrote
for checkpoints which it never published. The names of these files begin with the token of the driver, and
nobody else needs them. The other driver may have ended before they were written.

A claim needs no compare-and-set, which not all file systems and object stores offer. It only needs listings
that show everything written before, which all of them offer.

With incremental checkpoints a subtask writes what changed since the last completed checkpoint. The state then
consists of that checkpoint's files and the new one: a *chain* of a full file and increments. The files are in
``shared/`` and belong to all checkpoints whose chains contain them (Flink: ``SharedStateRegistry``). Now and
then a subtask writes all of its state in the background (Flink: *materialization*), which starts a new chain.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

import attrs

from pyflinkstate.backends.format import (
    SHARED_PREFIX,
    CheckpointMetadata,
    KeyGroupsStateHandle,
    OperatorSubtaskState,
    written_at,
    written_by,
)
from pyflinkstate.errors import CheckpointError, CheckpointStorageError, JobSupersededError
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, TakenOver, newest_run, run_id_after
from pyflinkstate.runtime.wire import CheckpointAck, Clock, SlotId

#: How often a waiting job checks the claims.
CHECK_INTERVAL_MS = 5_000


@attrs.define(eq=False)
class RunClaim:
    """The claim of one driver.

    Args:
        job_id: the id of the job.
        job_name: the name that the program gave it.
        storage: where the job's checkpoints are.
    """

    _job_id: str
    _job_name: str
    _storage: CheckpointFolders
    clock: Clock
    _looked_ms: int = attrs.field(init=False, default=0)
    _successor: str | None = attrs.field(init=False, default=None)
    _taken: TakenOver = attrs.field(init=False, factory=TakenOver)
    #: The id of the run; None before the job is claimed.
    run: str | None = attrs.field(init=False, default=None)
    #: Eight random digits, the same in the ids of all runs of this driver; empty before the first.
    token: str = attrs.field(init=False, default="")

    def make(self, past: RunHistory) -> str:
        """Claim the job for a new run and return its id.

        The id is also newer than those of all runs in ``past``.

        Raises:
            JobSupersededError: another driver claims the job at the same moment and has the newer id.
            CheckpointStorageError: the claim cannot be written.
        """
        known = [run for run, _ in past.runs] + ([] if self.run is None else [self.run])
        self.token = self.token or uuid.uuid4().hex[:8]
        run = run_id_after([*self._storage.runs(self._job_id), *known], self.token)
        self.run = run
        try:
            self._storage.write_run(self._job_id, run)
        except CheckpointStorageError:
            self.check()  # a newer run deletes a claim that is not whole yet
            raise
        self.check()
        return run

    def take_over(self, line: RunHistory, last_checkpoint_id: int, savepoint: str | None = None) -> None:
        """Write down the history with which the job goes on, and which checkpoint ids are used up.

        From now on, a savepoint that the job goes back to is the latest checkpoint, until
        :meth:`forget_savepoint`. Claims of older runs are meaningless and are deleted, which keeps listings
        short, and so are notes that a killed driver had begun.
        """
        assert self.run is not None
        self.check()
        now_ms = self.clock.now_ms()
        self._taken = TakenOver(line, last_checkpoint_id, self._job_name, now_ms, savepoint)
        self._storage.write_run(self._job_id, self.run, self._taken)
        self._storage.forget_runs(self._job_id, before=self.run)
        self._storage.discard_unfinished(self._job_id, self.run)

    def forget_savepoint(self) -> None:
        """Write down that the run has a checkpoint of its own, so that its savepoint is never the latest."""
        if self.run is not None and self._taken.savepoint is not None:
            self.check()
            self._taken = attrs.evolve(self._taken, savepoint=None)
            self._storage.write_run(self._job_id, self.run, self._taken)

    def check(self) -> None:
        """Check that the job still belongs to this run.

        Raises:
            JobSupersededError: there is a newer run.
            CheckpointStorageError: the runs cannot be listed.
        """
        if self.run is None:
            return
        if self._successor is None:
            self._looked_ms = self.clock.monotonic_ms()
            newest = newest_run([*self._storage.runs(self._job_id), self.run])
            self._successor = newest if newest != self.run else None
        if self._successor is not None:
            raise JobSupersededError(
                f"job {self._job_name!r} ({self._job_id}): another driver has taken the job over, with run "
                f"{self._successor}; this one, of run {self.run}, ends, and neither commits nor deletes "
                f"anything any more. Run only one program at a time for a job",
                job_id=self._job_id,
                run=self.run,
                newer_run=self._successor,
            )

    def check_now_and_then(self) -> None:
        """Call :meth:`check`, unless that was done a moment ago.

        If the storage fails, the check is repeated later, as nothing is about to be changed.
        """
        if not 0 <= self.clock.monotonic_ms() - self._looked_ms < CHECK_INTERVAL_MS:
            with suppress(CheckpointStorageError):
                self.check()


def shared_files(states: Iterable[OperatorSubtaskState]) -> set[str]:
    """Return the paths of all shared files of ``states``."""
    handles = (state.managed_keyed for state in states)
    return {
        file.path
        for handle in handles
        if handle is not None
        for file in handle.files()
        if file.path.startswith(SHARED_PREFIX)
    }


@attrs.define(eq=False)
class SharedStateRegistry:
    """The chains of the retained and the pending checkpoints."""

    #: By completed checkpoint of the current attempt: the state of each subtask.
    _chains: dict[int, dict[SlotId, OperatorSubtaskState]] = attrs.field(init=False, factory=dict)
    _files: dict[int, set[str]] = attrs.field(init=False, factory=dict)
    #: The files of checkpoints that were set aside.
    _superseded: set[str] = attrs.field(init=False, factory=set)
    _materialized: dict[SlotId, KeyGroupsStateHandle] = attrs.field(init=False, factory=dict)
    #: Files that subtasks have reported. Some of them are in no chain, as a newer file overtook them.
    _reported: set[str] = attrs.field(init=False, factory=set)

    def begin_attempt(self) -> None:
        """Begin an attempt: new slots know no checkpoint, so their first one starts a new chain."""
        self._chains.clear()
        self._materialized.clear()
        self._reported.clear()

    def materialized(self, slot: SlotId, handle: KeyGroupsStateHandle) -> None:
        """Register that a subtask has written all of its state as of ``handle.checkpoint_id``."""
        self._reported |= shared_files([OperatorSubtaskState(handle)])
        known = self._materialized.get(slot)
        if known is None or _written(known) < _written(handle):
            self._materialized[slot] = handle

    def whole(self, ack: CheckpointAck) -> OperatorSubtaskState:
        """Return the state of the acknowledging subtask, with the chain that its increment extends.

        Raises:
            CheckpointError: the increment extends a checkpoint that is no longer known.
        """
        self._reported |= shared_files([ack.state])
        if ack.base_id is None:
            return ack.state
        # What changed since the base includes what changed since any later checkpoint.
        bases = [known for known in self._chains if ack.base_id <= known < ack.checkpoint_id]
        if not bases:
            raise CheckpointError(
                f"{ack.slot} wrote what changed since checkpoint {ack.base_id}, which no longer exists"
            )
        base = self._chains[max(bases)][ack.slot].managed_keyed
        added = () if ack.state.managed_keyed is None else (ack.state.managed_keyed,)
        return attrs.evolve(ack.state, managed_keyed=self._chain(ack, base, added))

    def _chain(
        self,
        ack: CheckpointAck,
        base: KeyGroupsStateHandle | None,
        added: tuple[KeyGroupsStateHandle, ...],
    ) -> KeyGroupsStateHandle | None:
        if base is None:  # the subtask had no state yet, so its first increment has everything
            return added[0] if added else None
        increments = (*base.increments, *added)
        full = self._materialized.get(ack.slot)
        if full is None or not _written(base) < _written(full) <= ack.checkpoint_id:
            return attrs.evolve(base, increments=increments)
        return attrs.evolve(
            full, increments=tuple(handle for handle in increments if _written(handle) > _written(full))
        )

    def register(self, checkpoint_id: int, states: dict[SlotId, OperatorSubtaskState]) -> None:
        """Register a completed checkpoint of this attempt."""
        self._chains[checkpoint_id] = states
        self._files[checkpoint_id] = shared_files(states.values())

    def register_restored(self, metadata: CheckpointMetadata) -> None:
        """Register a checkpoint of an earlier run: its files are needed, but no chain continues from it."""
        self._files[metadata.checkpoint_id] = _files_of(metadata)

    def keep_superseded(self, metadata: CheckpointMetadata) -> None:
        """Register a checkpoint that was set aside: its files are needed, as the user may go back to it."""
        self._superseded |= _files_of(metadata)

    def forget_superseded(self) -> None:
        """Forget the checkpoints that were set aside, which are deleted."""
        self._superseded.clear()

    def keep(self, checkpoint_id: int, states: Iterable[OperatorSubtaskState]) -> None:
        """Keep the files of an aborted checkpoint that could not be deleted."""
        self._files.setdefault(checkpoint_id, set()).update(shared_files(states))

    def unregister(self, checkpoint_id: int) -> set[str]:
        """Unregister a deleted checkpoint and return its shared files that no other checkpoint needs."""
        self._chains.pop(checkpoint_id, None)
        candidates = self._files.pop(checkpoint_id, set()) | self._reported
        needed = self.needed()
        self._reported &= needed
        return candidates - needed

    def needed(self) -> set[str]:
        """Return the shared files that must stay."""
        return shared_files(map(OperatorSubtaskState, self._materialized.values())).union(
            self._superseded, *self._files.values()
        )


def _files_of(metadata: CheckpointMetadata) -> set[str]:
    return shared_files(subtask for operator in metadata.operators for subtask in operator.subtasks)


def _written(handle: KeyGroupsStateHandle) -> int:
    """Return the checkpoint at which a file in ``shared/`` was written."""
    assert handle.checkpoint_id is not None
    return handle.checkpoint_id


_log = logging.getLogger("pyflinkstate.checkpoints")


@attrs.define(eq=False)
class CheckpointFiles:
    """Deletes files of checkpoints that nobody needs. A failed deletion does no harm.

    Args:
        job_id: the id of the job, which is the folder of its checkpoints.
        job_name: the name that the program gave it.
        storage: where checkpoints are kept.
        claim: says whether the job still belongs to this driver.
    """

    job_id: str
    job_name: str
    storage: CheckpointFolders
    claim: RunClaim
    #: The runs that led here; after the claim, the last one is the run of this driver.
    line: RunHistory = attrs.field(init=False, factory=RunHistory)
    registry: SharedStateRegistry = attrs.field(init=False, factory=SharedStateRegistry)
    #: Whether the slots have restored the state and checkpoints of other histories are set aside.
    has_taken_over: bool = attrs.field(init=False, default=False)
    #: Checkpoints that exist but cannot be read, so that the files which they share are unknown.
    unreadable: set[str] = attrs.field(init=False, factory=set)
    #: The highest id of a checkpoint of earlier runs.
    last_id_before_run: int = attrs.field(init=False, default=0)
    #: Checkpoints whose publication was tried: they may be complete even if that failed.
    tried: set[int] = attrs.field(init=False, factory=set)
    #: The folders of checkpoints that were not published and could not be deleted.
    _unpublished: list[str] = attrs.field(init=False, factory=list)

    def uri_of(self, checkpoint_id: int) -> str:
        """Return the folder of a checkpoint."""
        return self.storage.uri_of(self.job_id, checkpoint_id)

    def quietly(self, delete: Callable[[], None]) -> bool:
        """Delete, and return whether that succeeded.

        A driver that was superseded deletes nothing; it finds that out when it is about to commit.
        """
        try:
            self.claim.check()
            delete()
        except (CheckpointError, JobSupersededError) as error:
            _log.warning("%s", error)
            return False
        return True

    def delete(self, uri: str) -> None:
        """Delete a checkpoint; if it could not be read, it no longer keeps shared files alive."""
        self.storage.discard(uri)
        self.unreadable.discard(uri)

    # --- one checkpoint ----------------------------------------------------------------------------

    def discard(self, checkpoint_id: int) -> None:
        """Delete a completed checkpoint, and the files that only it needs."""
        uri = self.uri_of(checkpoint_id)
        # If the folder stays, so does the checkpoint, and with it the files that it needs.
        if self.quietly(lambda: self.delete(uri)):
            self.discard_shared(self._unneeded(self.registry.unregister(checkpoint_id)))

    def give_up(self, checkpoint_id: int, uri: str | None, acks: Collection[CheckpointAck]) -> None:
        """Delete a checkpoint that is not complete, or what came too late for it.

        Args:
            checkpoint_id: its id.
            uri: its folder, if there is one.
            acks: what its subtasks have written.
        """
        if uri is not None and not self.quietly(lambda: self.storage.discard(uri)):
            if checkpoint_id in self.tried:
                # It may be complete after all: an error may come after the files are written.
                self.registry.keep(checkpoint_id, map(self._whole, acks))
            else:
                self._unpublished.append(uri)
        self.discard_shared(shared_files(ack.state for ack in acks) - self.registry.needed())

    def _whole(self, ack: CheckpointAck) -> OperatorSubtaskState:
        try:
            return self.registry.whole(ack)
        except CheckpointError:
            return ack.state

    def _unneeded(self, paths: set[str]) -> set[str]:
        """Return which shared files may be deleted, of those that no checkpoint is known to need.

        While there is a checkpoint that could not be read, it may need any that an earlier run has written.
        """
        return (
            {path for path in paths if written_at(path) > self.last_id_before_run}
            if self.unreadable
            else paths
        )

    def discard_shared(self, paths: set[str]) -> None:
        """Delete files that no checkpoint needs."""
        if paths:
            self.quietly(lambda: self.storage.discard_shared(self.job_id, sorted(paths)))

    # --- all of them -------------------------------------------------------------------------------

    def sweep(self, retained: Iterable[int]) -> None:
        """Delete incomplete checkpoints, and those whose deletion failed before."""
        if self.has_taken_over and not self.quietly(lambda: self._sweep(set(retained))):
            self._sweep_own()

    def _sweep(self, retained: set[int]) -> None:
        found = self.storage.checkpoint_ids(self.job_id)
        shared = self.storage.shared_paths(self.job_id)
        self.claim.check()  # so nothing in the list belongs to a newer run
        for checkpoint_id in set(found) - retained:
            self.delete(self.uri_of(checkpoint_id))
            self.registry.unregister(checkpoint_id)
        self.storage.discard_shared(self.job_id, sorted(self._unneeded(shared - self.registry.needed())))

    def _sweep_own(self) -> None:
        """Delete what the subtasks of this driver wrote for checkpoints that it did not publish.

        No other driver needs these files, so they are deleted even if a newer one has taken the job over.
        That one would find them too, but it may have ended before they were written.
        """
        self.registry.begin_attempt()
        writer, storage = self.claim.token, self.storage
        try:
            own = {path for path in storage.shared_paths(self.job_id) if written_by(path) == writer}
            storage.discard_shared(self.job_id, sorted(self._unneeded(own - self.registry.needed())))
            while self._unpublished:
                storage.discard_written(self._unpublished.pop(), writer)
        except CheckpointError as error:
            _log.warning("%s", error)

    def discard_all(self) -> None:
        """Delete every checkpoint of the job, including those that were set aside; savepoints stay."""
        if not self.quietly(self._discard_all):
            self._sweep_own()

    def _discard_all(self) -> None:
        found = self.storage.checkpoint_ids(self.job_id)
        superseded = self.storage.superseded(self.job_id)
        shared = self.storage.shared_paths(self.job_id)
        for checkpoint_id in found:
            uri = self.uri_of(checkpoint_id)
            if not self.quietly(lambda uri=uri: self.delete(uri)):  # type: ignore[misc]
                break  # if only this one stayed, the next run would go back to it, behind what is final
            self.registry.unregister(checkpoint_id)
        if all(self.quietly(lambda uri=uri: self.delete(uri)) for uri in superseded):  # type: ignore[misc]
            self.registry.forget_superseded()
        self.registry.begin_attempt()
        self.discard_shared(self._unneeded(shared - self.registry.needed()))

    # --- where epochs end, for sinks that rely on their numbers ------------------------------------

    def planned(self, restored: int) -> dict[int, object]:
        """Return the planned ends of epochs after ``restored``, which an earlier run may not have completed.

        An epoch after a gap belongs to a run with another history and is left out.
        """
        found = self.storage.read_planned(self.job_id)
        kept: dict[int, object] = {}
        while restored + 1 in found:
            restored += 1
            kept[restored] = found.pop(restored)
        self.claim.check()
        self.storage.forget_planned(self.job_id, found)
        return kept

    def plan(self, epoch: int, end: object) -> None:
        """Record where ``epoch`` will end; raise ``CheckpointStorageError`` if that fails."""
        self.claim.check()
        self.storage.write_planned(self.job_id, epoch, end)

    def forget_planned(self, epoch: int) -> None:
        """Forget the planned ends of epochs up to ``epoch``, which are committed."""
        self.quietly(lambda: self.storage.forget_planned(self.job_id, range(epoch + 1)))
