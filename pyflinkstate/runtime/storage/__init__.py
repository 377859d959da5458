"""Checkpoint storage: URIs, file systems, the folders of a job, and writes that survive a power cut."""

from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders, history_of, load_checkpoint
from pyflinkstate.runtime.storage.durable import OBJECT_STORES, flush_file, flush_folder, make_folder
from pyflinkstate.runtime.storage.own_folders import ForeignFileError, below, is_local, read_note
from pyflinkstate.runtime.storage.refusals import reason_of
from pyflinkstate.runtime.storage.runs import RunHistory, is_run_id, newest_run, run_id_after
from pyflinkstate.runtime.storage.settings import (
    INLINE_THRESHOLD_BYTES,
    WRITE_BUFFER_BYTES,
    FileSystemCheckpointStorage,
    JobManagerCheckpointStorage,
)
from pyflinkstate.runtime.storage.streams import METADATA, CheckpointFolder, open_folder
from pyflinkstate.runtime.storage.temporary import temporary_folder
from pyflinkstate.runtime.storage.uris import (
    AnyPath,
    absolute,
    check_spark_reaches,
    check_spark_reads,
    child_uri,
    is_uri,
    name_below,
    open_file_system,
    parent_uri,
    path_in_spark,
    path_text,
)

__all__ = [
    "INLINE_THRESHOLD_BYTES",
    "METADATA",
    "OBJECT_STORES",
    "WRITE_BUFFER_BYTES",
    "AnyPath",
    "CheckpointFolder",
    "CheckpointFolders",
    "FileSystemCheckpointStorage",
    "ForeignFileError",
    "JobManagerCheckpointStorage",
    "RunHistory",
    "absolute",
    "below",
    "check_spark_reaches",
    "check_spark_reads",
    "child_uri",
    "flush_file",
    "flush_folder",
    "history_of",
    "is_local",
    "is_run_id",
    "is_uri",
    "load_checkpoint",
    "make_folder",
    "name_below",
    "newest_run",
    "open_file_system",
    "open_folder",
    "parent_uri",
    "path_in_spark",
    "path_text",
    "read_note",
    "reason_of",
    "run_id_after",
    "temporary_folder",
]
