"""PyFlink's ``pyflink.datastream.output_tag``."""

from pyflinkstate.api.output_tag import OutputTag as OutputTag
