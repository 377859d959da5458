"""PyFlink's ``pyflink.datastream.checkpointing_mode``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
