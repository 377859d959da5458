"""PyFlink's ``pyflink.datastream.connectors.base``."""

from pyflinkstate.runtime.sinks import DeliveryGuarantee, Sink
from pyflinkstate.runtime.sources import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
