"""The checkpoint coordinator, transition by transition."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import attrs
import pytest
from support_runtime import ack

from pyflinkstate.errors import CheckpointFailuresExceededError, ImpossibleEventError, RuntimeFailure
from pyflinkstate.runtime.master.coordinator import (
    AbandonCheckpoint,
    CheckpointCoordinator,
    DiscardCheckpoint,
    DiscardState,
    FailJob,
    Instruction,
    NotifyComplete,
    SavepointTarget,
    WriteMetadata,
)
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.wire import SlotId

A, B = SlotId("count", 0), SlotId("count", 1)
BROKEN = RuntimeFailure("broken")
TOLERANT = CheckpointSettings(interval_ms=100, timeout_ms=50, tolerable_failures=1_000)
SAVEPOINT = SavepointTarget("file:///savepoints/savepoint-1")
STOP = SavepointTarget("file:///savepoints/savepoint-2", stops_job=True)


def coordinator(**settings: int) -> CheckpointCoordinator:
    return CheckpointCoordinator(attrs.evolve(TOLERANT, **settings))


def picture(of: CheckpointCoordinator) -> bytes:
    """All that a coordinator knows, to be compared."""
    return pickle.dumps(vars(of))


def kinds(instructions: list[Instruction]) -> list[str]:
    return [type(instruction).__name__ for instruction in instructions]


def ids(of: CheckpointCoordinator) -> list[int]:
    """The checkpoints that are pending."""
    return [pending.checkpoint_id for pending in of.pending]


def begin(made: CheckpointCoordinator, now_ms: int = 0, savepoint: SavepointTarget | None = None) -> int:
    """Trigger a checkpoint of one subtask, whose barrier is aligned at once."""
    checkpoint_id = made.trigger(now_ms, 1, [A], savepoint).checkpoint_id
    assert made.aligned(checkpoint_id, now_ms) == []
    return checkpoint_id


def complete(
    made: CheckpointCoordinator, checkpoint_id: int, slots: Iterable[SlotId] = (A,), now_ms: int = 0
) -> list[Instruction]:
    """Lead a triggered checkpoint to its end."""
    instructions = made.aligned(checkpoint_id, now_ms)
    for slot in slots:
        instructions += made.acknowledged(ack(checkpoint_id, slot))
    assert kinds(instructions) == ["WriteMetadata"]
    return made.published(checkpoint_id, now_ms)


def due_first_at(made: CheckpointCoordinator, barrier_ms: int) -> bool:
    return made.is_due(barrier_ms) and not made.is_due(barrier_ms - 1)


# --- the states, and what every event does in them -------------------------------------------------


def idle() -> CheckpointCoordinator:
    """Nothing is pending; checkpoint 1 is completed, checkpoint 2 was declined."""
    made = coordinator()
    complete(made, made.trigger(0, 1, [A, B]).checkpoint_id, [A, B])
    made.trigger(10, 2, [A, B])
    made.failed(2, BROKEN)
    return made


def triggered() -> CheckpointCoordinator:
    made = idle()
    assert made.trigger(20, 3, [A, B]).checkpoint_id == 3
    return made


Event = Callable[[CheckpointCoordinator], list[Instruction]]

EVENTS: dict[str, Event] = {
    "ack A": lambda c: c.acknowledged(ack(3, A)),
    "ack B": lambda c: c.acknowledged(ack(3, B)),
    "aligned": lambda c: c.aligned(3, 30),
    "fails": lambda c: c.failed(3, BROKEN),
    "early tick": lambda c: c.time_passed(79),
    "late tick": lambda c: c.time_passed(80),
    "abort": lambda c: c.abort_pending(BROKEN),
}

#: state: the events that lead to it, and what each of EVENTS does then: W write metadata, X abandon.
TABLE: dict[str, tuple[list[str], str]] = {
    "triggered": ([], "...X..X"),
    "half acknowledged": (["ack A"], "...X..X"),
    "acknowledged": (["ack A", "ack B"], "..WX..X"),
    "aligned": (["aligned"], "...X.XX"),
    "aligned and half acknowledged": (["aligned", "ack A"], ".W.X.XX"),
    "completing": (["aligned", "ack A", "ack B"], "...X.XX"),
}


def in_state(state: str) -> CheckpointCoordinator:
    """Checkpoint 3 is as the table says, or with "idle" there is none."""
    if state == "idle":
        return idle()
    made = triggered()
    for event in TABLE[state][0]:
        EVENTS[event](made)
    return made


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", TABLE)
@pytest.mark.parametrize("beside", [[], [None, SAVEPOINT, STOP]], ids=["alone", "beside others"])
def test_what_an_event_does_to_a_pending_checkpoint(
    beside: list[SavepointTarget | None], state: str, event: str
) -> None:
    made = in_state(state)
    pending = made.pending[0]
    others = [made.trigger(25, 4, [A, B], target).checkpoint_id for target in beside]
    untouched = pickle.dumps(made.pending[1:])
    expected = TABLE[state][1][list(EVENTS).index(event)]
    instructions = EVENTS[event](made)
    if event == "abort":
        assert [item.checkpoint.checkpoint_id for item in instructions] == [3, *others]
        assert made.pending == ()
        return
    if expected == "X":
        assert kinds(instructions) == ["AbandonCheckpoint"]
        assert instructions[0].checkpoint is pending
    else:
        assert kinds(instructions) == (["WriteMetadata"] if expected == "W" else [])
        assert all(item.checkpoint is pending for item in instructions)
        assert expected == "." or (pending.missing, set(pending.acks)) == (set(), {A, B})
    assert ids(made) == ([] if expected == "X" else [3]) + others
    assert pickle.dumps(tuple(other for other in made.pending if other is not pending)) == untouched
    assert made.last_id == 3 + len(others)


#: Events that say nothing new, are too late, or about what is unknown.
FOREIGN: dict[str, Event] = {
    "aligned, completed": lambda c: c.aligned(1, 40),
    "aligned, aborted": lambda c: c.aligned(2, 40),
    "aligned, unknown": lambda c: c.aligned(9, 40),
    "ack, completed": lambda c: c.acknowledged(ack(1, A)),
    "ack, of a stranger": lambda c: c.acknowledged(ack(1, SlotId("other", 0))),
    "failure, completed": lambda c: c.failed(1, BROKEN),
    "failure, aborted": lambda c: c.failed(2, BROKEN),
    "failure, unknown": lambda c: c.failed(9, BROKEN),
}


@pytest.mark.parametrize("event", FOREIGN)
@pytest.mark.parametrize("state", ["idle", *TABLE])
def test_events_about_other_checkpoints_change_nothing(state: str, event: str) -> None:
    made = in_state(state)
    before = picture(made)
    assert FOREIGN[event](made) == []
    assert picture(made) == before


@pytest.mark.parametrize("checkpoint_id", [2, 9], ids=["aborted", "unknown"])
@pytest.mark.parametrize("state", ["idle", *TABLE])
def test_what_a_late_acknowledgement_points_at_is_deleted_and_nothing_else_happens(
    state: str, checkpoint_id: int
) -> None:
    made = in_state(state)
    before = picture(made)
    late = ack(checkpoint_id, A, data=b"late")
    assert made.acknowledged(late) == [DiscardState(late)]
    assert picture(made) == before


def test_a_duplicate_acknowledgement_does_not_replace_the_first() -> None:
    made = in_state("half acknowledged")
    made.acknowledged(ack(3, A, data=b"twice"))
    assert made.pending[0].acks[A] == ack(3, A)


def test_an_acknowledgement_of_a_subtask_that_was_not_asked_counts_nothing() -> None:
    made = in_state("aligned and half acknowledged")
    before = picture(made)
    assert made.acknowledged(ack(3, SlotId("other", 1))) == []
    assert picture(made) == before


def test_a_second_alignment_does_not_put_the_timeout_off() -> None:
    made = in_state("aligned")
    made.aligned(3, 60)
    assert kinds(made.time_passed(80)) == ["AbandonCheckpoint"]


@pytest.mark.parametrize("state", ["idle", *TABLE])
def test_what_is_not_pending_cannot_be_completed_and_nothing_changes(state: str) -> None:
    made = in_state(state)
    before = picture(made)
    for checkpoint_id in (1, 2, 9):
        with pytest.raises(
            ImpossibleEventError, match=f"checkpoint {checkpoint_id} was published, but is not pending"
        ):
            made.published(checkpoint_id, 40)
    assert picture(made) == before


def test_with_nothing_pending_time_and_abort_do_nothing() -> None:
    made = idle()
    before, kept = picture(made), (made.pending, made.last_id, made.retained)
    assert made.time_passed(10**9) == []
    assert picture(made) == before
    assert made.abort_pending(BROKEN) == []
    assert (made.pending, made.last_id, made.retained) == kept, "though it may count anew"


class TestIdsAndTimes:
    def test_ids_begin_at_one_and_are_not_reused_after_failures(self) -> None:
        made = coordinator()
        assert (made.last_id, made.latest_completed, made.retained) == (0, None, ())
        triggered_ids = []
        for end in (
            lambda now: made.time_passed(now),
            lambda _: made.failed(made.last_id, BROKEN),
            lambda _: None,
        ):
            triggered_ids.append(begin(made))
            end(10**6)
            made.abort_pending(BROKEN)
        assert triggered_ids == [1, 2, 3]
        assert [begin(made), begin(made, savepoint=SAVEPOINT), begin(made)] == [4, 5, 6]

    def test_ids_go_on_after_those_of_a_restored_job(self) -> None:
        made = CheckpointCoordinator(TOLERANT, last_id=7, completed=[3, 5])
        assert made.last_id == 7
        assert made.trigger(0, 1, [A]).checkpoint_id == 8
        assert made.last_id == 8

    def test_a_pending_checkpoint_knows_what_it_was_triggered_with(self) -> None:
        (pending,) = triggered().pending
        assert (pending.checkpoint_id, pending.epoch, pending.triggered_ms) == (3, 3, 20)
        assert (pending.missing, pending.savepoint) == ({A, B}, None)

    def test_the_first_checkpoint_is_due_at_once_and_the_next_an_interval_after_its_barrier(self) -> None:
        made = coordinator(interval_ms=100)
        assert made.is_due(0)
        made.trigger(1_000, 1, [A])
        made.aligned(1, 1_500)
        assert not made.is_due(10**9), "one is pending"
        made.acknowledged(ack(1, A))
        made.published(1, 1_550)
        assert due_first_at(made, 1_600)

    @pytest.mark.parametrize("settings", [(100, 0), (10, 100)], ids=["interval", "raised to the pause"])
    def test_a_checkpoint_that_fails_before_its_barrier_counts_from_the_trigger(
        self, settings: tuple[int, int]
    ) -> None:
        made = coordinator(interval_ms=settings[0], min_pause_ms=settings[1])
        made.trigger(1_000, 1, [A])
        made.failed(1, BROKEN)
        assert due_first_at(made, 1_100)

    def test_an_interval_of_zero_is_always_due_and_none_is_never(self) -> None:
        always = coordinator(interval_ms=0)
        always.trigger(5, 1, [])
        assert kinds(always.aligned(1, 8)) == ["WriteMetadata"], "no subtask is waited for"
        always.published(1, 8)
        assert always.is_due(8)
        never = CheckpointCoordinator(CheckpointSettings())
        assert not never.is_due(10**12)

    @pytest.mark.parametrize("savepoint", [None, SAVEPOINT], ids=["checkpoint", "savepoint"])
    def test_the_timeout_runs_from_the_alignment_and_not_from_the_trigger(
        self, savepoint: SavepointTarget | None
    ) -> None:
        made = coordinator(timeout_ms=50)
        made.trigger(20, 1, [A, B], savepoint)
        assert made.time_passed(10**9) == []
        made.aligned(1, 10**9)
        assert made.time_passed(10**9 + 49) == []
        (instruction,) = made.time_passed(10**9 + 50)
        assert isinstance(instruction, AbandonCheckpoint)
        text = str(instruction.error)
        assert "checkpoint 1 expired after 50 ms" in text
        assert "count[0], count[1]" in text

    def test_an_expiry_names_only_who_is_missing(self) -> None:
        (instruction,) = in_state("aligned and half acknowledged").time_passed(10**9)
        assert "count[1]" in str(instruction.error)
        assert "count[0]" not in str(instruction.error)


def fail_once(
    made: CheckpointCoordinator, by: str = "decline", savepoint: SavepointTarget | None = None
) -> list[Instruction]:
    checkpoint_id = begin(made, savepoint=savepoint)
    if by == "timeout":
        return made.time_passed(10**9)
    if by == "metadata":
        made.acknowledged(ack(checkpoint_id, A))
    return made.failed(checkpoint_id, BROKEN)


class TestFailuresAndRetention:
    @pytest.mark.parametrize("by", ["decline", "timeout", "metadata"])
    @pytest.mark.parametrize("tolerable", [0, 1, 3])
    def test_the_job_fails_when_more_checkpoints_in_a_row_failed_than_are_tolerated(
        self, tolerable: int, by: str
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

    def test_a_completed_checkpoint_begins_the_count_of_failures_anew(self) -> None:
        made = coordinator(tolerable_failures=1)
        fail_once(made)
        complete(made, begin(made))
        assert kinds(fail_once(made)) == ["AbandonCheckpoint"]
        assert kinds(fail_once(made)) == ["AbandonCheckpoint", "FailJob"]

    def test_an_attempt_that_ends_is_no_failed_checkpoint(self) -> None:
        made = coordinator(tolerable_failures=0)
        for _ in range(3):
            _ = begin(made), begin(made, savepoint=SAVEPOINT)
            assert kinds(made.abort_pending(BROKEN)) == ["AbandonCheckpoint"] * 2
        assert kinds(fail_once(made)) == ["AbandonCheckpoint", "FailJob"]

    @pytest.mark.parametrize("retained", [1, 2, 5])
    def test_the_newest_completed_checkpoints_are_kept(self, retained: int) -> None:
        made = coordinator(num_retained=retained)
        for number in range(1, 10):
            instructions = complete(made, begin(made))
            expected = [DiscardCheckpoint(number - retained)] if number > retained else []
            assert instructions == [*expected, NotifyComplete(number)]
            assert made.retained == tuple(range(max(1, number - retained + 1), number + 1))
            assert made.latest_completed == number

    def test_checkpoints_of_the_run_before_are_subsumed_as_well(self) -> None:
        made = CheckpointCoordinator(attrs.evolve(TOLERANT, num_retained=2), 5, [2, 4, 5])
        assert made.retained == (2, 4, 5)
        assert made.acknowledged(ack(4, A)) == [], "an acknowledgement that comes late deletes nothing"
        assert complete(made, begin(made)) == [DiscardCheckpoint(2), DiscardCheckpoint(4), NotifyComplete(6)]
        assert made.retained == (5, 6)

    def test_metadata_is_written_for_the_checkpoint_with_all_its_acknowledgements(self) -> None:
        made = in_state("aligned and half acknowledged")
        (instruction,) = made.acknowledged(ack(3, B, data=b"b"))
        assert isinstance(instruction, WriteMetadata)
        assert instruction.checkpoint.acks == {A: ack(3, A), B: ack(3, B, data=b"b")}

    def test_a_job_that_failed_over_checkpoints_counts_anew(self) -> None:
        made = coordinator(tolerable_failures=1)
        failed = ["FailJob" in kinds(fail_once(made)) for _ in range(4)]
        assert failed == [False, True, False, True]

    def test_a_checkpoint_that_several_subtasks_decline_is_counted_once(self) -> None:
        made = coordinator(tolerable_failures=1)
        for checkpoint_id in (1, 2):
            made.trigger(0, checkpoint_id, [A, B])
        instructions = [made.failed(1, BROKEN) for _ in (A, B)]
        assert [kinds(each) for each in instructions] == [["AbandonCheckpoint"], []]
        assert kinds(made.failed(2, BROKEN)) == ["AbandonCheckpoint", "FailJob"]


class TestSeveralPending:
    @pytest.mark.parametrize("maximum", [1, 2, 3])
    def test_no_more_are_due_than_may_be_pending(self, maximum: int) -> None:
        made = coordinator(interval_ms=0, max_concurrent=maximum)
        for now_ms in range(maximum):
            assert made.is_due(now_ms)
            begin(made, now_ms)
        assert not made.is_due(10**9)

    @pytest.mark.parametrize("end", ["completed", "failed", "expired", "aborted"])
    def test_one_that_ends_makes_room(self, end: str) -> None:
        made = coordinator(interval_ms=0, max_concurrent=2)
        _ = begin(made), begin(made, 50)
        {
            "completed": lambda: complete(made, 1),
            "failed": lambda: made.failed(1, BROKEN),
            "expired": lambda: made.time_passed(50),
            "aborted": lambda: made.abort_pending(BROKEN),
        }[end]()
        assert 1 not in ids(made)
        assert made.is_due(50)

    def test_the_interval_is_kept_between_them(self) -> None:
        made = coordinator(interval_ms=100, max_concurrent=3)
        made.trigger(0, 1, [A])
        made.aligned(1, 40)
        assert due_first_at(made, 140)
        made.trigger(150, 2, [A])
        assert due_first_at(made, 250)

    def test_more_may_be_triggered_than_are_ever_due(self) -> None:
        made = coordinator(max_concurrent=1)
        pending = [made.trigger(0, epoch, [A]) for epoch in (1, 2, 3)]
        assert made.pending == tuple(pending)
        assert ids(made) == [1, 2, 3]

    def test_an_older_one_may_complete_first_and_the_newer_one_after_it(self) -> None:
        made = coordinator(max_concurrent=2)
        _ = begin(made), begin(made)
        assert complete(made, 1) == [NotifyComplete(1)]
        assert ids(made) == [2]
        assert complete(made, 2) == [DiscardCheckpoint(1), NotifyComplete(2)]

    def test_each_expires_by_its_own_alignment_and_counts(self) -> None:
        made = coordinator(timeout_ms=50, tolerable_failures=2)
        for aligned_ms in (100, 120, 150):
            begin(made, aligned_ms)
        assert made.time_passed(149) == []
        assert [item.checkpoint.checkpoint_id for item in made.time_passed(170)] == [1, 2]
        assert ids(made) == [3]
        assert made.time_passed(199) == []
        assert kinds(made.time_passed(200)) == ["AbandonCheckpoint", "FailJob"]


class TestMinPause:
    @pytest.mark.parametrize(
        ("interval_ms", "min_pause_ms", "aligned_ms", "completed_ms", "due_ms"),
        [(0, 100, 0, 70, 170), (100, 10, 0, 5, 100), (100, 10, 0, 95, 105), (100, 100, 60, 60, 160)],
        ids=["pause alone", "interval the later", "pause the later", "both"],
    )
    def test_it_counts_from_the_completion_and_the_interval_from_the_barrier(
        self, interval_ms: int, min_pause_ms: int, aligned_ms: int, completed_ms: int, due_ms: int
    ) -> None:
        made = coordinator(interval_ms=interval_ms, min_pause_ms=min_pause_ms)
        assert made.is_due(0), "nothing was completed yet"
        made.acknowledged(ack(begin(made, aligned_ms), A))
        made.published(1, completed_ms)
        assert due_first_at(made, due_ms)

    def test_a_failure_begins_no_pause(self) -> None:
        made = coordinator(interval_ms=0, min_pause_ms=100, timeout_ms=60)
        complete(made, begin(made, 0), now_ms=0)
        begin(made, 100)
        assert kinds(made.time_passed(160)) == ["AbandonCheckpoint"]
        assert due_first_at(made, 200)

    def test_it_is_kept_beside_one_that_is_pending(self) -> None:
        made = coordinator(interval_ms=0, min_pause_ms=100, max_concurrent=2)
        _ = begin(made, 0), begin(made, 100)
        made.acknowledged(ack(1, A))
        made.published(1, 150)
        assert due_first_at(made, 250)

    def test_it_counts_from_the_completion_of_a_savepoint_as_well(self) -> None:
        made = coordinator(interval_ms=0, min_pause_ms=100)
        complete(made, begin(made, 0, SAVEPOINT), now_ms=70)
        assert due_first_at(made, 170)


class TestSubsumption:
    def test_one_that_completes_subsumes_the_older_ones_that_are_pending(self) -> None:
        made = coordinator(max_concurrent=4, tolerable_failures=2)
        complete(made, begin(made))
        older = [made.trigger(0, epoch, [A]) for epoch in (2, 3)]
        made.acknowledged(ack(3, A))
        _ = begin(made), begin(made)
        *others, last = complete(made, 4)
        assert last == NotifyComplete(4)
        abandoned = [item for item in others if isinstance(item, AbandonCheckpoint)]
        assert [item.checkpoint for item in abandoned] == older
        assert all("checkpoint 4" in str(item.error) for item in abandoned)
        assert [item for item in others if item not in abandoned] == [DiscardCheckpoint(1)]
        assert ids(made) == [5]
        assert made.latest_completed == 4, "subtasks are told of it with the abortion"
        assert kinds(made.failed(5, BROKEN)) == ["AbandonCheckpoint"], "those before are not counted"

    def test_one_whose_metadata_is_being_written_is_subsumed_too(self) -> None:
        made = coordinator(max_concurrent=2)
        for checkpoint_id in (begin(made), begin(made)):
            assert kinds(made.acknowledged(ack(checkpoint_id, A))) == ["WriteMetadata"]
        assert kinds(made.published(2, 0)) == ["AbandonCheckpoint", "NotifyComplete"]
        assert made.failed(1, BROKEN) == []
        assert (made.retained, made.pending) == ((2,), ())

    def test_what_comes_of_a_subsumed_one_later_is_deleted(self) -> None:
        made = coordinator(max_concurrent=2)
        begin(made)
        complete(made, begin(made))
        before = picture(made)
        assert made.acknowledged(ack(1, A)) == [DiscardState(ack(1, A))]
        assert made.failed(1, BROKEN) == []
        assert made.aligned(1, 5) == []
        assert picture(made) == before


class TestSavepoints:
    def test_it_is_triggered_whatever_is_pending_or_paused(self) -> None:
        made = coordinator(interval_ms=0, min_pause_ms=10**6)
        complete(made, begin(made))
        begin(made)
        pending = made.trigger(1, 7, [A, B], SAVEPOINT)
        assert (pending.checkpoint_id, pending.epoch, pending.savepoint) == (3, 7, SAVEPOINT)
        assert pending.missing == {A, B}
        assert ids(made) == [2, 3]

    def test_it_takes_no_checkpoints_place_and_no_checkpoints_turn(self) -> None:
        made = coordinator(interval_ms=100, max_concurrent=1)
        complete(made, begin(made, 0))
        made.trigger(90, 2, [A], SAVEPOINT)
        made.aligned(2, 95)
        assert due_first_at(made, 100)

    @pytest.mark.parametrize(
        ("target", "expected"), [(SAVEPOINT, []), (STOP, [NotifyComplete(3)])], ids=["", "stops the job"]
    )
    def test_when_it_is_complete_only_one_that_stops_the_job_is_told_of(
        self, target: SavepointTarget, expected: list[Instruction]
    ) -> None:
        made = coordinator(num_retained=1)
        complete(made, begin(made))
        begin(made)
        begin(made, savepoint=target)
        assert complete(made, 3) == expected
        assert ids(made) == [2], "a checkpoint was subsumed"
        assert made.retained == (1,)
        assert made.latest_completed == 1, "no increment goes on top of a savepoint"

    @pytest.mark.parametrize("target", [SAVEPOINT, STOP], ids=["", "stops the job"])
    def test_a_checkpoint_does_not_subsume_it(self, target: SavepointTarget) -> None:
        made = coordinator()
        begin(made, savepoint=target)
        assert complete(made, begin(made)) == [NotifyComplete(2)]
        assert ids(made) == [1]
        assert kinds(made.acknowledged(ack(1, A))) == ["WriteMetadata"]

    @pytest.mark.parametrize("by", ["decline", "timeout", "metadata"])
    @pytest.mark.parametrize("target", [SAVEPOINT, STOP], ids=["", "stops the job"])
    def test_its_failure_is_not_counted(self, target: SavepointTarget, by: str) -> None:
        made = coordinator(tolerable_failures=1)
        fail_once(made)
        for checkpoint_id in (2, 3):
            (abandon,) = fail_once(made, by, target)
            assert isinstance(abandon, AbandonCheckpoint)
            assert abandon.checkpoint.savepoint == target
            assert made.pending == ()
            late = ack(checkpoint_id, B)
            assert made.acknowledged(late) == [DiscardState(late)]
        assert kinds(fail_once(made, by)) == ["AbandonCheckpoint", "FailJob"]

    def test_one_that_is_complete_begins_the_count_of_failures_anew(self) -> None:
        made = coordinator(tolerable_failures=1)
        fail_once(made)
        complete(made, begin(made, savepoint=SAVEPOINT))
        assert kinds(fail_once(made)) == ["AbandonCheckpoint"]
        assert kinds(fail_once(made)) == ["AbandonCheckpoint", "FailJob"]


class TestSettings:
    @pytest.mark.parametrize("name", ["num_retained", "max_concurrent", "materialization_interval"])
    def test_there_is_at_least_one_of(self, name: str) -> None:
        with pytest.raises(ValueError, match=name):
            CheckpointSettings(**{name: 0})

    def test_the_defaults_are_flinks(self) -> None:
        settings = CheckpointSettings()
        assert settings.interval_ms is None
        assert (settings.timeout_ms, settings.min_pause_ms, settings.max_concurrent) == (600_000, 0, 1)
        assert (settings.tolerable_failures, settings.num_retained) == (0, 1)
        assert not settings.incremental


# --- savepoints that come with a checkpoint ---------------------------------------------------------


def pair(made: CheckpointCoordinator) -> tuple[int, int]:
    """Begin a checkpoint, and the savepoint of the same barrier; of each all is written."""
    checkpoint_id = begin(made)
    with_it = SavepointTarget("file:///savepoints/savepoint-3", checkpoint_id=checkpoint_id)
    savepoint_id = begin(made, savepoint=with_it)
    assert made.acknowledged(ack(savepoint_id, A)) == [], "it waits for the checkpoint"
    return checkpoint_id, savepoint_id


def test_a_savepoint_completes_when_the_sinks_have_committed_what_its_checkpoint_covers() -> None:
    made = coordinator()
    checkpoint_id, savepoint_id = pair(made)
    complete(made, checkpoint_id)
    assert ids(made) == [savepoint_id]
    assert made.committed(0) == [], "that was an earlier one"
    (write,) = made.committed(1)
    assert isinstance(write, WriteMetadata)
    assert write.checkpoint.checkpoint_id == savepoint_id
    assert made.committed(1) == [], "once"


def test_a_later_checkpoint_that_overtakes_both_will_do() -> None:
    made = coordinator()
    _, savepoint_id = pair(made)
    later = made.trigger(0, 2, [A]).checkpoint_id
    assert kinds(complete(made, later)) == ["AbandonCheckpoint", "NotifyComplete"]
    assert ids(made) == [savepoint_id]
    assert kinds(made.committed(2)) == ["WriteMetadata"]


@pytest.mark.parametrize("event", ["fails", "expires"])
def test_a_savepoint_fails_with_its_checkpoint(event: str) -> None:
    made = coordinator()
    checkpoint_id, savepoint_id = pair(made)
    if event == "expires":
        instructions = made.time_passed(TOLERANT.timeout_ms)
    else:
        instructions = made.failed(checkpoint_id, BROKEN)
    abandoned = [i for i in instructions if isinstance(i, AbandonCheckpoint)]
    assert [i.checkpoint.checkpoint_id for i in abandoned] == [checkpoint_id, savepoint_id]
    assert len({str(i.error) for i in abandoned}) == 1, "for the same reason"
    assert ids(made) == []


def test_the_checkpoint_is_none_the_worse_for_its_savepoint() -> None:
    made = coordinator()
    checkpoint_id, savepoint_id = pair(made)
    assert kinds(made.failed(savepoint_id, BROKEN)) == ["AbandonCheckpoint"]
    assert ids(made) == [checkpoint_id]
    complete(made, checkpoint_id)
