"""PyFlink's ``pyflink.common.configuration``."""

from pyflinkstate.api import Configuration as Configuration
