"""The names of ``pyflink.common``."""

from __future__ import annotations

from concurrent.futures import Future as CompletableFuture

from pyflinkstate.api.config_options import ConfigOption, ConfigOptions
from pyflinkstate.api.configuration import Configuration
from pyflinkstate.api.encoder import Encoder
from pyflinkstate.api.job_id import JobID
from pyflinkstate.api.row import (
    Row,
    RowKind,
)
from pyflinkstate.api.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    SerializationSchema,
    SimpleStringSchema,
)
from pyflinkstate.api.serializer import TypeSerializer
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
from pyflinkstate.runtime.master import JobExecutionResult
from pyflinkstate.runtime.program import ExecutionConfig, JobClient
from pyflinkstate.runtime.settings import JobStatus, RestartStrategies
from pyflinkstate.runtime.settings import RestartStrategy as RestartStrategyConfiguration

__all__ = [
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "TypeSerializer",
    "Types",
    "WatermarkStrategy",
]
