"""PyFlink's ``pyflink.common.configuration``."""

from pyflinkstate.api.configuration import Configuration as Configuration
