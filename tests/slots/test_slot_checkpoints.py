"""Checkpoints of real slot processes: taken at a barrier, restored into other slots."""

from __future__ import annotations

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count
from support_runtime import next_event, receive, tree
from support_slots import SLOT, Driver, collect, frames_for

from pyflinkstate.api.types import Types
from pyflinkstate.backends.format.state_handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    OperatorSubtaskState,
    StateAssignment,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import (
    CheckpointStorageError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
    SlotMemoryError,
    StaleSlotError,
)
from pyflinkstate.runtime.slots.control import SlotLost
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.messages import (
    AbortCheckpoint,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    EpochAccepted,
    SlotId,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

JOB = "a" * 32
TIMESTAMP_MS = 1_700_000_000_000
KEYS = [f"key-{n % 40}" for n in range(100)]
RECORDS = [(key, 0) for key in KEYS]
NOISE = os.urandom(2_000)


def barrier(storage: CheckpointFolders, checkpoint_id: int = 1) -> CheckpointTrigger:
    return CheckpointTrigger(checkpoint_id, TIMESTAMP_MS, storage.begin(JOB, checkpoint_id))


def start_restored(driver: Driver, storage: CheckpointFolders, made: CheckpointAck, **changes: Any) -> Any:
    settings = {
        "epoch": 1,
        "attempt": 0,
        "storage": storage.settings,
        "restored_checkpoint_id": made.checkpoint_id,
        "restore_uri": storage.uri_of(JOB, 1),
        "state": StateAssignment(managed_keyed=(made.state.managed_keyed,)),
        **changes,
    }
    return driver.start_slot(Count(), **settings)


@pytest.mark.parametrize(
    ("padding", "kind"), [(b"", ByteStreamStateHandle), (NOISE, FileStateHandle)], ids=["inline", "file"]
)
def test_a_checkpoint_restores_into_slots_of_other_key_group_ranges(
    driver: Driver, storage: CheckpointFolders, padding: bytes, kind: type
) -> None:
    slot = driver.start_slot(Count(padding), storage=storage.settings)
    slot.feed(1, RECORDS, barrier=barrier(storage))
    slot.feed(2, RECORDS)  # what comes after the barrier is not in the checkpoint
    made = next_event(driver.events, CheckpointAck)
    assert (made.checkpoint_id, made.slot) == (1, SLOT)
    assert made.sync_ms >= 0
    assert made.async_ms >= 0
    handle = made.state.managed_keyed
    assert made.state == OperatorSubtaskState(handle), "there is no state of another kind"
    assert handle.key_group_range == KeyGroupRange(0, 127)
    assert type(handle.stream) is kind
    assert len(tree(Path(storage.uri_of(JOB, 1)))) == (kind is FileStateHandle)

    results = []
    for subtask, frames in enumerate(frames_for(RECORDS[:40], parallelism=2)):
        restored = start_restored(driver, storage, made, slot=SlotId("restored", subtask), parallelism=2)
        with pytest.raises(StaleSlotError, match="at version 1"):
            restored.feed(1, [])
        results += collect(restored.run(2, frames))[0]
    counts = Counter(KEYS)
    assert dict(results) == {key: counts[key] + 1 for key in counts}


def test_a_slot_that_cannot_write_declines_and_goes_on(driver: Driver, storage: CheckpointFolders) -> None:
    slot = driver.start_slot(Count(NOISE), storage=storage.settings)
    storage.begin(JOB, 1)
    in_the_way = Path(storage.uri_of(JOB, 1)) / "file"
    in_the_way.write_text("in the way")
    slot.feed(1, RECORDS, barrier=CheckpointTrigger(1, TIMESTAMP_MS, f"{in_the_way}/chk-1"))
    declined = next_event(driver.events, CheckpointDecline)
    assert (declined.checkpoint_id, declined.slot) == (1, SLOT)
    assert isinstance(declined.error, CheckpointStorageError)
    assert "operator 'count'" in str(declined.error)
    assert "checkpoint 1" in str(declined.error)
    slot.feed(2, RECORDS, barrier=barrier(storage, 2))
    assert next_event(driver.events, CheckpointAck).checkpoint_id == 2


def test_aborting_what_is_not_being_written_changes_nothing(
    driver: Driver, storage: CheckpointFolders
) -> None:
    slot = driver.start_slot(Count(), storage=storage.settings)
    driver.registry.send(SLOT, AbortCheckpoint(1))
    slot.feed(1, RECORDS, barrier=barrier(storage))
    assert next_event(driver.events, CheckpointAck).checkpoint_id == 1
    driver.registry.send(SLOT, AbortCheckpoint(1))
    assert slot.feed(2, RECORDS)[1].records_in == len(RECORDS)


def test_an_epoch_that_fails_takes_no_checkpoint(driver: Driver, storage: CheckpointFolders) -> None:
    slot = driver.start_slot(Count(), storage=storage.settings)
    with slot.connect() as task:
        task.send(slot.begin(1, barrier(storage)))
        assert receive(task) == EpochAccepted()
        task.send_bytes(frames_for(RECORDS)[0][0])
        task.recv_bytes()
    driver.registry.close(20)
    assert driver.events.empty()
    assert tree(Path(storage.uri_of(JOB, 1))) == {}


def test_state_of_a_checkpoint_is_restored_by_each_slot_that_asks(
    driver: Driver, storage: CheckpointFolders
) -> None:
    slot = driver.start_slot(Count(), storage=storage.settings)
    slot.feed(1, [("a", 0)], barrier=barrier(storage))
    made = next_event(driver.events, CheckpointAck)
    again = start_restored(driver, storage, made, slot=SlotId("again", 0))
    again.feed(2, [("a", 0)], barrier=barrier(storage, 2))
    second = next_event(driver.events, CheckpointAck)
    last = start_restored(
        driver, storage, second, slot=SlotId("last", 0), epoch=2, restore_uri=storage.uri_of(JOB, 2)
    )
    assert last.feed(3, [("a", 0), ("b", 0)])[0] == [("a", 3), ("b", 1)]


def test_a_slot_whose_memory_does_not_hold_the_restored_state_fails(
    driver: Driver, storage: CheckpointFolders
) -> None:
    slot = driver.start_slot(Count(), storage=storage.settings)
    slot.feed(1, RECORDS, barrier=barrier(storage))
    made = next_event(driver.events, CheckpointAck)
    with suppress(SlotMemoryError):  # there is little to restore, so it may be ready before it looks
        start_restored(driver, storage, made, slot=SlotId("small", 0), memory_bytes=1)
    error = next_event(driver.events, SlotLost).error
    assert isinstance(error, SlotMemoryError)
    assert re.match(r"slot small\[0\] uses .*, and its limit is 0 MiB", str(error))


DAMAGES: dict[str, tuple[dict[str, Any], type, str]] = {
    "missing": ({}, CorruptCheckpointError, "is missing"),
    "another key type": ({"key_type": Types.STRING()}, IncompatibleCheckpointError, "keys of"),
    "another max parallelism": ({"max_parallelism": 256}, IncompatibleCheckpointError, "max parallelism 128"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_checkpoint_that_cannot_be_restored_is_an_error_where_the_slot_is_needed(
    driver: Driver, storage: CheckpointFolders, damage: str
) -> None:
    changes, error, text = DAMAGES[damage]
    slot = driver.start_slot(Count(NOISE), storage=storage.settings)
    slot.feed(1, RECORDS, barrier=barrier(storage))
    made = next_event(driver.events, CheckpointAck)
    file = made.state.managed_keyed.stream.path
    if damage == "missing":
        (Path(storage.uri_of(JOB, 1)) / file).unlink()
    with pytest.raises(error, match=text) as caught:
        start_restored(driver, storage, made, slot=SlotId("restored", 0), **changes)
    assert "operator 'count'" in str(caught.value)
    assert file in str(caught.value)


def test_a_restored_slot_without_state_of_its_own_is_empty(
    driver: Driver, storage: CheckpointFolders
) -> None:
    slot = driver.start_slot(Count(), storage=storage.settings)
    slot.feed(1, [("a", 0)], barrier=barrier(storage))  # "a" is in key group 81
    made = next_event(driver.events, CheckpointAck)
    lower = start_restored(driver, storage, made, slot=SlotId("restored", 0), parallelism=2)
    (frames, _) = frames_for([(f"key-{n}", 0) for n in range(20)], parallelism=2)
    results, _ = collect(lower.run(2, frames, barrier=barrier(storage, 2)))
    assert {number for _, number in results} == {1}
    handle = next_event(driver.events, CheckpointAck).state.managed_keyed
    assert handle.key_group_range == KeyGroupRange(0, 63)
    assert 81 not in handle.sections["count"]
    assert attrs.evolve(handle, sections={}) != handle
