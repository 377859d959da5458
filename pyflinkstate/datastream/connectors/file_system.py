"""PyFlink's ``pyflink.datastream.connectors.file_system``."""

from __future__ import annotations

from pyflinkstate.runtime.connectors import (
    FileSource,
    StreamFormat,
)
from pyflinkstate.runtime.file_sink import FileSink
from pyflinkstate.runtime.row_format import (
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
)

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
