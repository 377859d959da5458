"""Operator state in real slot processes: taken at a barrier, dealt to other slots, and what declines it."""

from __future__ import annotations

from typing import Any

import pytest
from slot_functions import Ledger
from support_runtime import next_event
from support_slots import SLOT, Driver, collect, frames_for

from pyflinkstate.backends.format.state_handles import StateAssignment
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.backends.operator_state.repartition import assign_state
from pyflinkstate.errors import StateValueError, UserFunctionError
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire.messages import CheckpointAck, CheckpointDecline, CheckpointTrigger, SlotId

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]

JOB = "a" * 32
TIMESTAMP = b"1700000000000"
KEYS = [f"key-{number}" for number in range(10)]


def barrier(storage: CheckpointFolders, checkpoint_id: int = 1) -> CheckpointTrigger:
    return CheckpointTrigger(checkpoint_id, int(TIMESTAMP), storage.begin(JOB, checkpoint_id))


@pytest.mark.parametrize("async_snapshots", [True, False])
def test_operator_state_of_one_slot_is_dealt_to_two(
    driver: Driver, storage: CheckpointFolders, async_snapshots: bool
) -> None:
    settings: dict[str, Any] = {
        "storage": storage.settings,
        "state_backend": HashMapStateBackend(async_snapshots=async_snapshots),
    }
    slot = driver.start_slot(Ledger(), **settings)
    results, _ = slot.feed(1, [(key, 0) for key in KEYS], barrier=barrier(storage))
    assert results[-1] == (None, [], KEYS)
    slot.feed(2, [("late", 0)])
    made = next_event(driver.events, CheckpointAck)

    found: list[str] = []
    timestamps: list[bytes] = []
    frames = frames_for([(key, 0) for key in KEYS], parallelism=2)
    for subtask, assignment in enumerate(assign_state([made.state], 2, 128)):
        restored = driver.start_slot(
            Ledger(),
            SlotId("restored", subtask),
            parallelism=2,
            epoch=1,
            restored_checkpoint_id=made.checkpoint_id,
            restore_uri=storage.uri_of(JOB, 1),
            state=assignment,
            **settings,
        )
        (first, *_), _ = collect(restored.run(2, frames[subtask]))
        assert first[0] == made.checkpoint_id
        timestamps += first[1]
        found += first[2][:-1]  # the last one is the record's own
    assert found == KEYS
    assert timestamps == [TIMESTAMP]


def test_a_slot_restored_from_a_checkpoint_without_state_for_it_is_told_of_the_restore(
    driver: Driver, storage: CheckpointFolders
) -> None:
    slot = driver.start_slot(
        Ledger(),
        epoch=3,
        restored_checkpoint_id=7,
        restore_uri=str(storage.uri),
        state=StateAssignment(),
    )
    assert slot.feed(4, [("a", 0)])[0] == [(7, [], ["a"])]


TROUBLES: dict[str, tuple[type[Exception], str]] = {
    "raise": (UserFunctionError, r"the ledger is full[\s\S]*in snapshot_state\(\)"),
    "exit": (UserFunctionError, r"SystemExit: 1[\s\S]*in snapshot_state\(\)"),
    "cannot be pickled": (StateValueError, "cannot be stored"),
    "cannot be copied": (Exception, "lock"),
    "exits when copied": (UserFunctionError, "SystemExit: 2"),
    "exits when pickled": (UserFunctionError, "SystemExit: 3"),
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_snapshot_that_fails_declines_the_checkpoint_and_the_slot_goes_on(
    driver: Driver, storage: CheckpointFolders, trouble: str
) -> None:
    kind, text = TROUBLES[trouble]
    slot = driver.start_slot(Ledger(trouble), storage=storage.settings)
    _, done = slot.feed(1, [("a", 0)], barrier=barrier(storage))
    assert done.records_in == 1
    declined = next_event(driver.events, CheckpointDecline)
    assert (declined.checkpoint_id, declined.slot) == (1, SLOT)
    with pytest.raises(kind, match=text):
        raise declined.error
    assert "operator 'count'" in str(declined.error)
    assert slot.feed(2, [("b", 0)], barrier=barrier(storage, 2))[0] == [(None, [], ["a", "b"])]
    assert next_event(driver.events, CheckpointAck).checkpoint_id == 2


def test_a_function_that_fails_to_initialize_its_state_is_an_error_where_the_slot_is_needed(
    driver: Driver,
) -> None:
    with pytest.raises(UserFunctionError, match="the ledger is locked"):
        driver.start_slot(Ledger("initialize"))
