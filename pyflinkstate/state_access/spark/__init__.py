"""Checkpoints in Spark: state as a ``DataFrame``, and the data source ``pyflinkstate``."""

from pyflinkstate.state_access.spark.data_source import CheckpointDataSource, register

__all__ = ["CheckpointDataSource", "register"]
