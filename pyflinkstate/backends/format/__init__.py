"""The bytes of a checkpoint: its files, the handles that point into them, and its streams.

These are pure codecs: they open no files and read no clock.
"""

from pyflinkstate.backends.format.arrow_rows import ArrowRows as ArrowRows
from pyflinkstate.backends.format.arrow_stream import (
    END_OF_STREAM as END_OF_STREAM,
    schema_message as schema_message,
)
from pyflinkstate.backends.format.framing import check_section as check_section
from pyflinkstate.backends.format.metadata import (
    FLINKS_MAGIC as FLINKS_MAGIC,
    RAW_KEYED_STATE as RAW_KEYED_STATE,
    SHARED_PREFIX as SHARED_PREFIX,
    ByteStreamStateHandle as ByteStreamStateHandle,
    CheckpointMetadata as CheckpointMetadata,
    FileStateHandle as FileStateHandle,
    KeyGroupsStateHandle as KeyGroupsStateHandle,
    NativeBase as NativeBase,
    NativeFile as NativeFile,
    NativeState as NativeState,
    OperatorState as OperatorState,
    OperatorStateEntry as OperatorStateEntry,
    OperatorStateHandle as OperatorStateHandle,
    OperatorSubtaskState as OperatorSubtaskState,
    RawOperatorStateHandle as RawOperatorStateHandle,
    Section as Section,
    StateAssignment as StateAssignment,
    StreamStateHandle as StreamStateHandle,
    is_file_name as is_file_name,
    is_job_id as is_job_id,
    is_native_name as is_native_name,
    is_state_path as is_state_path,
    state_file_name as state_file_name,
    written_at as written_at,
    written_by as written_by,
)
from pyflinkstate.backends.format.sections import (
    CheckpointStreamFactory as CheckpointStreamFactory,
    MemoryCheckpoint as MemoryCheckpoint,
    SectionWriter as SectionWriter,
    StateReader as StateReader,
    read_head as read_head,
    read_section as read_section,
    read_sections as read_sections,
    write_file as write_file,
)
from pyflinkstate.backends.format.state_file import (
    OPERATOR_FILE_MAGIC as OPERATOR_FILE_MAGIC,
    STATE_FILE_MAGIC as STATE_FILE_MAGIC,
    KeyedStateSnapshot as KeyedStateSnapshot,
    KeyGroupEntries as KeyGroupEntries,
    OperatorStateCodec as OperatorStateCodec,
    StateCodec as StateCodec,
    StateFileHead as StateFileHead,
    decode_metas as decode_metas,
    encode_metas as encode_metas,
    float_type_of as float_type_of,
)
