"""PyFlink's ``pyflink.common.execution_config``."""

from __future__ import annotations

from pyflinkstate.runtime.execution_config import ExecutionConfig

__all__ = [
    "ExecutionConfig",
]
