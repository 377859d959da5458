"""Sources, where records come from: collections, files, RDDs, DataFrames, streaming queries."""

from pyflinkstate.runtime.sources.formats import (
    FORMATS as FORMATS,
    OnMalformed as OnMalformed,
    Reject as Reject,
    RejectedRecord as RejectedRecord,
)
from pyflinkstate.runtime.sources.source_set import (
    GuardedSource as GuardedSource,
    InitialRows as InitialRows,
    SeededSource as SeededSource,
    SourceSet as SourceSet,
    key_of_place as key_of_place,
    key_of_uid as key_of_uid,
)
from pyflinkstate.runtime.sources.sources import (
    RECORDS_PER_EPOCH as RECORDS_PER_EPOCH,
    Available as Available,
    CachedRecords as CachedRecords,
    CachedSource as CachedSource,
    CollectionSource as CollectionSource,
    DirectorySource as DirectorySource,
    Epoch as Epoch,
    EpochSet as EpochSet,
    FileSource as FileSource,
    FileSourceBuilder as FileSourceBuilder,
    NumberSequenceSource as NumberSequenceSource,
    RateSource as RateSource,
    RddEpoch as RddEpoch,
    RddSource as RddSource,
    ReadBatches as ReadBatches,
    ReadLive as ReadLive,
    ReadTime as ReadTime,
    Source as Source,
    SplitEpoch as SplitEpoch,
    StreamFormat as StreamFormat,
    check_position as check_position,
    type_of_source as type_of_source,
)
from pyflinkstate.runtime.sources.spark_sources import (
    BatchReaderSource as BatchReaderSource,
    PartitionOffsets as PartitionOffsets,
    QueryLog as QueryLog,
    StreamingSource as StreamingSource,
)
