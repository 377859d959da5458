"""PyFlink's ``pyflink.common.configuration``."""

from __future__ import annotations

from pyflinkstate.api.configuration import Configuration

__all__ = [
    "Configuration",
]
