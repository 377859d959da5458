"""PyFlink's ``pyflink.datastream.output_tag``."""

from pyflinkstate.api import OutputTag as OutputTag
