"""PyFlink's ``pyflink.datastream.checkpointing_mode``."""

from __future__ import annotations

from pyflinkstate.runtime.checkpoint_config import CheckpointingMode

__all__ = [
    "CheckpointingMode",
]
