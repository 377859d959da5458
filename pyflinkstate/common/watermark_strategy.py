"""PyFlink's ``pyflink.common.watermark_strategy``."""

from __future__ import annotations

from pyflinkstate.api.watermark_strategy import (
    TimestampAssigner,
    WatermarkStrategy,
)

__all__ = [
    "TimestampAssigner",
    "WatermarkStrategy",
]
