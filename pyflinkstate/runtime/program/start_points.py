"""Where the checkpoints of a job are, and which one it starts from."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import RestorePoint
from pyflinkstate.runtime.plan import JobPlan
from pyflinkstate.runtime.program.environment_settings import EnvironmentSettings
from pyflinkstate.runtime.sources import StreamingSource
from pyflinkstate.runtime.storage import (
    CheckpointFolders,
    FileSystemCheckpointStorage,
    load_checkpoint,
    temporary_folder,
)

#: The word for the newest completed checkpoint in the checkpoint directory.
LATEST = "latest"

_log = logging.getLogger("pyflinkstate.configuration")


@attrs.define(eq=False)
class StartPoints:
    """Finds the storage of an environment's jobs, and the checkpoint that each starts from.

    Attributes:
        settings: the settings of the environment.
        is_local: whether Spark runs on this machine.
    """

    settings: EnvironmentSettings
    is_local: bool
    _temporary_storage: Path | None = None

    def storage(self) -> CheckpointFolders | None:
        """Return the directory of checkpoints, or None if there is none."""
        where = self.settings.checkpoints.checkpoint_directory()
        if not self.settings.checkpoints.is_checkpointing_enabled():
            if where is None:
                return None
            _log.warning(
                "a directory for checkpoints is set, but no interval: no checkpoints are taken until the "
                "input ends, and output becomes visible only then, or with a savepoint. Call "
                "enable_checkpointing()"
            )
        storage = CheckpointFolders(where or self._storage_of_this_run())
        storage.check_writable()
        return storage

    def _storage_of_this_run(self) -> FileSystemCheckpointStorage:
        """Return a directory that is deleted with the program; Flink uses the job manager's memory."""
        if not self.is_local:
            raise ConfigurationError(
                "checkpoints need a directory that driver and executors can reach: pass it to "
                "enable_checkpointing() or get_checkpoint_config().set_checkpoint_storage()"
            )
        if self._temporary_storage is None:
            self._temporary_storage = temporary_folder(self, "pyflinkstate-")
        return FileSystemCheckpointStorage(str(self._temporary_storage))

    def restore_point(
        self, plan: JobPlan, storage: CheckpointFolders | None, job_name: str
    ) -> RestorePoint | None:
        """Return what a job starts from, or None if it starts from the beginning."""
        path = self.settings.restore_path
        streaming = streaming_source_of(plan)
        if storage is None:
            if path is not None or plan.source.source.commits_every_epoch:
                raise ConfigurationError(
                    "restore_from() and from_streaming() need enable_checkpointing(): "
                    "restored state is kept on"
                )
            return None
        if streaming is not None:
            return restore_streaming(streaming, storage, job_name, path)
        if path is None:
            return None
        if path == LATEST:
            metadata = storage.load_latest(job_name, self.settings.checkpoints.is_fall_back_enabled())
            uri = storage.uri_of(metadata.job_id, metadata.checkpoint_id)
            return RestorePoint(metadata, uri, is_latest=True)
        return RestorePoint(*load_checkpoint(path))


def restore_streaming(
    source: StreamingSource, storage: CheckpointFolders, job_name: str, path: str | None
) -> RestorePoint | None:
    """Choose the checkpoint that fits the position of the query; check that a given savepoint fits.

    If it is the newest one, an older driver that still runs may complete another one before it is excluded.
    """
    if path is None or path == LATEST:
        read: list[CheckpointMetadata] = []
        metadata = source.choose(_noted(storage.load_retained(job_name), read))
        if metadata is None:
            if path == LATEST:
                storage.load_latest(job_name)  # raises an error that there is none
            return None
        uri = storage.uri_of(metadata.job_id, metadata.checkpoint_id)
        return RestorePoint(metadata, uri, is_latest=metadata is read[0])
    named = RestorePoint(*load_checkpoint(path))
    source.choose([named.metadata])
    return named


def _noted(
    retained: Iterable[CheckpointMetadata], read: list[CheckpointMetadata]
) -> Iterator[CheckpointMetadata]:
    """Yield checkpoints, and put those that were asked for into a list."""
    for metadata in retained:
        read.append(metadata)
        yield metadata


def streaming_source_of(plan: JobPlan) -> StreamingSource | None:
    """Return the source that reads a streaming query, if there is one: it has no other beside it."""
    sources = (node.source for node in plan.sources)
    return next((source for source in sources if isinstance(source, StreamingSource)), None)
