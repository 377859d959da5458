"""PyFlink's ``pyflink.common.types``."""

from __future__ import annotations

from pyflinkstate.api.row import (
    Row,
    RowKind,
)

__all__ = [
    "Row",
    "RowKind",
]
