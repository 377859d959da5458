"""PyFlink's ``pyflink.common.config_options``."""

from __future__ import annotations

from pyflinkstate.api.config_options import ConfigOption, ConfigOptions

__all__ = ["ConfigOption", "ConfigOptions"]
