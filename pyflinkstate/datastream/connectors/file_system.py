"""PyFlink's ``pyflink.datastream.connectors.file_system``."""

from pyflinkstate.runtime.sinks import (
    BucketAssigner as BucketAssigner,
    FileCompactStrategy as FileCompactStrategy,
    FileSink as FileSink,
    OutputFileConfig as OutputFileConfig,
    RollingPolicy as RollingPolicy,
)
from pyflinkstate.runtime.sources import (
    FileSource as FileSource,
    FileSourceBuilder as FileSourceBuilder,
    StreamFormat as StreamFormat,
)
