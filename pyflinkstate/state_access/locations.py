"""Which checkpoint a path means, and which checkpoints a job has kept."""

from __future__ import annotations

from collections.abc import Iterator

from pyflinkstate.backends.format import CheckpointMetadata, is_job_id
from pyflinkstate.errors import CheckpointNotFoundError
from pyflinkstate.runtime.storage import CheckpointFolders, absolute, load_checkpoint, parent_uri

#: The metadata of a checkpoint, and the URI or path of its folder.
Located = tuple[CheckpointMetadata, str]


def locate(path: str) -> Located:
    """Return the checkpoint that a path or URI means.

    Args:
        path: the folder of a checkpoint or savepoint (or its ``_metadata``); or the folder of a job, for its
            newest completed checkpoint; or a checkpoint directory with one job in it, for that of the job.

    Raises:
        CheckpointNotFoundError: there is no completed checkpoint.
        CorruptCheckpointError, IncompatibleCheckpointError: the checkpoint cannot be read.
    """
    try:
        return load_checkpoint(path)
    except CheckpointNotFoundError as error:
        found = _newest(path)
        if found is None:
            raise CheckpointNotFoundError(
                f"{path} is no completed checkpoint or savepoint, nor the folder of a job that has one: "
                f"{error.message}",
                path=path,
            ) from None
        return found


def _newest(path: str) -> Located | None:
    """Return the newest checkpoint below a path, the one from which a job would be restored."""
    storage, job_ids = jobs_at(path)
    if len(job_ids) > 1:
        raise CheckpointNotFoundError(
            f"{path} has the checkpoints of {len(job_ids)} jobs: name the folder of one, which are "
            f"{', '.join(job_ids)}",
            path=path,
        )
    newest = storage.load_newest(job_ids[0]) if job_ids else None
    return None if newest is None else (newest, storage.uri_of(newest.job_id, newest.checkpoint_id))


def jobs_at(path: str) -> tuple[CheckpointFolders, list[str]]:
    """Return the storage that a path belongs to, and the ids of the jobs that it means.

    These are one job for its folder, and all jobs for a checkpoint directory.
    """
    parent, name = parent_uri(absolute(path))
    if is_job_id(name):
        storage = CheckpointFolders(parent)
        return storage, [name] if storage.checkpoint_ids(name) else []
    storage = CheckpointFolders(path)
    return storage, storage.job_ids()


def retained(storage: CheckpointFolders, job_id: str) -> Iterator[Located]:
    """Yield the completed checkpoints that led to a job's newest one, and that one, the newest first."""
    newest = storage.load_newest(job_id)
    if newest is not None:
        for metadata in (newest, *storage.load_older(newest)):
            yield metadata, storage.uri_of(job_id, metadata.checkpoint_id)
