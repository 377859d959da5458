"""PyFlink's ``pyflink.datastream.checkpoint_storage``."""

from __future__ import annotations

from pyflinkstate.api.checkpoint_storage import CheckpointStorage
from pyflinkstate.runtime.storage import FileSystemCheckpointStorage, JobManagerCheckpointStorage

__all__ = [
    "CheckpointStorage",
    "FileSystemCheckpointStorage",
    "JobManagerCheckpointStorage",
]
