"""PyFlink's ``pyflink.datastream.connectors.number_seq``."""

from __future__ import annotations

from pyflinkstate.runtime.sources import NumberSequenceSource

__all__ = [
    "NumberSequenceSource",
]
