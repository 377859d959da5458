"""The machine of a job: what it asks for in each phase, what cannot happen, and random lives of jobs."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any, get_args

import attrs
import pytest
from pyflinkstate.runtime.job.events import (
    AttemptBegun,
    AttemptEnded,
    BarrierSet,
    CheckpointCompleted,
    CheckpointsSettled,
    ConsumerLeft,
    EpochStarted,
    Failed,
    InstructionFailed,
    JobClaimed,
    JobStarted,
    JobTakenOver,
    OutputCommitted,
    OutputPrepared,
    PauseEnded,
    ShuffledAhead,
    SlotsClosed,
    SourceAsked,
    WentBack,
)

from pyflinkstate.errors import (
    CheckpointError,
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    ImpossibleEventError,
    JobCancelledError,
    JobFailedError,
    JobSupersededError,
    PyFlinkStateError,
    RuntimeFailure,
    SlotLostError,
    SparkJobError,
    SparkUnavailableError,
    UserFunctionError,
)
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master import SavepointRequest, events, instructions, job, machine
from pyflinkstate.runtime.master.instructions import (
    BeginAttempt,
    CancelEpoch,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    CountReport,
    EndAttempt,
    GoBack,
    LogLateFailure,
    Pause,
    PlanEmptyEpoch,
    PrepareOutput,
    RefuseSavepoint,
    Rest,
    RunEpoch,
    SetBarrier,
    ShuffleAhead,
    StartSlots,
    TakeOver,
)
from pyflinkstate.runtime.master.machine import JobFacts, JobMachine, Phase
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, SlotId, TaskReport

BROKEN = SparkJobError("the epoch has failed")
NEXT, LAST, EMPTY = Step(None, False), Step(None, True), Step(None, True)
TRIGGER = CheckpointTrigger(1, 0, "chk-1")
ATTEMPT_ENDED = AttemptEnded(BROKEN, falls_back=False, now_ms=0)
NO_BARRIER = BarrierSet(None)
#: Events that can come in one phase only, and not between two epochs.
OUT_OF_PLACE = [JobStarted(), WentBack(), OutputPrepared(), SlotsClosed(), PauseEnded()]
#: What must have happened in each block of random lives.
REMARKABLE = {"FINISHED", "CANCELED", "FAILED", "CancelEpoch", "GoBack", "StartSlots", "RefuseSavepoint"}


def made(restarts: int = 1, delay_ms: int = 50, **facts: Any) -> JobMachine:
    settings = {"has_checkpoints": True, **facts}
    return JobMachine(JobFacts("orders", **settings), FixedDelayRestart(restarts, delay_ms).tracker())


def walked(machine: JobMachine, *walk: Any) -> list[Any]:
    """Tell a machine one event after the other; returns what the last one led to."""
    asked: list[Any] = []
    for event in walk:
        asked = machine.handle(event)
    return asked


BEGINNING = (JobStarted(), AttemptBegun(0), JobClaimed(0, restores=False), JobTakenOver())


def idle(**facts: Any) -> JobMachine:
    machine = made(**facts)
    walked(machine, *BEGINNING)
    return machine


def running(step: Step = NEXT, barrier: BarrierSet = NO_BARRIER, **facts: Any) -> JobMachine:
    machine = idle(**facts)
    walked(machine, SourceAsked(step))
    if step.is_last:
        machine.handle(CheckpointsSettled())
    machine.handle(barrier)
    return machine


def ended(machine: JobMachine, error: PyFlinkStateError | None = None) -> EpochEnded:
    return EpochEnded(None if error else [], error, machine.run)


class TestTheBeginning:
    def test_nothing_is_taken_over_before_the_slots_have_restored(self) -> None:
        machine = made()
        assert machine.handle(JobStarted()) == [BeginAttempt(0)]
        assert machine.handle(AttemptBegun(7)) == [ClaimJob()]
        assert machine.handle(JobClaimed(8, restores=True)) == [StartSlots(1)]
        assert (machine.epoch, machine.committed, machine.is_running) == (8, 8, True)
        assert machine.handle(ended(machine)) == [TakeOver()]
        assert machine.handle(JobTakenOver()) == []
        assert (machine.phase, machine.status) == (Phase.IDLE, JobStatus.RUNNING)

    def test_slots_that_cannot_restore_end_the_attempt_and_nothing_was_touched(self) -> None:
        machine = made(restarts=0)
        walked(machine, JobStarted(), AttemptBegun(7), JobClaimed(7, restores=True))
        error = CorruptCheckpointError("damaged")
        assert machine.handle(ended(machine, error)) == [EndAttempt(error)]
        assert not machine.has_taken_over
        assert machine.handle(AttemptEnded(error, falls_back=False, now_ms=0)) == []
        assert (machine.phase, machine.status, machine.error) == (Phase.ENDED, JobStatus.FAILED, error)
        assert not machine.has_begun

    def test_after_falling_back_the_job_is_claimed_anew(self) -> None:
        machine = made()
        walked(machine, JobStarted(), AttemptBegun(7), JobClaimed(7, restores=True))
        error = CorruptCheckpointError("damaged")
        machine.handle(ended(machine, error))
        assert machine.handle(AttemptEnded(error, falls_back=True, now_ms=0)) == [Pause(1, 0, error)]
        assert machine.handle(PauseEnded()) == [BeginAttempt(1)]
        assert machine.handle(AttemptBegun(5)) == [ClaimJob()]


class TestEpochs:
    def test_the_way_of_an_epoch(self) -> None:
        machine = idle()
        assert machine.handle(SourceAsked(NEXT)) == [SetBarrier(1, None, is_needed=False)]
        assert machine.handle(BarrierSet(None)) == [RunEpoch(1, 1, NEXT, None, is_final=False)]
        assert machine.handle(EpochEnded([["a"]], None, 1)) == [PrepareOutput(1, [["a"]])]
        assert machine.handle(OutputPrepared()) == []
        assert (machine.phase, machine.epoch, machine.committed) == (Phase.IDLE, 1, 0)

    def test_without_checkpoints_an_epoch_is_committed_as_it_ends(self) -> None:
        machine = running(has_checkpoints=False)
        assert walked(machine, ended(machine), OutputPrepared()) == [CommitOutput(1)]
        machine.handle(OutputCommitted(1))
        assert (machine.take_announced(), machine.take_announced()) == ([1], [])

    def test_the_last_epoch_waits_until_nothing_is_under_way_and_then_for_its_checkpoint(self) -> None:
        machine = idle()
        assert machine.handle(SourceAsked(LAST)) == []
        assert machine.phase is Phase.DRAINING
        assert machine.handle(CheckpointsSettled()) == [SetBarrier(1, None, is_needed=True)]
        walked(machine, BarrierSet(TRIGGER), ended(machine))
        walked(machine, EpochEnded([], None, machine.run), OutputPrepared())
        assert machine.phase is Phase.COMMITTING
        assert machine.handle(CheckpointCompleted(1, stops_job=False)) == [CommitOutput(1)]
        assert walked(machine, OutputCommitted(1), CheckpointsSettled()) == []
        assert machine.handle(SourceAsked(None, is_over=True)) == [CloseSlots()]
        machine.handle(SlotsClosed())
        assert (machine.phase, machine.status) == (Phase.ENDED, JobStatus.FINISHED)

    def test_what_is_committed_is_not_committed_again(self) -> None:
        machine = idle()
        walked(machine, CheckpointCompleted(3, stops_job=False), OutputCommitted(3))
        assert machine.handle(CheckpointCompleted(3, stops_job=False)) == []

    @pytest.mark.parametrize(
        ("facts", "asked", "wanted"),
        [
            ({}, SourceAsked(None), False),
            ({}, SourceAsked(None, is_over=True, has_pending=True), False),
            ({}, SourceAsked(None, is_over=True), True),
            ({}, SourceAsked(None, is_due=True), True),
            ({"commits_every_epoch": True}, SourceAsked(None), True),
            ({"has_checkpoints": False}, SourceAsked(None, is_due=True), False),
            ({"has_checkpoints": False}, SourceAsked(None, timers_are_due=True), True),
        ],
    )
    def test_when_an_epoch_of_nothing_is_worth_its_barrier(
        self, facts: dict[str, Any], asked: SourceAsked, wanted: bool
    ) -> None:
        machine = running(**facts)
        walked(machine, ended(machine), OutputPrepared())
        assert machine.committed == 0
        assert machine.handle(asked) == [PlanEmptyEpoch()] if wanted else [Rest()]

    def test_timers_fire_once_more_at_the_end(self) -> None:
        machine = idle(uses_timers=True)
        assert machine.handle(SourceAsked(None, is_over=True)) == [PlanEmptyEpoch()]
        walked(machine, SourceAsked(EMPTY), CheckpointsSettled(), BarrierSet(None))
        walked(machine, ended(machine), OutputPrepared(), CheckpointCompleted(1, stops_job=False))
        walked(machine, OutputCommitted(1), CheckpointsSettled())
        assert machine.handle(SourceAsked(None, is_over=True)) == [CloseSlots()]


class TestSavepoints:
    def test_one_goes_with_the_next_barrier(self) -> None:
        machine = idle()
        request = SavepointRequest("somewhere", stops_job=False)
        machine.handle(request)
        assert machine.handle(SourceAsked(None)) == [PlanEmptyEpoch()]
        assert machine.handle(SourceAsked(NEXT)) == [SetBarrier(1, request, is_needed=False)]
        assert machine.savepoints == []

    def test_a_job_that_stops_with_one_waits_for_it_and_ends_well(self) -> None:
        request = SavepointRequest("somewhere", stops_job=True)
        machine = running(barrier=BarrierSet(TRIGGER, request))
        walked(machine, ended(machine), OutputPrepared())
        assert machine.phase is Phase.COMMITTING
        machine.handle(CheckpointCompleted(1, stops_job=True))
        walked(machine, OutputCommitted(1), CheckpointsSettled())
        assert machine.handle(SourceAsked(None)) == [CloseSlots()]

    def test_where_it_fails_a_job_whose_time_has_ended_goes_back(self) -> None:
        request = SavepointRequest("somewhere", stops_job=True, drains=True)
        machine = running(barrier=BarrierSet(TRIGGER, request))
        walked(machine, ended(machine), OutputPrepared())
        (end,) = machine.handle(CheckpointsSettled())
        assert isinstance(end, EndAttempt)
        assert "event time had ended" in str(end.error)

    def test_without_checkpoints_it_is_refused(self) -> None:
        (refused,) = idle(has_checkpoints=False).handle(SavepointRequest("somewhere", stops_job=False))
        assert isinstance(refused, RefuseSavepoint)
        assert isinstance(refused.error, ConfigurationError)


class TestFailures:
    def test_what_runs_is_cancelled_and_its_end_awaited(self) -> None:
        machine = running()
        assert machine.handle(Failed(BROKEN)) == [CancelEpoch()]
        assert machine.status is JobStatus.RESTARTING
        assert machine.handle(EpochEnded(None, None, machine.run - 1)) == [], "of another run"
        assert machine.handle(ended(machine, SparkJobError("cancelled"))) == [EndAttempt(BROKEN)]
        assert machine.handle(ATTEMPT_ENDED) == [Pause(1, 50, BROKEN)]
        assert machine.handle(PauseEnded()) == [BeginAttempt(1)]
        assert machine.handle(AttemptBegun(0)) == [GoBack(0)]
        assert machine.handle(WentBack()) == []
        assert machine.phase is Phase.IDLE

    @pytest.mark.parametrize("begun", [(), (AttemptBegun(0),)], ids=["beginning", "going back"])
    def test_an_attempt_that_fails_while_it_begins_is_followed_by_a_pause(self, begun: Any) -> None:
        machine = idle(restarts=2)
        walked(machine, Failed(BROKEN), ATTEMPT_ENDED, PauseEnded(), *begun)
        away = CheckpointStorageError("the storage is away")
        assert machine.handle(InstructionFailed(away)) == [EndAttempt(away)], "its own failure counts"
        told = AttemptEnded(away, falls_back=False, now_ms=0)
        assert machine.handle(told) == [Pause(2, 50, away)]

    def test_what_going_back_commits_is_told_of(self) -> None:
        machine = idle()
        walked(machine, Failed(BROKEN), ATTEMPT_ENDED, PauseEnded())
        assert machine.handle(AttemptBegun(3)) == [GoBack(3)]
        assert machine.take_announced() == [1, 2, 3]

    def test_before_the_job_is_taken_over_nothing_is_committed_and_told_of(self) -> None:
        machine = made()
        walked(machine, JobStarted(), AttemptBegun(7), JobClaimed(7, restores=True))
        walked(machine, ended(machine, BROKEN), ATTEMPT_ENDED, PauseEnded())
        assert machine.handle(AttemptBegun(7)) == [ClaimJob()]
        assert machine.take_announced() == []

    def test_the_first_failure_counts(self) -> None:
        machine = running()
        walked(machine, Failed(BROKEN), Failed(SlotLostError("a slot died of it")))
        assert machine.handle(ended(machine)) == [EndAttempt(BROKEN)]

    @pytest.mark.parametrize("is_running", [False, True])
    def test_who_cancels_is_heard_before_it(self, is_running: bool) -> None:
        machine = running() if is_running else idle()
        walked(machine, Failed(BROKEN), CancelJob())
        if is_running:
            machine.handle(ended(machine))
        assert machine.handle(ATTEMPT_ENDED) == [CloseSlots()]
        machine.handle(SlotsClosed())
        assert machine.status is JobStatus.CANCELED
        assert isinstance(machine.error, JobCancelledError)

    def test_one_who_was_followed_ends_as_failed_also_when_cancelled(self) -> None:
        machine = idle()
        machine.handle(CancelJob())
        machine.handle(AttemptEnded(JobSupersededError("newer"), falls_back=False, now_ms=0))
        assert (machine.phase, machine.status) == (Phase.ENDED, JobStatus.FAILED)

    def test_when_no_restart_is_left_the_job_says_how_often_it_was_tried(self) -> None:
        machine = idle(restarts=1)
        for _ in range(2):
            machine.handle(Failed(BROKEN))
            machine.handle(ATTEMPT_ENDED)
            if machine.phase is not Phase.ENDED:
                walked(machine, PauseEnded(), AttemptBegun(0), WentBack())
        assert isinstance(machine.error, JobFailedError)
        assert machine.error.__cause__ is BROKEN
        assert "after 1 restarts" in str(machine.error)

    def test_what_came_before_the_end_of_an_epoch_ends_the_attempt(self) -> None:
        machine = running()
        machine.handle(CancelJob())
        (end,) = machine.handle(ended(machine))
        assert isinstance(end.error, JobCancelledError)

    @pytest.mark.parametrize("report", [TaskReport(5, 1, "a", error=BROKEN), TaskReport(5, 1, "a")])
    def test_reports_of_other_attempts_count_for_nothing(self, report: TaskReport) -> None:
        assert running().handle(report) == []

    def test_a_task_that_asked_others_may_not_end_twice_in_an_epoch(self) -> None:
        machine = running()
        asked = TaskReport(0, 1, "ask to sums[3]", is_only_run=True)
        for report in (asked, TaskReport(0, 1, "ask to sums[4]", is_only_run=True), TaskReport(0, 1, "a")):
            assert machine.handle(report) == [CountReport(report)]
        assert machine.handle(TaskReport(0, 1, "a")) == [CountReport(TaskReport(0, 1, "a"))]
        assert machine.handle(asked) == [CancelEpoch()]
        (end,) = machine.handle(ended(machine))
        assert isinstance(end.error, RuntimeFailure)
        assert "'ask to sums[3]' has ended twice in an epoch" in str(end.error)

    def test_in_the_next_epoch_it_ends_again(self) -> None:
        machine = running()
        machine.handle(TaskReport(0, 1, "ask to sums[3]", is_only_run=True))
        walked(machine, ended(machine), OutputPrepared(), SourceAsked(NEXT), NO_BARRIER)
        again = TaskReport(0, 2, "ask to sums[3]", is_only_run=True)
        assert machine.handle(again) == [CountReport(again)]

    def test_a_copy_of_a_task_may_fail_when_its_epoch_is_over(self) -> None:
        machine = running()
        late, real = TaskReport(0, 1, "a", error=BROKEN), TaskReport(0, 2, "a", error=BROKEN)
        machine.handle(ended(machine))
        assert machine.handle(late) == []
        machine.handle(OutputPrepared())
        assert machine.handle(late) == []
        walked(machine, SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(late) == []
        assert machine.handle(real) == [CancelEpoch()]

    def test_such_a_copy_may_end_once_more_and_counts_for_nothing(self) -> None:
        machine = running()
        asked, again = (TaskReport(0, epoch, "ask to sums[3]", is_only_run=True) for epoch in (1, 2))
        walked(machine, asked, ended(machine))
        assert machine.handle(asked) == []
        machine.handle(OutputPrepared())
        assert machine.handle(asked) == []
        walked(machine, SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(asked) == []
        assert machine.handle(again) == [CountReport(again)]

    def test_a_task_that_starts_a_slot_fails_the_attempt(self) -> None:
        machine = made()
        walked(machine, JobStarted(), AttemptBegun(7), JobClaimed(7, restores=True))
        assert machine.handle(TaskReport(0, 7, "count-1[0]", error=BROKEN)) == [CancelEpoch()]

    def test_a_slot_of_another_attempt_is_no_loss(self) -> None:
        machine = running()
        assert machine.handle(SlotLost(5, SlotId("a", 0), BROKEN)) == []
        assert machine.handle(SlotLost(0, SlotId("a", 0), BROKEN)) == [CancelEpoch()]

    def test_while_it_waits_for_its_restart(self) -> None:
        machine = idle()
        walked(machine, Failed(BROKEN), ATTEMPT_ENDED)
        (refused,) = machine.handle(SavepointRequest("somewhere", stops_job=True))
        assert isinstance(refused, RefuseSavepoint)
        assert isinstance(refused.error, CheckpointError)
        assert machine.handle(Failed(SlotLostError("gone"))) == [], "it is gone with its attempt"
        assert machine.handle(PauseEnded()) == [BeginAttempt(1)]
        assert machine.handle(InstructionFailed(BROKEN)) == [EndAttempt(BROKEN)]

    def test_what_cannot_restart_any_more_does_not_wait_for_it(self) -> None:
        machine = idle()
        walked(machine, Failed(BROKEN), ATTEMPT_ENDED)
        gone = SparkUnavailableError("gone")
        assert machine.handle(Failed(gone)) == [EndAttempt(gone)]
        machine.handle(AttemptEnded(gone, falls_back=False, now_ms=0))
        assert (machine.phase, machine.error) == (Phase.ENDED, gone)

    def test_an_engine_that_does_not_begin_need_not_be_waited_for(self) -> None:
        machine = running()
        assert machine.handle(InstructionFailed(BROKEN, begins_run=True)) == [EndAttempt(BROKEN)]
        assert not machine.is_running

    def test_what_fails_while_the_functions_are_closed_is_logged(self) -> None:
        machine = idle()
        assert machine.handle(ConsumerLeft()) == [CloseSlots()]
        late = TaskReport(0, 1, "a", error=BROKEN)
        assert machine.handle(late) == [LogLateFailure(BROKEN)]
        machine.handle(SlotsClosed())
        assert (machine.status, machine.error) == (JobStatus.CANCELED, None)

    def test_that_the_slots_of_a_cancelled_job_are_gone_is_not(self) -> None:
        """What the functions raise when they are closed still is."""
        machine = running()
        assert machine.handle(CancelJob()) == [CancelEpoch()]
        assert machine.is_cancelled
        walked(machine, ended(machine), ATTEMPT_ENDED)
        assert machine.phase is Phase.CLOSING
        assert machine.handle(SlotLost(0, SlotId("a", 0), SlotLostError("cut off"))) == []
        raised = UserFunctionError("in close()")
        assert machine.handle(Failed(raised)) == [LogLateFailure(raised)]


def with_one_ahead(barrier: BarrierSet = NO_BARRIER) -> JobMachine:
    """Return a job whose first epoch runs while the second one is shuffled."""
    machine = running(barrier=barrier, shuffles_ahead=True)
    machine.handle(EpochStarted())
    return machine


class TestOneEpochAhead:
    def test_it_is_shuffled_while_the_one_before_runs_and_runs_in_its_turn(self) -> None:
        machine = running(shuffles_ahead=True)
        assert machine.handle(EpochStarted()) == [ShuffleAhead(2)]
        assert machine.handle(ShuffledAhead(2)) == [], "there is never more than one"
        walked(machine, ended(machine), OutputPrepared(), SourceAsked(NEXT))
        assert machine.handle(NO_BARRIER) == [RunEpoch(2, 2, NEXT, None, is_final=False)]
        assert machine.handle(EpochStarted()) == [ShuffleAhead(3)]

    def test_where_it_is_still_being_shuffled_the_next_one_waits_for_that(self) -> None:
        machine = with_one_ahead()
        walked(machine, ended(machine), OutputPrepared(), SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(EpochStarted()) == []
        assert machine.handle(ShuffledAhead(2)) == [ShuffleAhead(3)]

    def test_one_that_is_shuffled_between_two_epochs_brings_nothing_about(self) -> None:
        machine = with_one_ahead()
        walked(machine, ended(machine), OutputPrepared())
        assert machine.handle(ShuffledAhead(2)) == []
        assert not machine.is_busy

    def test_without_the_setting_there_is_none(self) -> None:
        assert running().handle(EpochStarted()) == []

    def test_there_is_none_after_the_last_one(self) -> None:
        machine = running(LAST, shuffles_ahead=True)
        assert machine.handle(EpochStarted()) == []

    def test_there_is_none_after_the_savepoint_with_which_the_job_stops(self) -> None:
        request = SavepointRequest("somewhere", stops_job=True)
        machine = running(barrier=BarrierSet(TRIGGER, request), shuffles_ahead=True)
        assert machine.handle(EpochStarted()) == []

    @pytest.mark.parametrize("epoch_ends_first", [True, False])
    def test_a_failure_waits_for_the_end_of_both(self, epoch_ends_first: bool) -> None:
        machine = with_one_ahead()
        assert machine.handle(Failed(BROKEN)) == [CancelEpoch()]
        first, second = ended(machine), ShuffledAhead(2)
        if not epoch_ends_first:
            first, second = second, first
        assert machine.handle(first) == []
        assert machine.handle(second) == [EndAttempt(BROKEN)]
        assert not machine.is_busy

    def test_a_failure_between_two_epochs_waits_for_its_end(self) -> None:
        machine = with_one_ahead()
        walked(machine, ended(machine), OutputPrepared())
        assert machine.handle(CancelJob()) == [CancelEpoch()]
        (end,) = machine.handle(ShuffledAhead(2))
        assert isinstance(end, EndAttempt)

    def test_the_next_attempt_shuffles_it_anew(self) -> None:
        machine = with_one_ahead()
        walked(machine, Failed(BROKEN), ended(machine), ShuffledAhead(2))
        walked(machine, ATTEMPT_ENDED, PauseEnded(), AttemptBegun(0), WentBack())
        walked(machine, SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(EpochStarted()) == [ShuffleAhead(2)]

    def test_an_epoch_that_does_not_begin_is_not_waited_for_but_what_is_ahead_is(self) -> None:
        machine = with_one_ahead()
        walked(machine, ended(machine), OutputPrepared(), SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(InstructionFailed(BROKEN, begins_run=True)) == [CancelEpoch()]
        assert machine.handle(ShuffledAhead(2)) == [EndAttempt(BROKEN)]

    def test_a_task_that_fails_ahead_fails_the_job_only_when_its_epoch_runs(self) -> None:
        machine = with_one_ahead()
        late, counted = TaskReport(0, 2, "a", error=BROKEN), TaskReport(0, 2, "a")
        assert machine.handle(late) == []
        assert machine.handle(counted) == [CountReport(counted)]
        walked(machine, ShuffledAhead(2), ended(machine), OutputPrepared())
        assert machine.handle(late) == []
        walked(machine, SourceAsked(NEXT), NO_BARRIER)
        assert machine.handle(late) == [CancelEpoch()]

    def test_a_task_of_the_running_epoch_still_fails_it(self) -> None:
        assert with_one_ahead().handle(TaskReport(0, 1, "a", error=BROKEN)) == [CancelEpoch()]


class TestTheTable:
    def test_every_event_can_happen(self) -> None:
        told = {event for table in machine._TRANSITIONS.values() for event in table} | set(machine._ANYTIME)
        assert told == set(get_args(events.Event))

    def test_every_instruction_is_carried_out(self) -> None:
        assert set(job._EXECUTE) == set(get_args(instructions.Instruction))

    def test_every_phase_has_its_row(self) -> None:
        assert set(machine._TRANSITIONS) == set(Phase)

    @pytest.mark.parametrize(
        "event", [JobStarted(), WentBack(), OutputPrepared(), SlotsClosed(), PauseEnded()]
    )
    def test_what_cannot_happen_is_an_error_that_shows_phase_and_event(self, event: Any) -> None:
        with pytest.raises(ImpossibleEventError, match=rf"idle.*{type(event).__name__}"):
            idle().handle(event)


# --- random lives --------------------------------------------------------------------------------


@attrs.define
class Life:
    """Answers a machine at random as a driver loop might, and checks what must hold."""

    rng: random.Random
    machine: JobMachine
    seen: Counter[str] = attrs.Factory(Counter)
    engine: int = 0
    ahead: int | None = None
    restored: int = 0
    pauses: int = 0
    events: list[Any] = attrs.Factory(list)

    def tell(self, event: Any) -> None:
        self.events.append(event)
        committed = self.machine.committed
        asked = self.machine.handle(event)
        self.seen[type(event).__name__] += 1
        if not isinstance(event, (AttemptBegun, JobClaimed)):
            assert self.machine.committed >= committed
        for instruction in asked:
            self.carry_out(instruction)

    def carry_out(self, instruction: Any) -> None:
        self.seen[type(instruction).__name__] += 1
        self.check(instruction)
        answer = self.answer(instruction)
        fails = answer is not None and self.rng.random() < 0.03
        if fails and not isinstance(instruction, (EndAttempt, CloseSlots, ShuffleAhead)):
            answer = InstructionFailed(BROKEN)
        if isinstance(instruction, (StartSlots, RunEpoch)) and self.rng.random() < 0.03:
            self.engine, answer = 0, InstructionFailed(BROKEN, begins_run=True)
        if answer is not None:
            self.tell(answer)

    def check(self, instruction: Any) -> None:
        """Check that an instruction may come now, and note what runs from now on."""
        if isinstance(instruction, (StartSlots, RunEpoch)):
            assert self.engine == 0, "two things run at once"
            self.engine = instruction.run
        if isinstance(instruction, ShuffleAhead):
            assert self.engine, "there is nothing it could be ahead of"
            assert (self.ahead, instruction.number) == (None, self.machine.epoch + 2)
            self.ahead = instruction.number
        self.pauses += isinstance(instruction, Pause)
        if isinstance(instruction, BeginAttempt):
            assert instruction.attempt == self.pauses, "an attempt began without a pause before it"
        if isinstance(instruction, (StartSlots, TakeOver, BeginAttempt)):
            assert self.ahead is None, "what was ahead in the attempt before still runs"
        if isinstance(instruction, TakeOver):
            assert self.engine == 0

    def answer(self, instruction: Any) -> Any:
        rng, machine = self.rng, self.machine
        if isinstance(instruction, BeginAttempt):
            return AttemptBegun(self.restored)
        if isinstance(instruction, ClaimJob):
            return JobClaimed(self.restored, rng.random() < 0.5)
        if isinstance(instruction, SetBarrier):
            taken = instruction.savepoint if rng.random() < 0.8 else None
            return BarrierSet(TRIGGER if rng.random() < 0.7 else None, taken)
        if isinstance(instruction, EndAttempt):
            assert (self.engine, self.ahead) == (0, None), "what was given up still runs"
            return AttemptEnded(instruction.error, rng.random() < 0.1, 0)
        if isinstance(instruction, CommitOutput):
            assert instruction.epoch > machine.committed
            self.restored = max(self.restored, instruction.epoch)
            return OutputCommitted(instruction.epoch)
        if isinstance(instruction, ShuffleAhead) and rng.random() < 0.3:
            self.ahead = None
            return ShuffledAhead(instruction.number)
        simple = {
            RunEpoch: EpochStarted(),
            GoBack: WentBack(),
            TakeOver: JobTakenOver(),
            PrepareOutput: OutputPrepared(),
            CloseSlots: SlotsClosed(),
            PlanEmptyEpoch: SourceAsked(Step(None, rng.random() < 0.3)),
        }
        return simple.get(type(instruction))

    def happen(self) -> None:
        """Tell of something that may happen now."""
        rng, machine = self.rng, self.machine
        draw = rng.random()
        if draw < 0.04:
            self.tell(Failed(BROKEN))
        elif draw < 0.05:
            self.tell(CancelJob())
        elif draw < 0.10:
            self.tell(SavepointRequest("somewhere", rng.random() < 0.5, drains=rng.random() < 0.3))
        elif draw < 0.25 and machine.epoch > machine.committed and machine.has_taken_over:
            self.tell(CheckpointCompleted(machine.epoch, machine.phase is Phase.COMMITTING))
        elif self.ahead is not None and draw < 0.5:
            number, self.ahead = self.ahead, None
            self.tell(ShuffledAhead(number))
        elif self.engine and draw < 0.8:
            run, self.engine = self.engine, 0
            error = BROKEN if rng.random() < 0.1 else None
            self.tell(EpochEnded(None if error else [], error, run))
        else:
            self.go_on()

    def go_on(self) -> None:
        """Tell what the driver loop tells of itself, if there is anything."""
        rng, phase = self.rng, self.machine.phase
        asked = SourceAsked(NEXT if rng.random() < 0.7 else None, rng.random() < 0.2)
        settled = CheckpointsSettled()
        own = {
            Phase.IDLE: asked,
            Phase.DRAINING: settled,
            Phase.COMMITTING: settled,
            Phase.PAUSED: PauseEnded(),
        }
        if phase in own:
            self.tell(own[phase])


@pytest.mark.parametrize("block", range(4))
def test_random_lives_hold_what_the_theory_says(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * 250, (block + 1) * 250):
        life = Life(
            random.Random(seed), made(restarts=5, uses_timers=seed % 2 == 0, shuffles_ahead=seed % 3 > 0)
        )
        life.tell(JobStarted())
        for _ in range(400):
            if life.machine.phase is Phase.ENDED:
                break
            life.happen()
        assert life.engine == 0 or life.machine.is_running, seed
        assert life.ahead == life.machine.ahead, seed
        seen += life.seen
        seen[life.machine.status.name] += 1
    assert {
        "FINISHED",
        "CANCELED",
        "FAILED",
        "CancelEpoch",
        "GoBack",
        "StartSlots",
        "RefuseSavepoint",
        "ShuffleAhead",
        "ShuffledAhead",
    } <= set(seen)
