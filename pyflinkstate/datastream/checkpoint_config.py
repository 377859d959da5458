"""PyFlink's ``pyflink.datastream.checkpoint_config``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import CheckpointConfig, ExternalizedCheckpointRetention

__all__ = [
    "CheckpointConfig",
    "ExternalizedCheckpointRetention",
]
