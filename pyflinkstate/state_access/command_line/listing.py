"""Lists the checkpoints of a job, also those that cannot be read any more."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from pyflinkstate.api.values import JsonObject
from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointNotFoundError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
)
from pyflinkstate.runtime.storage import CheckpointFolders, history_of


def checkpoints_of(storage: CheckpointFolders, job_id: str) -> Iterator[JsonObject]:
    """Yield a row for each complete checkpoint of a job, and for each that was set aside."""
    yield from _completed(storage, job_id)
    for uri in storage.superseded(job_id):
        found = _loaded(storage, uri)
        if isinstance(found, CheckpointMetadata):
            yield listed(found, "superseded")
        elif found is not None:
            yield _unreadable(job_id, None, found)


def _completed(storage: CheckpointFolders, job_id: str) -> Iterator[JsonObject]:
    """Yield the rows of a job's completed checkpoints; skip one that a running job deletes meanwhile."""
    found = {number: _loaded(storage, storage.uri_of(job_id, number)) for number in storage.completed(job_id)}
    line = _newest_line(
        storage, job_id, [one for one in found.values() if isinstance(one, CheckpointMetadata)]
    )
    for number, one in found.items():
        if isinstance(one, CheckpointMetadata):
            yield listed(one, "completed" if number in line else "not in the newest line")
        elif one is not None:
            yield _unreadable(job_id, number, one)


def _newest_line(
    storage: CheckpointFolders, job_id: str, readable: Sequence[CheckpointMetadata]
) -> Container[int]:
    """Return the readable checkpoints that led to the newest readable one, in order."""
    line = storage.line(job_id)
    for newest in reversed(readable):
        if line.holds(history_of(newest), newest.epoch):
            line = history_of(newest)
            older = [one for one in readable if one.checkpoint_id <= newest.checkpoint_id]
            return [one.checkpoint_id for one in older if line.holds(history_of(one), one.epoch)]
    return ()


def _loaded(storage: CheckpointFolders, uri: str) -> CheckpointMetadata | CheckpointError | None:
    """Return a checkpoint, None if it is not complete or not there any more, or why it cannot be read."""
    try:
        return storage.load(uri)
    except CheckpointNotFoundError:
        return None
    except (CorruptCheckpointError, IncompatibleCheckpointError) as error:
        return error


def _unreadable(job_id: str, number: int | None, error: CheckpointError) -> JsonObject:
    """Return the row of a checkpoint whose metadata cannot be read; ``verify`` says why."""
    row: JsonObject = dict.fromkeys(
        ("job_id", "job_name", "checkpoint", "epoch", "timestamp_ms", "size_bytes")
    )
    is_damaged = isinstance(error, CorruptCheckpointError)
    return row | {
        "job_id": job_id,
        "checkpoint": number,
        "status": "damaged" if is_damaged else "of another format version",
    }


def listed(metadata: CheckpointMetadata, status: str) -> JsonObject:
    """Return the row of a checkpoint."""
    sizes = [subtask.size_bytes for operator in metadata.operators for subtask in operator.subtasks]
    return {
        "job_id": metadata.job_id,
        "job_name": metadata.job_name,
        "checkpoint": metadata.checkpoint_id,
        "epoch": metadata.epoch,
        "timestamp_ms": metadata.timestamp_ms,
        "size_bytes": sum(sizes),
        "status": status,
    }
