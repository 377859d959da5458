"""The checkpoint coordinator, transition by transition."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import pytest
from support_runtime import ack

from pyflinkstate.errors import CheckpointFailuresExceededError, ImpossibleEventError, RuntimeFailure
from pyflinkstate.runtime.master.coordinator import (
    ASK_AGAIN_MS,
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
SAVEPOINT = SavepointTarget()
STOP = SavepointTarget(stops_job=True)


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

    def test_an_interval_of_zero_is_always_due_and_none_is_never(self) -> None:
        always = coordinator(interval_ms=0)
        always.trigger(5, 1, [])
        assert kinds(always.aligned(1, 8)) == ["WriteMetadata"], "no subtask is waited for"
        always.published(1, 8)
        assert always.is_due(8)
        never = CheckpointCoordinator(CheckpointSettings())
        assert not never.is_due(10**12)
        assert never.due_in_ms(10**12) is None

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


#: One letter for each kind of instruction, with the checkpoint that it is about.
LETTERS: dict[type, str] = {
    WriteMetadata: "W",
    AbandonCheckpoint: "X",
    DiscardCheckpoint: "D",
    DiscardState: "S",
    NotifyComplete: "N",
    FailJob: "F",
}


def letters(instructions: list[Instruction]) -> str:
    def id_of(one: Any) -> Any:
        about = getattr(one, "checkpoint", getattr(one, "ack", one))
        return getattr(about, "checkpoint_id", "")

    return ",".join(f"{LETTERS[type(one)]}{id_of(one)}" for one in instructions)


#: Of a checkpoint, at a time.
TOLD: dict[str, Callable[[CheckpointCoordinator, int, int], list[Instruction]]] = {
    "aligned": lambda c, number, now: c.aligned(number, now),
    "ack": lambda c, number, _: c.acknowledged(ack(number, A)),
    "done": lambda c, number, now: complete(c, number, now_ms=now),
    "published": lambda c, number, now: c.published(number, now),
    "fail": lambda c, number, _: c.failed(number, BROKEN),
    "time": lambda c, _, now: c.time_passed(now),
    "abort": lambda c, *_: c.abort_pending(BROKEN),
}


def follow(made: CheckpointCoordinator, script: str) -> None:
    """Tell a coordinator what happens, step by step: ``what<checkpoint>@<time>=<instructions>``.

    Checkpoints have one subtask. ``begin`` triggers one and aligns it; ``done`` is all that completes it;
    ``save`` and ``stop`` begin savepoints. ``due``: one is due; ``first``: none was before.
    """
    now = 0
    for step in script.split():
        what, number, at, expected = re.fullmatch(r"([a-z]+)(\d*)(?:@(\d+))?(?:=(.*))?", step).groups()  # type: ignore[union-attr]
        now, number = int(at or now), int(number or 0)
        found: str | bool = ""
        match what:
            case "trigger":
                made.trigger(now, 1, [A])
            case "begin" | "save" | "stop":
                begin(made, now, {"save": SAVEPOINT, "stop": STOP}.get(what))
            case "due" | "undue":
                assert made.is_due(now) == (made.due_in_ms(now) == 0) == (what == "due"), step
            case "first":
                assert (made.is_due(now - 1), made.is_due(now)) == (False, True), step
                assert made.due_in_ms(now - 3) in (3, ASK_AGAIN_MS), step
            case "pending":
                found = ",".join(map(str, ids(made)))
            case "kept":
                found = ",".join(map(str, made.retained))
                assert made.latest_completed == made.retained[-1]
            case _:
                found = letters(TOLD[what](made, number, now))
        assert found == (expected or ""), step


#: By what they show: the settings of a coordinator, and what happens.
SCRIPTS: dict[str, tuple[dict[str, int], str]] = {
    "the first is due at once, and the next an interval after the barrier": (
        {"interval_ms": 100},
        "due@0 trigger@1000 aligned1@1500 undue@9000000 ack1=W1 published1@1550=N1 first@1600",
    ),
    "one that fails before its barrier counts from the trigger": (
        {"interval_ms": 100},
        "trigger@1000 fail1=X1 first@1100",
    ),
    "the interval is raised to the pause": (
        {"interval_ms": 10, "min_pause_ms": 100},
        "trigger@1000 fail1=X1 first@1100",
    ),
    "a completed one begins the count of failures anew": (
        {"tolerable_failures": 1},
        "begin fail1=X1 begin done2=N2 begin fail3=X3 begin fail4=X4,F",
    ),
    "so does a savepoint": (
        {"tolerable_failures": 1},
        "begin fail1=X1 save done2 begin fail3=X3 begin fail4=X4,F",
    ),
    "an attempt that ends is no failed checkpoint": (
        {"tolerable_failures": 0},
        "begin save abort=X1,X2 begin save abort=X3,X4 begin save abort=X5,X6 begin fail7=X7,F",
    ),
    "a job that failed over checkpoints counts anew": (
        {"tolerable_failures": 1},
        "begin fail1=X1 begin fail2=X2,F begin fail3=X3 begin fail4=X4,F",
    ),
    "one that several subtasks decline is counted once": (
        {"tolerable_failures": 1},
        "trigger trigger fail1=X1 fail1 fail2=X2,F",
    ),
    **{
        f"the newest {retained} are kept": (
            {"num_retained": retained},
            " ".join(
                f"begin done{n}={f'D{n - retained},' if n > retained else ''}N{n} "
                f"kept={','.join(str(kept) for kept in range(max(1, n - retained + 1), n + 1))}"
                for n in range(1, 10)
            ),
        )
        for retained in (1, 2, 5)
    },
    "no more are due than may be pending": (
        {"interval_ms": 0, "max_concurrent": 3},
        "due@0 begin@0 due@1 begin@1 due@2 begin@2 undue@9000000",
    ),
    "the interval is kept between them": (
        {"interval_ms": 100, "max_concurrent": 3},
        "trigger@0 aligned1@40 first@140 trigger@150 first@250",
    ),
    "more may be triggered than are ever due": ({}, "trigger trigger trigger pending=1,2,3"),
    "an older one may complete first, and the newer one after it": (
        {"max_concurrent": 2},
        "begin begin done1=N1 pending=2 done2=D1,N2",
    ),
    "each expires by its own alignment, and counts": (
        {"timeout_ms": 50, "tolerable_failures": 2},
        "begin@100 begin@120 begin@150 time@149 time@170=X1,X2 pending=3 time@199 time@200=X3,F",
    ),
    **{
        f"the pause is from the completion, the interval from the barrier: {interval}, {pause}": (
            {"interval_ms": interval, "min_pause_ms": pause},
            f"due@0 begin@{aligned} ack1=W1 published1@{completed}=N1 first@{due}",
        )
        for interval, pause, aligned, completed, due in (
            (0, 100, 0, 70, 170),
            (100, 10, 0, 5, 100),
            (100, 11, 0, 95, 106),
            (100, 100, 60, 60, 160),
        )
    },
    "a failure begins no pause": (
        {"interval_ms": 0, "min_pause_ms": 100, "timeout_ms": 60},
        "begin done1=N1 begin@100 time@160=X2 first@200",
    ),
    "the pause is kept beside one that is pending": (
        {"interval_ms": 0, "min_pause_ms": 100, "max_concurrent": 2},
        "begin begin@100 ack1=W1 published1@150=N1 first@250",
    ),
    "the pause is from the completion of a savepoint as well": (
        {"interval_ms": 0, "min_pause_ms": 100},
        "save done1@70 first@170",
    ),
    "one that completes subsumes the older ones that are pending, which are not counted": (
        {"max_concurrent": 4, "tolerable_failures": 2},
        "begin done1=N1 trigger trigger ack3 begin begin done4=X2,X3,D1,N4 pending=5 kept=4 fail5=X5",
    ),
    "one whose metadata is being written is subsumed too": (
        {"max_concurrent": 2},
        "begin begin ack1=W1 ack2=W2 published2=X1,N2 fail1 kept=2 pending",
    ),
    "what comes of a subsumed one later is deleted": (
        {"max_concurrent": 2},
        "begin begin done2=X1,N2 ack1=S1 fail1 aligned1 kept=2 pending",
    ),
    "a savepoint is triggered whatever is pending or paused": (
        {"interval_ms": 0, "min_pause_ms": 10**6},
        "begin done1=N1 begin save pending=2,3",
    ),
    "a savepoint takes no checkpoint's place and no checkpoint's turn": (
        {"interval_ms": 100, "max_concurrent": 1},
        "begin done1=N1 save@90 first@100",
    ),
    "of a complete savepoint nobody is told, and no increment goes on top of it": (
        {"num_retained": 1},
        "begin done1=N1 begin save done3 pending=2 kept=1",
    ),
    "of one that stops the job slots are told": (
        {"num_retained": 1},
        "begin done1=N1 begin stop done3=N3 pending=2 kept=1",
    ),
    "a checkpoint does not subsume a savepoint": ({}, "save begin done2=N2 pending=1 ack1=W1"),
    "an acknowledgement of a complete savepoint that comes again deletes nothing": ({}, "save done1 ack1"),
    "nor one that stops the job": ({}, "stop begin done2=N2 pending=1 ack1=W1"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_comes_of_what_happens(name: str) -> None:
    settings, script = SCRIPTS[name]
    follow(coordinator(**settings), script)


class TestSeveralPending:
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


class TestSavepoints:
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
    with_it = SavepointTarget(checkpoint_id=checkpoint_id)
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
