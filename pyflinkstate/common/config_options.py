"""PyFlink's ``pyflink.common.config_options``."""

from pyflinkstate.api.configuration import ConfigOption as ConfigOption, ConfigOptions as ConfigOptions
