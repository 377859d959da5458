"""PyFlink's ``pyflink.datastream.stream_execution_environment``."""

from pyflinkstate.runtime.program import StreamExecutionEnvironment as StreamExecutionEnvironment
