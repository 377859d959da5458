"""PyFlink's ``pyflink.datastream.connectors.number_seq``."""

from pyflinkstate.runtime.sources import NumberSequenceSource as NumberSequenceSource
