"""The bytes of a checkpoint: its files, the handles that point into them, and its streams.

These are pure codecs: they open no files and read no clock.
"""

from pyflinkstate.backends.format.arrow_stream import END_OF_STREAM, schema_message
from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.format.operator_file import (
    OPERATOR_FILE_MAGIC,
    OperatorStateCodec,
    decode_metas,
    encode_metas,
    float_type_of,
)
from pyflinkstate.backends.format.paths import (
    SHARED_PREFIX,
    is_file_name,
    is_job_id,
    is_state_path,
    state_file_name,
    written_at,
    written_by,
)
from pyflinkstate.backends.format.section_checks import SectionChecks
from pyflinkstate.backends.format.section_reader import read_head, read_section, read_sections
from pyflinkstate.backends.format.section_writer import SectionWriter, write_file
from pyflinkstate.backends.format.state_entries import KeyedStateSnapshot, KeyGroupEntries
from pyflinkstate.backends.format.state_file import (
    STATE_FILE_MAGIC,
    StateCodec,
    StateFileHead,
)
from pyflinkstate.backends.format.state_handles import (
    RAW_KEYED_STATE,
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
    StateAssignment,
    StreamStateHandle,
)
from pyflinkstate.backends.format.streams import CheckpointStreamFactory, StateReader

__all__ = [
    "END_OF_STREAM",
    "OPERATOR_FILE_MAGIC",
    "RAW_KEYED_STATE",
    "SHARED_PREFIX",
    "STATE_FILE_MAGIC",
    "ByteStreamStateHandle",
    "CheckpointMetadata",
    "CheckpointStreamFactory",
    "FileStateHandle",
    "KeyGroupEntries",
    "KeyGroupsStateHandle",
    "KeyedStateSnapshot",
    "OperatorState",
    "OperatorStateCodec",
    "OperatorStateEntry",
    "OperatorStateHandle",
    "OperatorSubtaskState",
    "RawOperatorStateHandle",
    "Section",
    "SectionChecks",
    "SectionWriter",
    "StateAssignment",
    "StateCodec",
    "StateFileHead",
    "StateReader",
    "StreamStateHandle",
    "decode_metas",
    "encode_metas",
    "float_type_of",
    "is_file_name",
    "is_job_id",
    "is_state_path",
    "read_head",
    "read_section",
    "read_sections",
    "schema_message",
    "state_file_name",
    "write_file",
    "written_at",
    "written_by",
]
