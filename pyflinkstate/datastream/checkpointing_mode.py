"""PyFlink's ``pyflink.datastream.checkpointing_mode``."""

from pyflinkstate.runtime.settings import CheckpointingMode as CheckpointingMode
