"""Sources, where records come from: collections, files, RDDs, DataFrames, streaming queries."""

from pyflinkstate.runtime.sources.cached_source import CachedRecords, CachedSource
from pyflinkstate.runtime.sources.connectors import (
    FileSource,
    FileSourceBuilder,
    NumberSequenceSource,
    StreamFormat,
    type_of_source,
)
from pyflinkstate.runtime.sources.formats import FORMATS, Reject, RejectedRecord
from pyflinkstate.runtime.sources.guarded_source import GuardedSource
from pyflinkstate.runtime.sources.initial_rows import InitialRows, SeededSource
from pyflinkstate.runtime.sources.query_log import QueryLog
from pyflinkstate.runtime.sources.source_set import SourceSet, key_of_place, key_of_uid
from pyflinkstate.runtime.sources.sources import (
    RECORDS_PER_EPOCH,
    Available,
    CollectionSource,
    DirectorySource,
    Epoch,
    EpochSet,
    RateSource,
    RddEpoch,
    RddSource,
    ReadBatches,
    Source,
    SplitEpoch,
    check_position,
)
from pyflinkstate.runtime.sources.spark_sources import BatchReaderSource, PartitionOffsets, StreamingSource

__all__ = [
    "FORMATS",
    "RECORDS_PER_EPOCH",
    "Available",
    "BatchReaderSource",
    "CachedRecords",
    "CachedSource",
    "CollectionSource",
    "DirectorySource",
    "Epoch",
    "EpochSet",
    "FileSource",
    "FileSourceBuilder",
    "GuardedSource",
    "InitialRows",
    "NumberSequenceSource",
    "PartitionOffsets",
    "QueryLog",
    "RateSource",
    "RddEpoch",
    "RddSource",
    "ReadBatches",
    "Reject",
    "RejectedRecord",
    "SeededSource",
    "Source",
    "SourceSet",
    "SplitEpoch",
    "StreamFormat",
    "StreamingSource",
    "check_position",
    "key_of_place",
    "key_of_uid",
    "type_of_source",
]
