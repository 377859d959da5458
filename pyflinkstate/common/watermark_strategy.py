"""PyFlink's ``pyflink.common.watermark_strategy``."""

from pyflinkstate.api.time import (
    TimestampAssigner as TimestampAssigner,
    WatermarkStrategy as WatermarkStrategy,
)
