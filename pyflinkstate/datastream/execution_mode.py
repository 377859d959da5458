"""PyFlink's ``pyflink.datastream.execution_mode``."""

from __future__ import annotations

from pyflinkstate.runtime.program import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
