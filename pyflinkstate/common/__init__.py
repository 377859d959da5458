"""The names of ``pyflink.common``."""

from concurrent.futures import Future as CompletableFuture

from pyflinkstate.api import (
    ByteArraySchema,
    ConfigOption,
    ConfigOptions,
    Configuration,
    DeserializationSchema,
    Duration,
    Encoder,
    Instant,
    JobID,
    Row,
    RowKind,
    SerializationSchema,
    SimpleStringSchema,
    Time,
    TimestampAssigner,
    TypeInformation,
    Types,
    TypeSerializer,
    WatermarkStrategy,
)
from pyflinkstate.runtime.master import JobExecutionResult
from pyflinkstate.runtime.program import ExecutionConfig, JobClient
from pyflinkstate.runtime.settings import (
    JobStatus,
    RestartStrategies,
    RestartStrategy as RestartStrategyConfiguration,
)

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
