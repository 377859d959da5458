"""PyFlink's ``pyflink.datastream.checkpoint_storage``."""

from __future__ import annotations

from pyflinkstate.runtime.storage import FileSystemCheckpointStorage

__all__ = [
    "FileSystemCheckpointStorage",
]
