"""PyFlink's ``pyflink.common.config_options``."""

from pyflinkstate.api import ConfigOption as ConfigOption, ConfigOptions as ConfigOptions
