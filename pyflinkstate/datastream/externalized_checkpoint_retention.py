"""PyFlink's ``pyflink.datastream.externalized_checkpoint_retention``."""

from __future__ import annotations

from pyflinkstate.runtime.settings import ExternalizedCheckpointRetention

__all__ = ["ExternalizedCheckpointRetention"]
