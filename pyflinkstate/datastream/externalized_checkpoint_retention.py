"""PyFlink's ``pyflink.datastream.externalized_checkpoint_retention``."""

from pyflinkstate.runtime.settings import ExternalizedCheckpointRetention as ExternalizedCheckpointRetention
