"""PyFlink's ``pyflink.datastream.stream_execution_environment``."""

from __future__ import annotations

from pyflinkstate.runtime.program import StreamExecutionEnvironment

__all__ = [
    "StreamExecutionEnvironment",
]
