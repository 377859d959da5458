"""The files of a job's checkpoints: which may be deleted, and by whom."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyflinkstate.backends.format import OperatorSubtaskState, written_at, written_by
from pyflinkstate.errors import CheckpointError, JobSupersededError
from pyflinkstate.runtime.master.run_claim import RunClaim
from pyflinkstate.runtime.master.shared_state import SharedStateRegistry, shared_files
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory
from pyflinkstate.runtime.wire import CheckpointAck

_log = logging.getLogger("pyflinkstate.checkpoints")


class CheckpointFiles:
    """Deletes files of checkpoints that nobody needs. A failed deletion does no harm.

    Args:
        job_id: the id of the job, which is the folder of its checkpoints.
        job_name: the name that the program gave it.
        storage: where checkpoints are kept.
        claim: says whether the job still belongs to this driver.
    """

    def __init__(self, job_id: str, job_name: str, storage: CheckpointFolders, claim: RunClaim) -> None:
        self.job_id = job_id
        self.job_name = job_name
        self.storage = storage
        self.claim = claim
        #: The runs that led here; after the claim, the last one is the run of this driver.
        self.line = RunHistory()
        self.registry = SharedStateRegistry()
        #: Whether the slots have restored the state and checkpoints of other histories are set aside.
        self.has_taken_over = False
        #: Checkpoints that exist but cannot be read, so that the files which they share are unknown.
        self.unreadable: set[str] = set()
        #: The highest id of a checkpoint of earlier runs.
        self.last_id_before_run = 0
        #: Checkpoints whose publication was tried: they may be complete even if that failed.
        self.tried: set[int] = set()
        #: The folders of checkpoints that were not published and could not be deleted.
        self._unpublished: list[str] = []

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
            self._discard_shared(self._unneeded(self.registry.unregister(checkpoint_id)))

    def give_up(self, checkpoint_id: int, uri: str | None, acks: Collection[CheckpointAck]) -> None:
        """Delete a checkpoint that is not complete.

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
        self._discard_shared(shared_files(ack.state for ack in acks) - self.registry.needed())

    def _whole(self, ack: CheckpointAck) -> OperatorSubtaskState:
        try:
            return self.registry.whole(ack)
        except CheckpointError:
            return ack.state

    def discard_late(self, ack: CheckpointAck, uri: str) -> None:
        """Delete what a subtask has written too late for the checkpoint in a folder."""
        if not self.quietly(lambda: self.storage.discard(uri)) and ack.checkpoint_id not in self.tried:
            self._unpublished.append(uri)
        self._discard_shared(shared_files([ack.state]) - self.registry.needed())

    def discard_materialized(self, state: OperatorSubtaskState) -> None:
        """Delete what a slot of an earlier attempt has written in the background."""
        self._discard_shared(shared_files([state]))

    def _unneeded(self, paths: set[str]) -> set[str]:
        """Return which shared files may be deleted, of those that no checkpoint is known to need.

        While there is a checkpoint that could not be read, it may need any that an earlier run has written.
        """
        if not self.unreadable:
            return paths
        return {path for path in paths if written_at(path) > self.last_id_before_run}

    def _discard_shared(self, paths: set[str]) -> None:
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
            if self.quietly(lambda uri=uri: self.delete(uri)):  # type: ignore[misc]
                self.registry.unregister(checkpoint_id)
        if all(self.quietly(lambda uri=uri: self.delete(uri)) for uri in superseded):  # type: ignore[misc]
            self.registry.forget_superseded()
        self.registry.begin_attempt()
        self._discard_shared(self._unneeded(shared - self.registry.needed()))

    # --- where epochs end, for sinks that rely on their numbers ------------------------------------

    def planned(self, restored: int) -> dict[int, Any]:
        """Return the planned ends of epochs after ``restored``, which an earlier run may not have completed.

        An epoch after a gap belongs to a run with another history and is left out.
        """
        found = self.storage.read_planned(self.job_id)
        kept: dict[int, Any] = {}
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
