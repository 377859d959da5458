"""PyFlink's ``pyflink.datastream.connectors.base``."""

from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import Source

__all__ = ["Sink", "Source"]
