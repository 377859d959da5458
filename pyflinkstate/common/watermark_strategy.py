"""PyFlink's ``pyflink.common.watermark_strategy``."""

from pyflinkstate.api import (
    TimestampAssigner as TimestampAssigner,
    WatermarkStrategy as WatermarkStrategy,
)
