"""The names of ``pyflink.common``."""

from __future__ import annotations

from pyflinkstate.api.configuration import Configuration
from pyflinkstate.api.encoder import Encoder
from pyflinkstate.api.row import (
    Row,
    RowKind,
)
from pyflinkstate.api.time import (
    Duration,
    Instant,
    Time,
)
from pyflinkstate.api.types import (
    TypeInformation,
    Types,
)
from pyflinkstate.api.watermark_strategy import (
    TimestampAssigner,
    WatermarkStrategy,
)
from pyflinkstate.runtime.job import JobExecutionResult
from pyflinkstate.runtime.program import ExecutionConfig, JobClient
from pyflinkstate.runtime.settings import JobStatus, RestartStrategies

__all__ = [
    "Configuration",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobStatus",
    "RestartStrategies",
    "Row",
    "RowKind",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkStrategy",
]
