"""The checkpoint coordinator, transition by transition."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import attrs
import pytest
from support_runtime import ack, decline

from pyflinkstate.errors import CheckpointFailuresExceededError, RuntimeFailure
from pyflinkstate.runtime.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    CheckpointSettings,
    DiscardCheckpoint,
    FailJob,
    Instruction,
    WriteMetadata,
)
from pyflinkstate.runtime.messages import SlotId

A, B = SlotId("count", 0), SlotId("count", 1)
BROKEN = RuntimeFailure("broken")
TOLERANT = CheckpointSettings(interval_ms=100, timeout_ms=50, tolerable_failures=1_000)


def coordinator(**settings: int) -> CheckpointCoordinator:
    return CheckpointCoordinator(attrs.evolve(TOLERANT, **settings))


def picture(of: CheckpointCoordinator) -> bytes:
    """All that a coordinator knows, to be compared."""
    return pickle.dumps(vars(of))


def kinds(instructions: list[Instruction]) -> list[str]:
    return [type(instruction).__name__ for instruction in instructions]


# --- the states, and what every event does in them -------------------------------------------------


def idle() -> CheckpointCoordinator:
    """Nothing is pending; checkpoint 1 is completed, checkpoint 2 was declined."""
    made = coordinator()
    complete(made, made.trigger(0, 1, [A, B]), [A, B])
    made.trigger(10, 2, [A, B])
    made.decline(decline(2, A))
    return made


def triggered() -> CheckpointCoordinator:
    made = idle()
    assert made.trigger(20, 3, [A, B]) == 3
    return made


def half_acknowledged() -> CheckpointCoordinator:
    made = triggered()
    assert made.acknowledge(ack(3, A)) == []
    return made


def acknowledged() -> CheckpointCoordinator:
    made = half_acknowledged()
    assert made.acknowledge(ack(3, B)) == []
    return made


def aligned() -> CheckpointCoordinator:
    made = triggered()
    assert made.barrier_aligned(3, 30) == []
    return made


def aligned_and_half_acknowledged() -> CheckpointCoordinator:
    made = aligned()
    assert made.acknowledge(ack(3, A)) == []
    return made


def completing() -> CheckpointCoordinator:
    made = aligned_and_half_acknowledged()
    assert kinds(made.acknowledge(ack(3, B))) == ["WriteMetadata"]
    return made


def complete(made: CheckpointCoordinator, checkpoint_id: int, slots: list[SlotId]) -> list[Instruction]:
    """Lead a triggered checkpoint to its end."""
    made.barrier_aligned(checkpoint_id, 0)
    for slot in slots:
        made.acknowledge(ack(checkpoint_id, slot))
    return made.completed(checkpoint_id)


STATES = [triggered, half_acknowledged, acknowledged, aligned, aligned_and_half_acknowledged, completing]
Event = Callable[[CheckpointCoordinator], list[Instruction]]

EVENTS: dict[str, Event] = {
    "ack A": lambda c: c.acknowledge(ack(3, A)),
    "ack B": lambda c: c.acknowledge(ack(3, B)),
    "aligned": lambda c: c.barrier_aligned(3, 30),
    "decline": lambda c: c.decline(decline(3, A)),
    "early tick": lambda c: c.tick(79),
    "late tick": lambda c: c.tick(80),
    "not completed": lambda c: c.not_completed(3, BROKEN),
    "abort": lambda c: c.abort_pending(BROKEN),
}

#: state: what of each event, in the order of EVENTS: "" nothing, W write metadata, X abandon.
TABLE: dict[str, list[str]] = {
    "triggered": ["", "", "", "X", "", "", "X", "X"],
    "half_acknowledged": ["", "", "", "X", "", "", "X", "X"],
    "acknowledged": ["", "", "W", "X", "", "", "X", "X"],
    "aligned": ["", "", "", "X", "", "X", "X", "X"],
    "aligned_and_half_acknowledged": ["", "W", "", "X", "", "X", "X", "X"],
    "completing": ["", "", "", "X", "", "X", "X", "X"],
}


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_what_an_event_does_to_the_pending_checkpoint(
    state: Callable[[], CheckpointCoordinator], event: str
) -> None:
    made = state()
    instructions = EVENTS[event](made)
    expected = TABLE[state.__name__][list(EVENTS).index(event)]
    if expected == "":
        assert instructions == []
        assert made.pending is not None
    elif expected == "W":
        assert kinds(instructions) == ["WriteMetadata"]
        assert instructions[0].checkpoint is made.pending
        assert made.pending.missing == set()
        assert set(made.pending.acks) == {A, B}
    else:
        assert kinds(instructions) == ["AbandonCheckpoint"]
        assert instructions[0].checkpoint_id == 3
        assert made.pending is None
    assert made.last_id == 3


#: Events that say nothing new, are too late, or about what is unknown.
FOREIGN: dict[str, Event] = {
    "aligned, completed": lambda c: c.barrier_aligned(1, 40),
    "aligned, aborted": lambda c: c.barrier_aligned(2, 40),
    "aligned, unknown": lambda c: c.barrier_aligned(9, 40),
    "ack, completed": lambda c: c.acknowledge(ack(1, A)),
    "ack, of a stranger": lambda c: c.acknowledge(ack(1, SlotId("other", 0))),
    "decline, completed": lambda c: c.decline(decline(1, A)),
    "decline, aborted": lambda c: c.decline(decline(2, A)),
    "decline, unknown": lambda c: c.decline(decline(9, A)),
    "not completed, completed": lambda c: c.not_completed(1, BROKEN),
    "not completed, aborted": lambda c: c.not_completed(2, BROKEN),
}


@pytest.mark.parametrize("event", FOREIGN)
@pytest.mark.parametrize("state", [idle, *STATES], ids=lambda state: state.__name__)
def test_events_about_other_checkpoints_change_nothing(
    state: Callable[[], CheckpointCoordinator], event: str
) -> None:
    made = state()
    before = picture(made)
    assert FOREIGN[event](made) == []
    assert picture(made) == before


@pytest.mark.parametrize("checkpoint_id", [2, 9], ids=["aborted", "unknown"])
@pytest.mark.parametrize("state", [idle, *STATES], ids=lambda state: state.__name__)
def test_what_a_late_acknowledgement_points_at_is_deleted_and_nothing_else_happens(
    state: Callable[[], CheckpointCoordinator], checkpoint_id: int
) -> None:
    made = state()
    before = picture(made)
    assert made.acknowledge(ack(checkpoint_id, A)) == [DiscardCheckpoint(checkpoint_id)]
    assert picture(made) == before


def test_a_duplicate_acknowledgement_does_not_replace_the_first() -> None:
    made = half_acknowledged()
    made.acknowledge(ack(3, A, data=b"twice"))
    assert made.pending.acks[A] == ack(3, A)


def test_an_acknowledgement_of_a_subtask_that_was_not_asked_counts_nothing() -> None:
    made = aligned_and_half_acknowledged()
    before = picture(made)
    assert made.acknowledge(ack(3, SlotId("other", 1))) == []
    assert picture(made) == before


def test_a_second_alignment_does_not_put_the_timeout_off() -> None:
    made = aligned()
    made.barrier_aligned(3, 60)
    assert kinds(made.tick(80)) == ["AbandonCheckpoint"]


@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_triggering_while_one_is_pending_is_refused_and_changes_nothing(
    state: Callable[[], CheckpointCoordinator],
) -> None:
    made = state()
    before = picture(made)
    with pytest.raises(AssertionError, match="checkpoint 3 is under way"):
        made.trigger(99, 9, [A])
    assert picture(made) == before


def test_with_nothing_pending_time_and_abort_do_nothing() -> None:
    made = idle()
    before = picture(made)
    assert made.tick(10**9) == []
    assert made.abort_pending(BROKEN) == []
    assert picture(made) == before


def test_a_job_without_subtasks_completes_at_the_alignment() -> None:
    made = coordinator()
    made.trigger(0, 1, [])
    assert kinds(made.barrier_aligned(1, 5)) == ["WriteMetadata"]


# --- ids, due times, timeout -----------------------------------------------------------------------


def test_ids_begin_at_one_and_are_not_reused_after_failures() -> None:
    made = coordinator()
    ids = []
    for end in (made.tick, lambda _: made.decline(decline(made.last_id, A)), lambda _: None):
        ids.append(made.trigger(0, 1, [A]))
        made.barrier_aligned(ids[-1], 0)
        end(10**6)
        made.abort_pending(BROKEN)
    assert ids == [1, 2, 3]


def test_ids_go_on_after_those_of_a_restored_job() -> None:
    made = CheckpointCoordinator(TOLERANT, last_id=7, completed=[3, 5])
    assert made.last_id == 7
    assert made.trigger(0, 1, [A]) == 8


def test_a_pending_checkpoint_knows_what_it_was_triggered_with() -> None:
    pending = triggered().pending
    assert (pending.checkpoint_id, pending.epoch, pending.triggered_ms) == (3, 3, 20)
    assert pending.missing == {A, B}


def test_the_first_checkpoint_is_due_at_once_and_the_next_an_interval_after_its_barrier() -> None:
    made = coordinator(interval_ms=100)
    assert made.is_due(0)
    made.trigger(1_000, 1, [A])
    made.barrier_aligned(1, 1_500)
    assert not made.is_due(10**9), "one is pending"
    made.acknowledge(ack(1, A))
    made.completed(1)
    assert not made.is_due(1_599)
    assert made.is_due(1_600)


def test_a_checkpoint_that_fails_before_its_barrier_counts_from_the_trigger() -> None:
    made = coordinator(interval_ms=100)
    made.trigger(1_000, 1, [A])
    made.decline(decline(1, A))
    assert [made.is_due(1_099), made.is_due(1_100)] == [False, True]


def test_an_interval_of_zero_is_always_due_and_none_is_never() -> None:
    always = coordinator(interval_ms=0)
    always.barrier_aligned(always.trigger(5, 1, []), 8)
    always.completed(1)
    assert always.is_due(8)
    never = CheckpointCoordinator(CheckpointSettings())
    assert not never.is_due(10**12)


def test_the_timeout_runs_from_the_alignment_and_not_from_the_trigger() -> None:
    made = triggered()
    assert made.tick(10**9) == []
    made.barrier_aligned(3, 10**9)
    assert made.tick(10**9 + 49) == []
    (instruction,) = made.tick(10**9 + 50)
    assert isinstance(instruction, AbandonCheckpoint)
    text = str(instruction.error)
    assert "checkpoint 3 expired after 50 ms" in text
    assert "count[0], count[1]" in text


def test_an_expiry_names_only_who_is_missing() -> None:
    (instruction,) = aligned_and_half_acknowledged().tick(10**9)
    assert "count[1]" in str(instruction.error)
    assert "count[0]" not in str(instruction.error)


# --- failures and retention --------------------------------------------------------------------------


def fail_once(made: CheckpointCoordinator, by: str = "decline") -> list[Instruction]:
    checkpoint_id = made.trigger(0, 1, [A])
    made.barrier_aligned(checkpoint_id, 0)
    if by == "decline":
        return made.decline(decline(checkpoint_id, A))
    if by == "timeout":
        return made.tick(10**9)
    made.acknowledge(ack(checkpoint_id, A))
    return made.not_completed(checkpoint_id, BROKEN)


@pytest.mark.parametrize("by", ["decline", "timeout", "metadata"])
@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_the_job_fails_when_more_checkpoints_in_a_row_failed_than_are_tolerated(
    tolerable: int, by: str
) -> None:
    made = coordinator(tolerable_failures=tolerable)
    for _ in range(tolerable):
        assert kinds(fail_once(made, by)) == ["AbandonCheckpoint"]
    abandon, fail = fail_once(made, by)
    assert isinstance(abandon, AbandonCheckpoint)
    assert isinstance(fail, FailJob)
    assert isinstance(fail.error, CheckpointFailuresExceededError)
    assert fail.error.recoverable
    assert f"{tolerable + 1} in a row failed, tolerated are {tolerable}" in str(fail.error)
    assert str(abandon.error) in str(fail.error)


def test_a_completed_checkpoint_begins_the_count_of_failures_anew() -> None:
    made = coordinator(tolerable_failures=1)
    fail_once(made)
    complete(made, made.trigger(0, 1, [A]), [A])
    assert kinds(fail_once(made)) == ["AbandonCheckpoint"]
    assert kinds(fail_once(made)) == ["AbandonCheckpoint", "FailJob"]


def test_an_attempt_that_ends_is_no_failed_checkpoint() -> None:
    made = coordinator(tolerable_failures=0)
    for _ in range(3):
        made.trigger(0, 1, [A])
        assert kinds(made.abort_pending(BROKEN)) == ["AbandonCheckpoint"]
    assert kinds(fail_once(made)) == ["AbandonCheckpoint", "FailJob"]


@pytest.mark.parametrize("retained", [1, 2, 5])
def test_the_newest_completed_checkpoints_are_kept(retained: int) -> None:
    made = coordinator(num_retained=retained)
    for number in range(1, 10):
        discarded = complete(made, made.trigger(0, number, [A]), [A])
        expected = [DiscardCheckpoint(number - retained)] if number > retained else []
        assert discarded == expected


def test_checkpoints_of_the_run_before_are_subsumed_as_well() -> None:
    made = CheckpointCoordinator(attrs.evolve(TOLERANT, num_retained=2), 5, [2, 4, 5])
    assert complete(made, made.trigger(0, 1, [A]), [A]) == [DiscardCheckpoint(2), DiscardCheckpoint(4)]


def test_a_late_acknowledgement_of_a_checkpoint_of_the_run_before_deletes_nothing() -> None:
    made = CheckpointCoordinator(TOLERANT, 5, [2, 4, 5])
    assert made.acknowledge(ack(4, A)) == []


def test_at_least_one_checkpoint_is_retained() -> None:
    with pytest.raises(ValueError, match="num_retained"):
        CheckpointSettings(num_retained=0)


def test_metadata_is_written_for_the_checkpoint_with_all_its_acknowledgements() -> None:
    made = aligned_and_half_acknowledged()
    (instruction,) = made.acknowledge(ack(3, B, data=b"b"))
    assert isinstance(instruction, WriteMetadata)
    assert instruction.checkpoint.acks == {A: ack(3, A), B: ack(3, B, data=b"b")}


def test_a_job_that_failed_over_checkpoints_counts_anew() -> None:
    coordinator = CheckpointCoordinator(CheckpointSettings(interval_ms=0, tolerable_failures=1))
    slot = SlotId("op", 0)
    failed = []
    for _ in range(4):
        checkpoint_id = coordinator.trigger(0, 1, [slot])
        instructions = coordinator.decline(decline(checkpoint_id, slot))
        failed.append(any(isinstance(instruction, FailJob) for instruction in instructions))
    assert failed == [False, True, False, True]
