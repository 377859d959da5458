"""What the golden ``_metadata`` files hold, by format version. Each was written once, when it was new:

    python tests/support/golden_metadata.py

Never write one again under the same name: a later release must read what an earlier one wrote. A new
format version gets a file of its own beside the others.
"""

from functools import partial
from pathlib import Path

import attrs

from pyflinkstate.backends.format import (
    RAW_KEYED_STATE,
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    NativeBase,
    NativeFile,
    NativeState,
    OperatorStateEntry,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    Section,
)
from pyflinkstate.backends.format.metadata import FIRST_KEY_HASH, VERSION, CheckpointMetadata, OperatorState
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types import OperatorStateMode

FOLDER = Path(__file__).parents[1] / "storage" / "golden"
GOLDEN = {version: FOLDER / f"metadata_v{version}" for version in (1, 2, 3, 4, 5)}

#: All of these were written when a handle did not say by which hash its keys are placed.
KeyedHandle = partial(KeyGroupsStateHandle, key_hash_version=FIRST_KEY_HASH)

FILE = FileStateHandle("9f86d081884c7d659a2feaa0c55ad015", 1_048_576)
INLINE = ByteStreamStateHandle(bytes(range(256)))

LOWER = KeyedHandle(
    KeyGroupRange(0, 63),
    FILE,
    {"total": {0: Section(17, 300, 4_294_967_295), 63: Section(317, 5, 0)}, "empty": {}},
)
UPPER = KeyedHandle(KeyGroupRange(64, 127), INLINE, {})

#: Version 1 knew managed keyed state alone.
V1 = CheckpointMetadata(
    checkpoint_id=42,
    job_id="0123456789abcdef0123456789abcdef",
    job_name="spend per käufer \U0001f600",
    epoch=40,
    source_position={"last": "2011-12-09.csv", "format": "csv"},
    counters={"files.records_out": 541_909, "filter.records_dropped": 0},
    timestamp_ms=1_700_000_000_123,
    operators=(
        OperatorState("spend", 2, 128, (OperatorSubtaskState(LOWER), OperatorSubtaskState(UPPER))),
        OperatorState("without state", 1, 32_768, ()),
    ),
)

RAW_KEYED = KeyedHandle(
    KeyGroupRange(0, 63), INLINE, {RAW_KEYED_STATE: {7: Section(0, 0, 0), 8: Section(0, 256, 688_229_491)}}
)
MANAGED_OPERATOR = OperatorStateHandle(
    FILE,
    {
        "läufe": OperatorStateEntry(OperatorStateMode.SPLIT_DISTRIBUTE, Section(99, 1_000, 1), 3),
        "all": OperatorStateEntry(OperatorStateMode.UNION, Section(1_099, 1, 2), 0),
        "rules": OperatorStateEntry(OperatorStateMode.BROADCAST, Section(1_100, 2_000, 3), 70_000),
    },
)
RAW_OPERATOR = RawOperatorStateHandle(INLINE, (Section(0, 256, 688_229_491), Section(256, 0, 0)))

#: One subtask with all four kinds, one with one, one with none.
V2 = attrs.evolve(
    V1,
    operators=(
        OperatorState(
            "spend",
            3,
            128,
            (
                OperatorSubtaskState(LOWER, RAW_KEYED, MANAGED_OPERATOR, RAW_OPERATOR),
                OperatorSubtaskState(raw_operator=RawOperatorStateHandle(FILE, ())),
                OperatorSubtaskState(),
            ),
        ),
        OperatorState("without state", 1, 32_768, ()),
    ),
)

OLDER = FileStateHandle("../shared/2c26b46b68ffc68ff99b453c1d304134", 70_000_000_000)
NEWER = FileStateHandle("../shared/fcde2b2edba56bf408601fb721fe9b5c", 4_096)

#: Written at checkpoint 30, with what changed up to 40, inlined, and up to 42. Both lack a state.
CHAIN = KeyedHandle(
    KeyGroupRange(0, 63),
    OLDER,
    {"total": {0: Section(17, 2**33, 4_294_967_295)}},
    (
        KeyedHandle(KeyGroupRange(0, 63), INLINE, {"total": {7: Section(0, 1, 2)}}, (), 40),
        KeyedHandle(KeyGroupRange(0, 63), NEWER, {"total": {}, "läufe": {63: Section(9, 8, 7)}}, (), 42),
    ),
    30,
)

#: What of keyed state is incremental: one subtask with a chain, one with a file of its own checkpoint.
V3 = attrs.evolve(
    V2,
    operators=(
        OperatorState(
            "spend",
            3,
            128,
            (
                OperatorSubtaskState(CHAIN, RAW_KEYED, MANAGED_OPERATOR, RAW_OPERATOR),
                OperatorSubtaskState(attrs.evolve(UPPER, checkpoint_id=42)),
                OperatorSubtaskState(LOWER),
            ),
        ),
        OperatorState("without state", 1, 32_768, ()),
    ),
)

#: Event time is known, of an assigner and of an operator.
V4 = attrs.evolve(V3, watermarks={"watermarks-1": 1_700_000_000_122, "spend": -1})

#: A chain whose base is files of RocksDB, one of which an earlier checkpoint has written.
NATIVE = NativeBase(
    (
        NativeFile("000012.sst", OLDER, 4_294_967_295),
        NativeFile("CURRENT", ByteStreamStateHandle(b"MANIFEST-000005\n"), 1),
        NativeFile("MANIFEST-000005", NEWER, 0),
    ),
    {"total": NativeState(1, {0: 2**40, 63: 1}), "läufe": NativeState(4_294_967_295, {})},
)
V5 = attrs.evolve(
    V4,
    operators=(OperatorState("spend", 1, 128, (OperatorSubtaskState(attrs.evolve(CHAIN, native=NATIVE)),)),),
)

METADATA = {1: V1, 2: V2, 3: V3, 4: V4, 5: V5}

if __name__ == "__main__":
    GOLDEN[VERSION].write_bytes(METADATA[VERSION].encode())
