"""PyFlink's ``pyflink.datastream.connectors.base``."""

from __future__ import annotations

from pyflinkstate.runtime.sinks import Sink
from pyflinkstate.runtime.sources import Source

__all__ = ["Sink", "Source"]
