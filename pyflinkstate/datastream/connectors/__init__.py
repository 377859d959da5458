"""Sources and sinks under PyFlink's names (``pyflink.datastream.connectors``)."""

from pyflinkstate.runtime.sinks import DeliveryGuarantee, Sink
from pyflinkstate.runtime.sources import Source

__all__ = ["DeliveryGuarantee", "Sink", "Source"]
