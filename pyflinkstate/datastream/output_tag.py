"""PyFlink's ``pyflink.datastream.output_tag``."""

from __future__ import annotations

from pyflinkstate.api.output_tag import OutputTag

__all__ = [
    "OutputTag",
]
