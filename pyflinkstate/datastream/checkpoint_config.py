"""PyFlink's ``pyflink.datastream.checkpoint_config``."""

from pyflinkstate.runtime.settings import (
    CheckpointConfig as CheckpointConfig,
    ExternalizedCheckpointRetention as ExternalizedCheckpointRetention,
)
