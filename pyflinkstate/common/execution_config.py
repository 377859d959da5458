"""PyFlink's ``pyflink.common.execution_config``."""

from __future__ import annotations

from pyflinkstate.runtime.program import ExecutionConfig

__all__ = [
    "ExecutionConfig",
]
