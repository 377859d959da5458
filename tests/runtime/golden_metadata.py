"""What the golden ``_metadata`` holds. It was written once, by release 0.1.0:

    python tests/runtime/golden_metadata.py

Never write it again under the same name: a later release must read what an earlier one wrote. A new
format version gets a file of its own beside it.
"""

from pathlib import Path

from pyflinkstate.backends.format.metadata import CheckpointMetadata, OperatorState
from pyflinkstate.backends.key_groups import KeyGroupRange
from pyflinkstate.backends.state_handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    Section,
)

GOLDEN = Path(__file__).parent / "golden" / "metadata_v1"

METADATA = CheckpointMetadata(
    checkpoint_id=42,
    job_id="0123456789abcdef0123456789abcdef",
    job_name="spend per käufer \U0001f600",
    epoch=40,
    source_position={"last": "2011-12-09.csv", "format": "csv"},
    counters={"files.records_out": 541_909, "filter.records_dropped": 0},
    timestamp_ms=1_700_000_000_123,
    operators=(
        OperatorState(
            "spend",
            2,
            128,
            (
                KeyGroupsStateHandle(
                    KeyGroupRange(0, 63),
                    FileStateHandle("9f86d081884c7d659a2feaa0c55ad015", 1_048_576),
                    {"total": {0: Section(17, 300, 4_294_967_295), 63: Section(317, 5, 0)}, "empty": {}},
                ),
                KeyGroupsStateHandle(KeyGroupRange(64, 127), ByteStreamStateHandle(bytes(range(256))), {}),
            ),
        ),
        OperatorState("without state", 1, 32_768, ()),
    ),
)

if __name__ == "__main__":
    GOLDEN.write_bytes(METADATA.encode())
