"""What PyFlink has in ``pyflink.common``."""

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
from pyflinkstate.runtime.execution_config import ExecutionConfig
from pyflinkstate.runtime.job_client import JobClient
from pyflinkstate.runtime.job_status import JobStatus
from pyflinkstate.runtime.observe import JobExecutionResult
from pyflinkstate.runtime.restart import RestartStrategies

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
