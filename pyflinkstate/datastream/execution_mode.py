"""PyFlink's ``pyflink.datastream.execution_mode``."""

from pyflinkstate.runtime.program import RuntimeExecutionMode as RuntimeExecutionMode
