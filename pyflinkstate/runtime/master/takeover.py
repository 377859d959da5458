"""How a run takes a job over and goes back to a checkpoint: the claim, what is set aside or deleted."""

from __future__ import annotations

import logging
from functools import partial

from pyflinkstate.errors import CheckpointError, CheckpointNotFoundError, CheckpointStorageError
from pyflinkstate.runtime.master.checkpoint_files import CheckpointFiles
from pyflinkstate.runtime.master.checkpoints import Checkpoints
from pyflinkstate.runtime.master.coordinator import CheckpointCoordinator
from pyflinkstate.runtime.master.deployment import RestorePoint
from pyflinkstate.runtime.storage import MOST_ASIDE_MS, RunHistory, history_of, parent_uri

_log = logging.getLogger("pyflinkstate.checkpoints")


class Takeover:
    """The checkpoints of one job between its runs and its attempts. A run must :meth:`claim` them first.

    Args:
        files: the files of its checkpoints.
        checkpoints: those that it takes; the claim says which there are.
    """

    def __init__(self, files: CheckpointFiles, checkpoints: Checkpoints) -> None:
        self.files = files
        self._storage = files.storage
        self._job_id = files.job_id
        self.checkpoints = checkpoints
        self._has_claimed = False

    # --- the beginning of a run --------------------------------------------------------------------

    def claim(self) -> RestorePoint | None:
        """Begin a run: from now on no older driver of the job may change anything. Nothing else is changed.

        Returns:
            the checkpoint to restore; a newer one than before if the newest was asked for.
        """
        restore = self.checkpoints.restore
        if self._has_claimed:
            self.files.claim.check()
            return restore
        run = self.files.claim.make(_history(restore))
        restore = self._newest(restore)
        self.files.line = _history(restore).continued(0 if restore is None else restore.metadata.epoch, run)
        if restore is not None:
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
        newest = self._storage.load_latest_of(self._job_id, self.files.job_name, fall_back=True)
        if newest is None:
            raise CheckpointNotFoundError(
                f"checkpoint {restore.metadata.checkpoint_id} of job {self.files.job_name!r} was the newest "
                f"when this driver began, and is gone: another driver has ended the job, or goes on from an "
                f"older checkpoint. Find out what that driver did before you start the program again"
            )
        if newest[0].checkpoint_id <= restore.metadata.checkpoint_id:
            return restore
        return RestorePoint(*newest, is_latest=True)

    def _find_checkpoints(self, restore: RestorePoint) -> None:
        """Find the existing checkpoints.

        This comes after the claim, as an older driver may have begun one.
        """
        restored, known = restore.metadata.checkpoint_id, self.checkpoints.coordinator.last_id
        last_id = max(restored, known, *self._storage.ids_in_use(self._job_id))
        before = [done for done in self._storage.completed(self._job_id) if self._is_kept(done, restored)]
        self.files.last_id_before_run = last_id
        self.checkpoints.coordinator = CheckpointCoordinator(self.checkpoints.settings, last_id, before)

    def _is_kept(self, checkpoint_id: int, restored: int) -> bool:
        """Return whether a checkpoint belongs to the history of the restored one; record its shared files.

        The id decides for a checkpoint that cannot be read.
        """
        uri = self.files.uri_of(checkpoint_id)
        self.files.unreadable.discard(uri)  # an earlier attempt to claim the job may have failed to read it
        try:
            metadata = self._storage.load(uri)
        except CheckpointNotFoundError:
            return False  # an older driver has deleted it since it was listed
        except CheckpointError as error:
            self.files.unreadable.add(uri)
            _log.warning("checkpoint %d cannot be read and is left alone: %s", checkpoint_id, error)
            return checkpoint_id <= restored
        self.files.registry.register_restored(metadata)
        return self.files.line.holds(history_of(metadata), metadata.epoch)

    def take_over(self) -> None:
        """Set aside later checkpoints than the restored one, now that all slots have restored their state.

        The sinks will go back as well. If later checkpoints stayed where they are, "latest" could be one of
        them, whose output is gone. The sinks will also commit what the restored one covers, so that must not
        be lost any more.
        """
        restore, coordinator = self.checkpoints.restore, self.checkpoints.coordinator
        if restore is not None:
            self._storage.make_durable(restore.uri)
        found = self._storage.checkpoint_ids(self._job_id)
        completed = set(self._storage.completed(self._job_id))
        self.files.claim.check()
        for checkpoint_id in found:
            if checkpoint_id in completed and checkpoint_id not in coordinator.retained:
                self._set_aside(checkpoint_id)
        self._delete_outdated()
        self._keep_superseded()
        self.files.claim.take_over(self.files.line, coordinator.last_id, self._savepoint())
        self.files.has_taken_over = True
        self.files.sweep(coordinator.retained)

    def _savepoint(self) -> str | None:
        """Return the URI of the restored checkpoint if it is not in the job's own folder."""
        restore = self.checkpoints.restore
        if restore is None or restore.uri == self.files.uri_of(restore.metadata.checkpoint_id):
            return None
        return restore.uri

    def _set_aside(self, checkpoint_id: int) -> None:
        run = self.files.claim.run
        assert run is not None
        uri = self._storage.set_aside(self._job_id, checkpoint_id, run)
        self.files.unreadable.discard(self.files.uri_of(checkpoint_id))
        self.files.registry.unregister(checkpoint_id)
        _log.warning(
            "this run does not go on from checkpoint %d: it is set aside as %s, stays there for %d days, "
            "and restore_from() goes back to it",
            checkpoint_id,
            uri,
            MOST_ASIDE_MS // 86_400_000,
        )

    def _delete_outdated(self) -> None:
        """Delete checkpoints that were set aside long ago, except for the one that is restored."""
        restore = self.checkpoints.restore
        restored = None if restore is None else parent_uri(restore.uri)[1]
        for uri in self._storage.outdated(self._job_id, self.files.claim.clock.now_ms()):
            if parent_uri(uri)[1] != restored and self.files.quietly(partial(self.files.delete, uri)):
                _log.warning("%s, which an earlier run has set aside, is deleted: it is too old", uri)

    def _keep_superseded(self) -> None:
        """Keep the files that checkpoints which were set aside share with others."""
        for uri in self._storage.superseded(self._job_id):
            self.files.unreadable.discard(uri)
            try:
                self.files.registry.keep_superseded(self._storage.load(uri))
            except CheckpointNotFoundError:
                continue  # the move was interrupted: the checkpoint is still complete at its old place
            except CheckpointError as error:
                self.files.unreadable.add(uri)
                _log.warning("%s cannot be read, so no file that it may share is deleted: %s", uri, error)

    # --- attempts ----------------------------------------------------------------------------------

    def begin_attempt(self) -> None:
        """Begin an attempt: the slots of the previous one are cut off, and what they wrote is dropped.

        Raises:
            CheckpointStorageError: a checkpoint after the restored one cannot be deleted, or the storage does
                not say whether there is one.
            JobSupersededError: another driver has taken the job over.
        """
        self.checkpoints.forget_attempt()
        if self.files.has_taken_over:
            try:
                self._delete_later()
            except CheckpointStorageError as error:
                # The job tells of the failure before this one.
                _log.warning("the attempt cannot begin: %s", error)
                raise
        self.files.sweep(self.checkpoints.coordinator.retained)

    def _delete_later(self) -> None:
        """Delete checkpoints after the restored one, which are complete but were reported as failed.

        The storage has published such a checkpoint, and its answer was lost. The sinks now go back to the
        restored one. If a later one stayed, "latest" would be a checkpoint whose output is gone.
        """
        restored = self.checkpoints.coordinator.latest_completed or 0
        later = [found for found in self._storage.completed(self._job_id) if found > restored]
        if later:
            self.files.claim.check()  # so nothing in the list belongs to a newer run
        for checkpoint_id in later:
            try:
                self.files.delete(self.files.uri_of(checkpoint_id))
            except CheckpointStorageError as error:
                raise CheckpointStorageError(
                    f"checkpoint {checkpoint_id} was reported as failed, but it is complete and cannot be "
                    f"deleted. The job does not go back to an older checkpoint before it is deleted, as "
                    f'restore_from("latest") would find it: {error}',
                    checkpoint_id=checkpoint_id,
                ) from error
            self.files.registry.unregister(checkpoint_id)

    def fall_back(self) -> RestorePoint | None:
        """Return the newest retained checkpoint before the damaged one; going on from there is a new run.

        That run finds anew which checkpoints there are. Without an older one, the damaged one stays: whoever
        could not read it may be able to later.
        """
        damaged = self.checkpoints.restore
        for checkpoint_id in reversed(self.checkpoints.coordinator.retained):
            if damaged is None or checkpoint_id >= damaged.metadata.checkpoint_id:
                continue
            uri = self.files.uri_of(checkpoint_id)
            try:
                older = RestorePoint(self._storage.load(uri), uri)
            except CheckpointError as error:
                _log.warning("checkpoint %d cannot be read either: %s", checkpoint_id, error)
                continue
            self._has_claimed = self.files.has_taken_over = False
            self.checkpoints.restore = older
            return older
        return None

    def end(self) -> None:
        """End the run: keep as many checkpoints as configured, and delete what is incomplete.

        A run that failed before it had restored the newest checkpoint does not know whether that is intact,
        so it keeps the older ones too, for the next run to fall back to.
        """
        if self.files.has_taken_over:
            self.checkpoints.end_run()
        self.checkpoints.forget_attempt()
        self.files.sweep(self.checkpoints.coordinator.retained)


def _history(restore: RestorePoint | None) -> RunHistory:
    """Return the runs that led to a checkpoint."""
    return RunHistory() if restore is None else history_of(restore.metadata)
