"""Checkpoint storage: URIs, file systems, the folders of a job, and writes that survive a power cut."""

from pyflinkstate.runtime.storage.checkpoints import (
    MOST_ASIDE_MS as MOST_ASIDE_MS,
    CheckpointFolders as CheckpointFolders,
    history_of as history_of,
    is_flink_savepoint as is_flink_savepoint,
    load_checkpoint as load_checkpoint,
)
from pyflinkstate.runtime.storage.file_systems import (
    OBJECT_STORES as OBJECT_STORES,
    AnyPath as AnyPath,
    ForeignFileError as ForeignFileError,
    absolute as absolute,
    below as below,
    check_spark_reaches as check_spark_reaches,
    check_spark_reads as check_spark_reads,
    child_uri as child_uri,
    flush_file as flush_file,
    flush_folder as flush_folder,
    is_local as is_local,
    is_uri as is_uri,
    make_folder as make_folder,
    name_below as name_below,
    open_file_system as open_file_system,
    parent_uri as parent_uri,
    path_in_spark as path_in_spark,
    path_text as path_text,
    read_note as read_note,
    reason_of as reason_of,
    split_options as split_options,
    temporary_folder as temporary_folder,
    write_whole as write_whole,
)
from pyflinkstate.runtime.storage.runs import (
    RunHistory as RunHistory,
    TakenOver as TakenOver,
    is_run_id as is_run_id,
    newest_run as newest_run,
    run_id_after as run_id_after,
    sorted_runs as sorted_runs,
)
from pyflinkstate.runtime.storage.streams import (
    INLINE_THRESHOLD_BYTES as INLINE_THRESHOLD_BYTES,
    METADATA as METADATA,
    WRITE_BUFFER_BYTES as WRITE_BUFFER_BYTES,
    CheckpointFolder as CheckpointFolder,
    FileSystemCheckpointStorage as FileSystemCheckpointStorage,
    JobManagerCheckpointStorage as JobManagerCheckpointStorage,
    open_folder as open_folder,
)
