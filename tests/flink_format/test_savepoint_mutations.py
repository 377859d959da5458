"""Savepoints of Flink that were damaged: an error of the project's own, or values, and little memory.

Flink's format has no checksums, so a changed number is read as another number. Each error names the file, the
operator or the state.
"""

from __future__ import annotations

import random

import pytest
from flink_savepoints import EVERY, FOLDERS, damaged, damaging_rounds, keyed_files, load, reader_of
from tiers import cases

from pyflinkstate.backends.flink_format import (
    Savepoint,
    kafka_offsets,
    read_metadata,
    read_operator_state,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import CheckpointError, CorruptCheckpointError

pytestmark = [
    pytest.mark.skipif(not FOLDERS, reason="there are no golden savepoints"),
    pytest.mark.usefixtures("nothing_unpickled"),
]


def read_all(files: dict[str, bytes]) -> int:
    """Read everything in a savepoint; return how many entries there are."""
    savepoint = read_metadata(files["_metadata"], "_metadata")
    return _keyed_entries(files, savepoint) + _operator_entries(files, savepoint)


def _keyed_entries(files: dict[str, bytes], savepoint: Savepoint) -> int:
    every = KeyGroupRange(0, (1 << 15) - 1)
    return sum(
        len(entries) for _, file in keyed_files(files, savepoint) for _, entries in file.key_groups(every)
    )


def _operator_entries(files: dict[str, bytes], savepoint: Savepoint) -> int:
    handles = [
        subtask.operator_state
        for operator in savepoint.operators
        for subtask in operator.subtasks.values()
        if subtask.operator_state is not None
    ]
    return sum(
        len(state.columns[0])
        for handle in handles
        for state in read_operator_state(handle, reader_of(handle.stream, files), "operator state")
    )


def is_clear(error: Exception) -> bool:
    return isinstance(error, CheckpointError) and "file" in error.context


def rounds(name: str, seeds: range) -> int:
    return damaging_rounds(load(EVERY[name]), seeds, read_all, is_clear)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("block", cases(range(20), quick=[0]))
def test_damage_is_found_or_gives_values(name: str, block: int) -> None:
    assert rounds(name, range(100 * block, 100 * (block + 1))) > 20


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_20_000_mutations() -> None:
    for number, name in enumerate(EVERY):
        first = 10_000 + number * 2_000
        assert rounds(name, range(first, first + 2_000)) > 400


def test_damaged_splits_of_a_source_are_found_or_are_other_splits() -> None:
    split = bytes.fromhex("00000000 0000001c 0006 636c69636b73 00000001 0000000000000002 8000000000000000")
    assert kafka_offsets([split]) == {("clicks", 1): 2}
    found = 0
    for number in range(1000):
        try:
            kafka_offsets([damaged(split, random.Random(number))])
        except CheckpointError as error:
            found += "SourceReaderState" in str(error)
    assert found > 300


@pytest.mark.parametrize("name", FOLDERS)
def test_every_shorter_metadata_is_an_error(name: str) -> None:
    """Only what Java serialized at the end of it is not read."""
    data = load(FOLDERS[name])["_metadata"]
    for size in range(0, len(data) - 1000, 97):
        with pytest.raises(CorruptCheckpointError, match=r"^_metadata: .*at byte"):
            read_metadata(data[:size], "_metadata")
