"""The names of ``pyflink.common``."""

from concurrent.futures import Future as CompletableFuture

from pyflinkstate.api.configuration import ConfigOption, ConfigOptions, Configuration
from pyflinkstate.api.row import (
    Row,
    RowKind,
)
from pyflinkstate.api.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
    TypeSerializer,
)
from pyflinkstate.api.time import (
    Duration,
    Instant,
    Time,
    TimestampAssigner,
    WatermarkStrategy,
)
from pyflinkstate.api.types import (
    TypeInformation,
    Types,
)
from pyflinkstate.api.values import JobID
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
