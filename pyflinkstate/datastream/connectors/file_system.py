"""PyFlink's ``pyflink.datastream.connectors.file_system``."""

from __future__ import annotations

from pyflinkstate.runtime.sinks import BucketAssigner, FileSink, OutputFileConfig, RollingPolicy
from pyflinkstate.runtime.sources import FileSource, FileSourceBuilder, StreamFormat

__all__ = [
    "BucketAssigner",
    "FileSink",
    "FileSource",
    "FileSourceBuilder",
    "OutputFileConfig",
    "RollingPolicy",
    "StreamFormat",
]
