"""PyFlink's ``pyflink.common.execution_config``."""

from pyflinkstate.runtime.program import ExecutionConfig as ExecutionConfig
