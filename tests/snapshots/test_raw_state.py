"""Raw state: what may be written where, and that every byte comes back to whom it belongs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from operator_support import HookedStreams, finish
from pyarrow import fs

from pyflinkstate.backends.format import MemoryCheckpoint
from pyflinkstate.backends.format.metadata import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
)
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.operator_state import assign_state
from pyflinkstate.backends.snapshots import (
    RawKeyedStateBuffer,
    RawOperatorStateBuffer,
    SnapshotCancelledError,
    SnapshotTask,
    read_raw_keyed_state,
    read_raw_operator_state,
)
from pyflinkstate.errors import CheckpointError, CorruptCheckpointError
from pyflinkstate.runtime.storage.streams import CheckpointFolder

OWN = KeyGroupRange(4, 7)


def write(snapshot: Any, streams: Any = None) -> Any:
    """Write a snapshot and return its handle."""
    return finish(
        SnapshotTask(lambda cancelled: snapshot.write(streams or MemoryCheckpoint(), cancelled), lambda: None)
    )


def keyed(content: dict[int, bytes], own: KeyGroupRange = OWN) -> RawKeyedStateBuffer:
    buffer = RawKeyedStateBuffer(own)
    for key_group, data in content.items():
        buffer.start_new_key_group(key_group)
        buffer.write(data)
    return buffer


def partitioned(*partitions: bytes) -> RawOperatorStateBuffer:
    buffer = RawOperatorStateBuffer()
    for data in partitions:
        buffer.start_new_partition()
        buffer.write(data)
    return buffer


def read_keyed(*handles: KeyGroupsStateHandle, own: KeyGroupRange = OWN, reader: Any = None) -> Any:
    return list(read_raw_keyed_state(handles, own, reader or MemoryCheckpoint()))


def read_operator(*handles: RawOperatorStateHandle, reader: Any = None) -> list[bytes]:
    return list(read_raw_operator_state(handles, reader or MemoryCheckpoint()))


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    """Storage that keeps nothing inline."""
    return CheckpointFolder(fs.LocalFileSystem(), str(tmp_path), 0, 0)


# --- raw keyed state -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key_group", "reason"),
    [(group, "is not in .* range") for group in (3, 8, -1, 128)] + [(5, "was started before")],
)
def test_a_key_group_of_another_subtask_and_one_that_was_begun_are_refused(
    key_group: int, reason: str
) -> None:
    buffer = keyed({5: b"five", 6: b"six"})
    with pytest.raises(CheckpointError, match=f"raw keyed state: key group {key_group} {reason}"):
        buffer.start_new_key_group(key_group)
    assert dict(read_keyed(write(buffer.snapshot()))) == {5: b"five", 6: b"six"}


def test_nothing_can_be_written_before_the_first_key_group() -> None:
    buffer = RawKeyedStateBuffer(OWN)
    with pytest.raises(CheckpointError, match=r"call start_new_key_group\(\) before write\(\)"):
        buffer.write(b"lost")
    assert write(buffer.snapshot()) is None


# --- raw operator state ----------------------------------------------------------------------------


def test_the_first_partition_begins_by_itself() -> None:
    buffer = RawOperatorStateBuffer()
    buffer.write(b"a")
    buffer.write(b"b")
    buffer.start_new_partition()
    buffer.write(b"c")
    assert read_operator(write(buffer.snapshot())) == [b"ab", b"c"]


# --- both ------------------------------------------------------------------------------------------

EMPTY = {
    "keyed": RawKeyedStateBuffer(OWN).snapshot(),
    "operator": RawOperatorStateBuffer().snapshot(),
}
FULL = {
    "keyed": keyed({4: b"aaaa", 5: b"bbbb"}).snapshot(),
    "operator": partitioned(b"aaaa", b"bbbb").snapshot(),
}
READ: dict[str, Callable[..., Any]] = {"keyed": read_keyed, "operator": read_operator}

both = pytest.mark.parametrize("kind", FULL)


@both
def test_where_nothing_was_written_there_is_no_handle_and_no_stream(kind: str) -> None:
    assert write(EMPTY[kind], streams=object()) is None


@both
def test_the_array_that_was_written_may_be_used_again(kind: str) -> None:
    data = bytearray(b"first")
    buffer = keyed({5: data}) if kind == "keyed" else partitioned(data)  # type: ignore[arg-type]
    data[:] = b"again"
    snapshot = buffer.snapshot()
    assert b"first" in write(snapshot).stream.data


@both
def test_bytes_that_were_altered_are_a_corrupt_checkpoint(kind: str) -> None:
    handle = write(FULL[kind])
    for position in range(handle.stream.size_bytes):
        data = bytearray(handle.stream.data)
        data[position] ^= 1
        damaged = attrs.evolve(handle, stream=ByteStreamStateHandle(bytes(data)))
        with pytest.raises(CorruptCheckpointError, match="raw state, is damaged"):
            READ[kind](damaged)


@both
def test_a_file_that_is_missing_or_cut_short_is_a_corrupt_checkpoint(
    kind: str, folder: CheckpointFolder
) -> None:
    handle = write(FULL[kind], folder)
    assert isinstance(handle.stream, FileStateHandle)
    file = Path(folder.folder) / handle.stream.path
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(CorruptCheckpointError, match="truncated"):
        READ[kind](handle, reader=folder)
    file.unlink()
    with pytest.raises(CorruptCheckpointError, match="missing"):
        READ[kind](handle, reader=folder)


@both
@pytest.mark.parametrize("last", [1, 2])
def test_a_cancelled_snapshot_is_written_no_further_and_leaves_no_file(
    kind: str, folder: CheckpointFolder, last: int
) -> None:
    cancelled = threading.Event()
    streams = HookedStreams(folder, lambda number: cancelled.set() if number == last else None)
    with pytest.raises(SnapshotCancelledError):
        FULL[kind].write(streams, cancelled)
    assert streams.writes == last
    assert list(Path(folder.folder).iterdir()) == []


CONTENT = st.dictionaries(st.integers(0, 127), st.binary(max_size=20), max_size=20)


@given(CONTENT, st.lists(st.binary(max_size=20), max_size=8))
def test_over_many_changes_of_parallelism_every_byte_stays_with_its_key_group_or_partition(
    content: dict[int, bytes], partitions: list[bytes]
) -> None:
    subtasks = [
        OperatorSubtaskState(
            raw_keyed=write(keyed(content, KeyGroupRange(0, 127)).snapshot()),
            raw_operator=write(partitioned(*partitions).snapshot()),
        )
    ]
    for parallelism in (1, 3, 2, 4, 4, 1):
        found: dict[int, bytes] = {}
        dealt: list[bytes] = []
        written = []
        for index, assignment in enumerate(assign_state(subtasks, parallelism, 128)):
            own = key_group_range(128, parallelism, index)
            mine = read_keyed(*assignment.raw_keyed, own=own)
            assert {group for group, _ in mine} <= set(own)
            assert not found.keys() & dict(mine).keys()
            found.update(mine)
            dealt += (share := read_operator(*assignment.raw_operator))
            written.append(
                OperatorSubtaskState(
                    raw_keyed=write(keyed(dict(mine), own).snapshot()),
                    raw_operator=write(partitioned(*share).snapshot()),
                )
            )
        assert found == content
        assert sorted(dealt) == sorted(partitions)
        subtasks = written
