"""PyFlink's ``pyflink.datastream.checkpoint_storage``."""

from pyflinkstate.api import CheckpointStorage as CheckpointStorage
from pyflinkstate.runtime.storage import (
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
)
