"""PyFlink's ``pyflink.datastream.execution_mode``."""

from __future__ import annotations

from pyflinkstate.runtime.execution_config import RuntimeExecutionMode

__all__ = [
    "RuntimeExecutionMode",
]
