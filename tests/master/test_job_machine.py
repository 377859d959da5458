"""The script of a job: what it asks for in each phase, what cannot happen, and random lives of jobs."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from typing import Any, get_args

import pytest

from pyflinkstate import JobStatus, SplitEpoch
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    EpochBrokenOffError,
    ImpossibleEventError,
    JobCancelledError,
    JobFailedError,
    JobSupersededError,
    PyFlinkStateError,
    SlotLostError,
    SparkJobError,
    SparkUnavailableError,
    UserFunctionError,
)
from pyflinkstate.runtime.engine import EpochEnded
from pyflinkstate.runtime.master import SavepointRequest, epochs, loop, machine
from pyflinkstate.runtime.master.epochs import (
    AlignBarrier,
    Announce,
    AskSource,
    AttemptEnded,
    BeginAttempt,
    CancelEpoch,
    CheckpointCompleted,
    Claim,
    ClaimJob,
    CloseSlots,
    CommitOutput,
    ConfirmCheckpoint,
    ConsumerLeft,
    CountReport,
    EndAttempt,
    Epoch,
    EpochsInFlight,
    Failed,
    Found,
    GoBack,
    LogLateFailure,
    Pause,
    PhaseOver,
    PrepareOutput,
    RunEpoch,
    SetBarrier,
    ShuffleAhead,
    ShuffledAhead,
    Stage,
    StartSlots,
    StopAtCheckpoint,
    TakeOver,
    Wait,
)
from pyflinkstate.runtime.master.machine import TABLE, JobFacts, JobMachine, Phase
from pyflinkstate.runtime.master.planner import Step
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.slots import SlotLost
from pyflinkstate.runtime.wire import CancelJob, CheckpointTrigger, SlotId, TaskReport

BROKEN = SparkJobError("the epoch has failed")
NEXT, LAST = Step(None, False), Step(None, True)
NOTHING = Found(None)
TRIGGER = CheckpointTrigger(1, 0, "chk-1")
DONE = CheckpointCompleted(1, 1)
OVER = PhaseOver()


def made(restarts: int = 1, delay_ms: int = 50, **facts: Any) -> JobMachine:
    settings = {"has_checkpoints": True, **facts}
    return JobMachine(JobFacts("orders", **settings), FixedDelayRestart(restarts, delay_ms).tracker())


class Driven:
    """A job whose script runs until it waits, with the answers that a test has chosen.

    ``answers`` has an answer or a failure by the kind of an instruction, or what makes it of the instruction;
    a list has one for each time.
    """

    def __init__(self, job: JobMachine, **answers: Any) -> None:
        self.job = job
        self.flight = job.flight
        self.answers: dict[str, Any] = {
            "BeginAttempt": lambda _: Epoch(0),
            "ClaimJob": lambda claim: Claim(claim.epoch, restores=False),
            "AskSource": Found(NEXT),
            "ShuffleAhead": NEXT,
            **answers,
        }
        self.asked: list[Any] = []
        #: What ``SetBarrier`` notes at the epoch.
        self.trigger: CheckpointTrigger | None = None
        self.takes_savepoints = True
        self._script = job.life()
        self._go_on(None)

    def tell(self, *events: Any) -> list[Any]:
        """Tell the script one event after the other; return what it asks for because of the last one."""
        for event in events:
            self._go_on(event)
        return self.asked

    @property
    def run(self) -> int:
        """The request that the engine runs."""
        running = self.flight.running
        return 0 if running is None else running.run

    def ended(self, error: PyFlinkStateError | None = None) -> EpochEnded:
        return EpochEnded(None if error else [], error, self.run)

    def _go_on(self, answer: Any) -> None:
        self.asked = []
        instruction = self._next(answer)
        while not isinstance(instruction, (Wait, type(None))):
            self.asked.append(instruction)
            instruction = self._next(self._answer(instruction))

    def _next(self, answer: Any) -> Any:
        try:
            is_failure = isinstance(answer, PyFlinkStateError)
            return self._script.throw(answer) if is_failure else self._script.send(answer)
        except StopIteration:
            return None

    def _answer(self, instruction: Any) -> Any:
        name = type(instruction).__name__
        if name in self.answers:
            answer = self.answers[name]
            answer = answer.pop(0) if isinstance(answer, list) else answer
            return answer(instruction) if callable(answer) else answer
        if isinstance(instruction, SetBarrier):
            instruction.epoch.trigger = self.trigger
            instruction.epoch.savepoint = instruction.savepoint if self.takes_savepoints else None
        if isinstance(instruction, EndAttempt):
            return AttemptEnded(instruction.error)
        return [] if isinstance(instruction, (SetBarrier, AlignBarrier, ConfirmCheckpoint)) else None


def names(asked: list[Any]) -> list[str]:
    return [type(instruction).__name__ for instruction in asked]


def idle(answers: dict[str, Any] | None = None, **facts: Any) -> Driven:
    driven = Driven(made(**facts), **(answers or {}))
    driven.tell(OVER)
    assert driven.job.phase is Phase.IDLE
    return driven


def running(step: Step = NEXT, trigger: CheckpointTrigger | None = None, **facts: Any) -> Driven:
    driven = idle({"AskSource": Found(step)}, **facts)
    driven.trigger = trigger
    driven.tell(OVER, *([OVER] if step.is_last else []))
    assert driven.job.phase is Phase.RUNNING
    return driven


def restoring(epoch: int = 7, **facts: Any) -> Driven:
    return Driven(
        made(**facts),
        BeginAttempt=lambda _: Epoch(epoch),
        ClaimJob=lambda claim: Claim(claim.epoch, restores=True),
    )


class TestTheBeginning:
    def test_nothing_is_taken_over_before_the_slots_have_restored(self) -> None:
        driven = restoring()
        driven.answers["ClaimJob"] = Claim(Epoch(8), restores=True)  # an older driver was still at work
        asked = driven.tell(OVER)
        assert names(asked) == ["BeginAttempt", "ClaimJob", "StartSlots"]
        assert asked[0] == BeginAttempt(0, is_final=False)
        assert (driven.job.epoch, driven.flight.committed, driven.run) == (8, 8, 1)
        assert driven.job.phase is Phase.RESTORING
        assert driven.tell(driven.ended()) == [TakeOver(8)]
        assert (driven.job.phase, driven.job.status) == (Phase.IDLE, JobStatus.RUNNING)


class TestEpochs:
    def test_the_way_of_an_epoch(self) -> None:
        driven = idle()
        asked = driven.tell(OVER)
        assert names(asked) == ["AskSource", "SetBarrier", "RunEpoch"]
        epoch = asked[1].epoch
        assert asked[1] == SetBarrier(epoch, None, is_needed=False)
        assert (epoch.number, epoch.stage, epoch.run, epoch.is_final) == (1, Stage.RUNNING, 1, False)
        results: list[Any] = []
        driven.answers["PrepareOutput"] = lambda prepare: results.extend(prepare.epoch.results)
        asked = driven.tell(EpochEnded([["a"]], None, 1))
        assert asked == [PrepareOutput(epoch), AlignBarrier(epoch)]
        assert results == [["a"]]
        assert epoch.stage is Stage.PREPARED
        assert (driven.job.phase, driven.job.epoch, driven.flight.committed) == (Phase.IDLE, 1, 0)
        assert driven.tell(DONE) == [CommitOutput(epoch), ConfirmCheckpoint(1)]
        assert (epoch.stage, driven.flight.committed) == (Stage.COMMITTED, 1)

    def test_without_checkpoints_an_epoch_is_committed_as_it_ends(self) -> None:
        driven = running(has_checkpoints=False)
        assert driven.tell(driven.ended())[1:] == [CommitOutput(driven.flight.last)]
        assert driven.tell(OVER)[0] == Announce(range(1, 2))
        driven.tell(driven.ended())
        assert driven.tell(OVER)[0] == Announce(range(2, 3))

    def test_the_last_epoch_waits_until_nothing_is_under_way_and_then_for_its_checkpoint(self) -> None:
        driven = idle({"AskSource": [Found(LAST), Found(None, is_over=True)]})
        driven.trigger = TRIGGER
        assert names(driven.tell(OVER)) == ["AskSource"]
        assert driven.job.phase is Phase.DRAINING
        asked = driven.tell(OVER)
        assert asked[0] == SetBarrier(asked[0].epoch, None, is_needed=True)
        assert asked[0].epoch.is_final
        driven.tell(driven.ended())
        assert driven.job.phase is Phase.COMMITTING
        assert driven.tell(DONE) == [CommitOutput(driven.flight.last), ConfirmCheckpoint(1)]
        driven.tell(OVER)
        assert driven.tell(OVER) == [Announce(range(1, 2)), AskSource(driven.flight.last), CloseSlots()]
        driven.tell(OVER)
        assert (driven.job.phase, driven.job.status) == (Phase.ENDED, JobStatus.FINISHED)

    def test_a_commit_that_fails_ends_the_attempt_but_what_follows_is_done(self) -> None:
        driven = running()
        driven.tell(driven.ended())
        driven.answers["CommitOutput"] = BROKEN
        assert driven.tell(DONE) == [CommitOutput(driven.flight.last), ConfirmCheckpoint(1, BROKEN)]
        assert driven.job.phase is Phase.STOPPING
        assert driven.flight.committed == 0

    @pytest.mark.parametrize(
        ("facts", "found", "wanted"),
        [
            ({}, Found(None), False),
            ({}, Found(None, is_over=True, has_pending=True), False),
            ({}, Found(None, is_over=True), True),
            ({}, Found(None, is_due=True), True),
            ({"commits_every_epoch": True}, Found(None), True),
            ({"has_checkpoints": False}, Found(None, is_due=True), False),
            ({"has_checkpoints": False}, Found(None, timers_are_due=True), True),
        ],
    )
    def test_when_an_epoch_of_nothing_is_worth_its_barrier(
        self, facts: dict[str, Any], found: Found, wanted: bool
    ) -> None:
        driven = running(**facts)
        driven.tell(driven.ended())
        driven.answers["AskSource"] = found
        driven.tell(OVER)
        assert (driven.job.phase is Phase.IDLE) is not wanted

    def test_a_source_with_nothing_is_asked_again_after_a_rest(self) -> None:
        driven = idle({"AskSource": NOTHING})
        script = driven._script
        assert script.send(OVER) == AskSource(driven.flight.last)
        assert script.send(NOTHING) == Wait(rests=True)
        assert script.send(TaskReport(5, 1, "of another attempt")) == Wait(rests=False)
        assert script.send(OVER) == AskSource(driven.flight.last)


class TestSavepoints:
    def test_one_goes_with_the_next_barrier(self) -> None:
        driven = idle({"AskSource": NOTHING})
        request = SavepointRequest("somewhere", stops_job=False)
        driven.tell(request)
        asked = driven.tell(OVER)
        assert SetBarrier(asked[1].epoch, request, is_needed=False) == asked[1]
        assert driven.job.savepoints == []

    def test_one_whose_barrier_fails_waits_for_the_next_attempt(self) -> None:
        driven = idle()
        request = SavepointRequest("somewhere", stops_job=False)
        driven.answers["SetBarrier"] = BROKEN
        driven.tell(request, OVER)
        assert driven.job.phase is Phase.STOPPING
        assert driven.job.savepoints == [request]
        assert not request.done.done()

    def test_a_job_that_stops_with_one_waits_for_it_and_ends_well(self) -> None:
        driven = idle()
        driven.trigger = TRIGGER
        driven.tell(SavepointRequest("somewhere", stops_job=True), OVER)
        driven.tell(driven.ended())
        assert driven.job.phase is Phase.COMMITTING
        driven.tell(CheckpointCompleted(1, 1, stops_job=True), OVER)
        assert driven.tell(OVER) == [Announce(range(1, 2)), CloseSlots()]

    def test_where_it_fails_a_job_whose_time_has_ended_goes_back(self) -> None:
        driven = idle()
        driven.tell(SavepointRequest("somewhere", stops_job=True, drains=True), OVER)
        driven.tell(driven.ended(), OVER)
        end = driven.tell(OVER)[0]
        assert isinstance(end, EndAttempt)
        assert "event time had ended" in str(end.error)

    def test_without_checkpoints_it_is_refused(self) -> None:
        request = SavepointRequest("somewhere", stops_job=False)
        idle(has_checkpoints=False).tell(request)
        assert isinstance(request.done.exception(), ConfigurationError)


def with_one_ahead() -> Driven:
    """Return a job whose first epoch runs while the second one is shuffled."""
    return running(epochs_in_flight=2)


def told_to_restore() -> Driven:
    driven = restoring()
    driven.tell(OVER)
    return driven


ENDED = "the engine has ended the epoch that runs"
AWAY, GONE = CheckpointStorageError("the storage is away"), SparkUnavailableError("gone")
BROKEN_OFF = EpochBrokenOffError("a channel has ended")
DAMAGED = CorruptCheckpointError("damaged")
NOT_RESTORED = EpochEnded(None, DAMAGED, 1)
CANCELLED = EpochEnded(None, SparkJobError("cancelled"), 1)
ASKED, AGAIN = (TaskReport(0, epoch, "ask to sums[3]", is_only_run=True) for epoch in (1, 2))
ASKED_OTHER, DONE_A = TaskReport(0, 1, "ask to sums[4]", is_only_run=True), TaskReport(0, 1, "a")
LATE, REAL = (TaskReport(0, epoch, "a", error=BROKEN) for epoch in (1, 2))
#: By what they show: how the job is, answers from then on, the events with what the script asks for because
#: of each (a tuple: at first, a string: names of the last, None: anything), and how the job is in the end.
Story = tuple[Callable[[], Driven], dict[str, Any], list[tuple[Any, Any]], dict[str, Any]]
STORIES: dict[str, Story] = {
    "slots that cannot restore end the attempt, and nothing was touched": (
        lambda: restoring(restarts=0),
        {},
        [(OVER, None), (NOT_RESTORED, None), (OVER, [EndAttempt(DAMAGED)])],
        {
            "phase": Phase.ENDED,
            "status": JobStatus.FAILED,
            "error": DAMAGED,
            "has_taken_over": False,
            "has_begun": False,
        },
    ),
    "after falling back the job is claimed anew": (
        restoring,
        {"EndAttempt": AttemptEnded(DAMAGED, falls_back=True)},
        [
            (OVER, None),
            (NOT_RESTORED, None),
            (OVER, [EndAttempt(DAMAGED), Pause(1, 0, DAMAGED)]),
            (OVER, "BeginAttempt ClaimJob StartSlots"),
        ],
        {"phase": Phase.RESTORING},
    ),
    "slots that do not start are not waited for": (
        restoring,
        {"StartSlots": BROKEN},
        [(OVER, None)],
        {"phase": Phase.STOPPING, "flight.is_busy": False},
    ),
    "timers fire once more at the end": (
        lambda: idle({"AskSource": Found(None, is_over=True)}, uses_timers=True),
        {},
        [
            (OVER, "AskSource"),
            (OVER, "SetBarrier RunEpoch"),
            *((event, None) for event in (ENDED, DONE, OVER)),
            (OVER, "CloseSlots"),
        ],
        {"flight.newest.step": Step(None, is_last=True)},
    ),
    "where the commit of the savepoint that stops the job fails, the next attempt ends the job": (
        idle,
        {"CommitOutput": BROKEN, "BeginAttempt": Epoch(1)},
        [
            (SavepointRequest("somewhere", stops_job=True), []),
            (OVER, None),
            (ENDED, None),
            (CheckpointCompleted(1, 1, stops_job=True), None),
            (OVER, None),
            (OVER, "BeginAttempt GoBack"),
            (OVER, [Announce(range(1, 2)), CloseSlots()]),
        ],
        {"phase": Phase.CLOSING},
    ),
    "a barrier that fails the job ends the attempt before the epoch runs": (
        idle,
        {"SetBarrier": [[Failed(BROKEN)]]},
        [(OVER, None), (OVER, (EndAttempt(BROKEN),))],
        {"phase": Phase.PAUSED, "epoch": 0},
    ),
    "what is committed is not committed again": (
        running,
        {},
        [(ENDED, None), (DONE, None), (CheckpointCompleted(2, 1), [ConfirmCheckpoint(2)])],
        {"phase": Phase.IDLE},
    ),
    "what runs is cancelled and its end awaited; that of another run is none": (
        running,
        {},
        [
            (Failed(BROKEN), [CancelEpoch()]),
            (EpochEnded(None, None, 0), []),
            (CANCELLED, []),
            (OVER, [EndAttempt(BROKEN), Pause(1, 50, BROKEN)]),
            (OVER, [BeginAttempt(1, is_final=True), GoBack(0)]),
        ],
        {"phase": Phase.IDLE, "status": JobStatus.RUNNING},
    ),
    **{
        f"an attempt whose {name} fails is followed by a pause, and its own failure counts": (
            lambda: idle(restarts=2),
            {name: [AWAY]},
            [
                (Failed(BROKEN), []),
                (OVER, None),
                (OVER, None),
                (OVER, [EndAttempt(AWAY), Pause(2, 50, AWAY)]),
            ],
            {"phase": Phase.PAUSED},
        )
        for name in ("BeginAttempt", "GoBack")
    },
    "what going back commits is told of": (
        idle,
        {"BeginAttempt": Epoch(3)},
        [
            (Failed(BROKEN), []),
            (OVER, None),
            (OVER, [BeginAttempt(1, is_final=True), GoBack(3)]),
            (OVER, (Announce(range(1, 4)),)),
        ],
        {},
    ),
    "the first failure counts": (
        running,
        {},
        [
            (Failed(BROKEN), [CancelEpoch()]),
            (Failed(SlotLostError("a slot died of it")), []),
            (ENDED, []),
            (OVER, (EndAttempt(BROKEN),)),
        ],
        {},
    ),
    **{
        f"of an epoch that was broken off, {what}": (
            running,
            {},
            [
                (Failed(BROKEN_OFF), [CancelEpoch()]),
                (EpochEnded(None, error, 1), []),
                (OVER, (EndAttempt(counts),)),
            ],
            {},
        )
        for what, error, counts in (
            ("what the engine tells counts", BROKEN, BROKEN),
            ("the first failure counts if the engine knows no more", EpochBrokenOffError("so"), BROKEN_OFF),
        )
    },
    "that nothing could be cancelled does not count": (
        running,
        {"CancelEpoch": GONE},
        [(Failed(BROKEN), [CancelEpoch()]), (ENDED, []), (OVER, (EndAttempt(BROKEN),))],
        {},
    ),
    "one who was followed ends as failed, also when cancelled": (
        idle,
        {"EndAttempt": AttemptEnded(JobSupersededError("newer"))},
        [(CancelJob(), []), (OVER, None)],
        {"phase": Phase.ENDED, "status": JobStatus.FAILED},
    ),
    "without a restart the failure is told as it is": (
        lambda: idle(restarts=0),
        {},
        [(Failed(BROKEN), []), (OVER, [EndAttempt(BROKEN)])],
        {"phase": Phase.ENDED, "error": BROKEN},
    ),
    "the end of an attempt may fail itself": (
        idle,
        {"EndAttempt": GONE},
        [(Failed(BROKEN), []), (OVER, None)],
        {"phase": Phase.ENDED, "error": GONE},
    ),
    "functions that cannot be closed fail the job": (
        idle,
        {"AskSource": Found(None, is_over=True), "CloseSlots": BROKEN},
        [(OVER, None)],
        {"phase": Phase.ENDED, "error": BROKEN},
    ),
    "reports of other attempts count for nothing": (
        running,
        {},
        [(TaskReport(5, 1, "a", error=BROKEN), []), (TaskReport(5, 1, "a"), [])],
        {"phase": Phase.RUNNING},
    ),
    "a task that asked others may not end twice in an epoch": (
        running,
        {},
        [
            *((report, [CountReport(report)]) for report in (ASKED, ASKED_OTHER, DONE_A, DONE_A)),
            (ASKED, [CancelEpoch()]),
        ],
        {"phase": Phase.STOPPING},
    ),
    "such a copy may end once more after its epoch, and counts for nothing": (
        running,
        {},
        [
            (ASKED, [CountReport(ASKED)]),
            (ENDED, None),
            (ASKED, []),
            (OVER, None),
            (ASKED, []),
            (AGAIN, [CountReport(AGAIN)]),
        ],
        {"phase": Phase.RUNNING},
    ),
    "what a task does after its epoch changes nothing": (
        running,
        {},
        [(ENDED, None), (LATE, []), (OVER, None), (LATE, []), (REAL, [CancelEpoch()])],
        {"phase": Phase.STOPPING},
    ),
    "a task that starts a slot fails the attempt": (
        told_to_restore,
        {},
        [(TaskReport(0, 7, "count-1[0]", error=BROKEN), [CancelEpoch()])],
        {"phase": Phase.STOPPING},
    ),
    "a slot of another attempt is no loss": (
        running,
        {},
        [(SlotLost(5, SlotId("a", 0), BROKEN), []), (SlotLost(0, SlotId("a", 0), BROKEN), [CancelEpoch()])],
        {"phase": Phase.STOPPING},
    ),
    "an epoch that is still being shuffled when its turn comes runs, and the next one waits for that": (
        with_one_ahead,
        {},
        [(ENDED, None), (OVER, "RunEpoch"), (ShuffledAhead(2), "ShuffleAhead")],
        {"flight.newest.number": 3},
    ),
    "the last epoch may be planned ahead, and nothing comes after it": (
        lambda: idle({"ShuffleAhead": LAST}, epochs_in_flight=3),
        {},
        [(OVER, None), (ShuffledAhead(2), [])],
        {"flight.newest.number": 2},
    ),
    "an epoch that is shuffled between two others brings nothing about": (
        with_one_ahead,
        {},
        [(ENDED, None), (ShuffledAhead(2), [])],
        {"flight.is_busy": False},
    ),
    "one that the source does not have yet is asked for in its turn": (
        lambda: idle({"ShuffleAhead": None}, epochs_in_flight=2),
        {},
        [(OVER, None), (ENDED, None), (OVER, "AskSource SetBarrier RunEpoch ShuffleAhead")],
        {"flight.ahead": None},
    ),
    "without the setting none is ahead": (running, {}, [], {"flight.newest.number": 1}),
    "none is ahead after the last one": (
        lambda: running(LAST, epochs_in_flight=2),
        {},
        [],
        {"flight.newest.number": 1},
    ),
    "none is ahead after the savepoint with which the job stops": (
        lambda: idle(epochs_in_flight=2),
        {},
        [(SavepointRequest("somewhere", stops_job=True), []), (OVER, "RunEpoch")],
        {"flight.newest.number": 1},
    ),
    "a failure between two epochs waits for the end of what is ahead": (
        with_one_ahead,
        {},
        [(ENDED, None), (CancelJob(), [CancelEpoch()])],
        {"flight.is_busy": True},
    ),
    "and for no more than that": (
        with_one_ahead,
        {},
        [(ENDED, None), (CancelJob(), [CancelEpoch()]), (ShuffledAhead(2), [])],
        {"flight.is_busy": False},
    ),
    "the next attempt shuffles it anew": (
        with_one_ahead,
        {},
        [
            (Failed(BROKEN), [CancelEpoch()]),
            *((event, None) for event in (ENDED, ShuffledAhead(2), OVER, OVER)),
            (OVER, "ShuffleAhead"),
        ],
        {"flight.newest.number": 2},
    ),
    "an epoch that does not begin is not waited for, but what is ahead is": (
        with_one_ahead,
        {"RunEpoch": BROKEN},
        [
            (ENDED, None),
            (OVER, "RunEpoch CancelEpoch"),
            (ShuffledAhead(2), []),
            (OVER, (EndAttempt(BROKEN),)),
        ],
        {"flight.is_busy": False},
    ),
    "a task that fails ahead fails the job only when its epoch runs": (
        with_one_ahead,
        {},
        [
            (REAL, []),
            (TaskReport(0, 2, "a"), [CountReport(TaskReport(0, 2, "a"))]),
            (ShuffledAhead(2), None),
            (ENDED, None),
            (REAL, []),
            (OVER, None),
            (REAL, [CancelEpoch()]),
        ],
        {},
    ),
    "a task of the running epoch still fails it": (with_one_ahead, {}, [(LATE, [CancelEpoch()])], {}),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_the_script_asks_for(name: str) -> None:
    start, answers, events, end = STORIES[name]
    driven = start()
    driven.answers |= {name: [*one] if isinstance(one, list) else one for name, one in answers.items()}
    for event, expected in events:
        asked = driven.tell(driven.ended() if event is ENDED else event)
        if isinstance(expected, str):
            assert " ".join(names(asked)).endswith(expected), event
        elif expected is not None:
            assert asked[: len(expected)] == [*expected], event
            assert isinstance(expected, tuple) or len(asked) == len(expected), event
    assert {field: attrgetter(field)(driven.job) for field in end} == end


class TestFailures:
    def test_before_the_job_is_taken_over_nothing_is_committed_and_told_of(self) -> None:
        driven = restoring()
        driven.tell(OVER)
        driven.tell(driven.ended(BROKEN), OVER)
        driven.tell(OVER)
        driven.tell(driven.ended())
        assert not any(isinstance(instruction, Announce) for instruction in driven.tell(OVER))

    @pytest.mark.parametrize("is_running", [False, True])
    def test_who_cancels_is_heard_before_it(self, is_running: bool) -> None:
        driven = running() if is_running else idle()
        driven.tell(Failed(BROKEN), CancelJob("a signal"), CancelJob("another one"))
        if is_running:
            driven.tell(driven.ended())
        assert names(driven.tell(OVER)) == ["EndAttempt", "CloseSlots"]
        driven.tell(OVER)
        assert driven.job.status is JobStatus.CANCELED
        assert isinstance(driven.job.error, JobCancelledError)
        assert driven.job.error.context["by"] == "a signal"

    def test_when_no_restart_is_left_the_job_says_how_often_it_was_tried(self) -> None:
        driven = idle(restarts=1)
        driven.tell(Failed(BROKEN), OVER, OVER, Failed(BROKEN), OVER)
        assert isinstance(driven.job.error, JobFailedError)
        assert driven.job.error.__cause__ is BROKEN
        assert "after 1 restarts" in str(driven.job.error)

    def test_what_came_before_the_end_of_an_epoch_ends_the_attempt(self) -> None:
        driven = running()
        driven.tell(CancelJob(), driven.ended())
        end = driven.tell(OVER)[0]
        assert isinstance(end.error, JobCancelledError)

    def test_while_it_waits_for_its_restart(self) -> None:
        driven = idle()
        driven.tell(Failed(BROKEN), OVER)
        assert driven.job.phase is Phase.PAUSED
        request = SavepointRequest("somewhere", stops_job=True)
        assert driven.tell(request) == []
        assert isinstance(request.done.exception(), CheckpointError)
        assert driven.tell(Failed(SlotLostError("gone"))) == [], "it is gone with its attempt"
        assert driven.tell(OVER)[0] == BeginAttempt(1, is_final=True)

    @pytest.mark.parametrize("event", [Failed(SparkUnavailableError("gone")), CancelJob()])
    def test_what_cannot_restart_any_more_does_not_wait_for_it(self, event: Any) -> None:
        driven = idle()
        driven.tell(Failed(BROKEN), OVER, event)
        assert driven.job.phase is Phase.STOPPING
        end = driven.tell(OVER)[0]
        assert isinstance(end.error, (SparkUnavailableError, JobCancelledError))
        driven.tell(OVER) if driven.job.phase is Phase.CLOSING else None
        assert (driven.job.phase, driven.job.error) == (Phase.ENDED, end.error)

    def test_an_engine_that_does_not_begin_need_not_be_waited_for(self) -> None:
        driven = idle({"RunEpoch": BROKEN})
        driven.tell(OVER)
        assert not driven.flight.is_busy
        assert driven.tell(OVER)[0] == EndAttempt(BROKEN)

    def test_what_fails_while_the_functions_are_closed_is_logged(self) -> None:
        driven = idle()
        script = driven.job.consumer_left()
        assert next(script) == CloseSlots()
        assert script.send(None) == Wait()
        late = SlotLost(0, SlotId("a", 0), BROKEN)
        assert script.send(late) == LogLateFailure(BROKEN)
        assert script.send(None) == Wait()
        with pytest.raises(StopIteration):
            script.send(OVER)
        assert (driven.job.status, driven.job.error) == (JobStatus.CANCELED, None)

    def test_that_the_slots_of_a_cancelled_job_are_gone_is_not_logged(self) -> None:
        """What the functions raise when they are closed still is."""
        driven = running()
        assert driven.tell(CancelJob()) == [CancelEpoch()]
        driven.tell(driven.ended(), OVER)
        assert driven.job.phase is Phase.CLOSING
        assert driven.tell(SlotLost(0, SlotId("a", 0), SlotLostError("cut off"))) == []
        raised = UserFunctionError("in close()")
        assert driven.tell(Failed(raised)) == [LogLateFailure(raised)]


class TestOneEpochAhead:
    def test_it_is_shuffled_while_the_one_before_runs_and_runs_in_its_turn(self) -> None:
        driven = idle(epochs_in_flight=2)
        (running, shuffled) = driven.tell(OVER)[-2:]
        assert shuffled == ShuffleAhead(running.epoch)
        ahead = driven.flight.newest
        assert (ahead.number, ahead.stage, ahead.step) == (2, Stage.PLANNED, NEXT)
        assert driven.tell(ShuffledAhead(2)) == [], "there is never more than one"
        driven.tell(driven.ended())
        driven.answers["AskSource"] = lambda asked: Found(asked.ahead)
        asked = driven.tell(OVER)
        assert asked[-2:] == [RunEpoch(ahead), ShuffleAhead(ahead)]
        assert ahead.stage is Stage.RUNNING

    @pytest.mark.parametrize("epoch_ends_first", [True, False])
    def test_a_failure_waits_for_the_end_of_both(self, epoch_ends_first: bool) -> None:
        driven = with_one_ahead()
        assert driven.tell(Failed(BROKEN)) == [CancelEpoch()]
        first, second = driven.ended(), ShuffledAhead(2)
        if not epoch_ends_first:
            first, second = second, first
        driven.tell(first)
        assert driven.flight.is_busy
        driven.tell(second)
        assert not driven.flight.is_busy
        assert driven.tell(OVER)[0] == EndAttempt(BROKEN)

    def test_three_epochs_may_be_in_flight(self) -> None:
        driven = running(epochs_in_flight=3)
        assert names(driven.tell(ShuffledAhead(2))) == ["ShuffleAhead"]
        assert driven.tell(ShuffledAhead(3)) == []
        assert [driven.flight.get(n).stage for n in (1, 2, 3)] == [
            Stage.RUNNING,
            Stage.PLANNED,
            Stage.PLANNED,
        ]

    def test_one_that_waits_for_its_checkpoint_holds_neither_input_nor_results(self) -> None:
        flight = EpochsInFlight(1)
        read = SplitEpoch(["a split"], lambda split: [split])
        epoch = flight.plan(Step(read, is_last=False, end=7))
        epoch.results = [["a result"]]
        flight.prepare(epoch)
        assert (epoch.step, epoch.results) == (Step(None, is_last=False, end=7), [])

    def test_there_are_never_more_than_may_be(self) -> None:
        flight = EpochsInFlight(1)
        flight.plan(NEXT)
        with pytest.raises(ImpossibleEventError):
            flight.plan(NEXT)


class TestTheTable:
    def test_every_event_can_happen(self) -> None:
        told = {event for row in TABLE.values() for event in row} | machine.ANYTIME
        assert told == set(get_args(epochs.Event))

    def test_every_instruction_is_carried_out(self) -> None:
        any_actions: Any = Anything()
        carried_out = set(loop.executors(any_actions, any_actions))
        assert carried_out | {Announce} == set(get_args(epochs.Instruction))

    def test_every_phase_has_its_row_and_can_be_reached(self) -> None:
        assert set(TABLE) == set(Phase)
        reached = {phase for row in TABLE.values() for following in row.values() for phase in following}
        assert reached | {Phase.CREATED, Phase.STOPPING} == set(Phase)

    @pytest.mark.parametrize("event", [ConsumerLeft(), PhaseOver()])
    def test_what_cannot_happen_is_an_error_that_shows_phase_and_event(self, event: Any) -> None:
        course = running().job.course
        with pytest.raises(ImpossibleEventError, match=rf"running.*{type(event).__name__}"):
            course.take(event)

    @pytest.mark.parametrize("phase", [Phase.CREATED, Phase.ENDED])
    def test_before_and_after_its_life_nothing_happens(self, phase: Phase) -> None:
        job = made()
        job.course.phase = phase
        with pytest.raises(ImpossibleEventError):
            job.course.take(CancelJob())

    def test_what_cannot_follow_is_an_error_that_shows_both(self) -> None:
        course = running().job.course
        with pytest.raises(ImpossibleEventError, match="running cannot be idle"):
            course.enter(Phase.IDLE)
        course.take(EpochEnded([], None))
        with pytest.raises(ImpossibleEventError, match="running cannot be draining after EpochEnded"):
            course.enter(Phase.DRAINING)
        course.enter(Phase.IDLE)

    @pytest.mark.parametrize(
        ("phase", "after"),
        [(Phase.RUNNING, Phase.STOPPING), (Phase.CLOSING, Phase.ENDED), (Phase.ENDED, None)],
    )
    def test_a_failure_leads_to_one_phase_only(self, phase: Phase, after: Phase | None) -> None:
        for following in Phase:
            course = made().course
            course.phase = phase
            if following is after:
                course.enter(following)
                continue
            with pytest.raises(ImpossibleEventError):
                course.enter(following)


class Anything:
    """Has every attribute."""

    def __getattr__(self, name: str) -> Any:
        return self


# --- random lives ------------------------------------------------------------------------------------


#: What never fails in a random life, or fails there in its own way.
SURE = (Wait, Announce, CommitOutput, CountReport, EndAttempt, Pause, CloseSlots)


class Life:
    """Answers a script at random as a loop might, and checks what must hold."""

    def __init__(self, rng: random.Random, job: JobMachine) -> None:
        self.rng = rng
        self.job = job
        self.flight = job.flight
        self.seen: Counter[str] = Counter()
        self.engine: Epoch | None = None
        self.ahead: list[int] = []
        self.restored = 0
        self.pauses = 0
        self.is_claimed = False
        self.committed = 0

    def live(self) -> None:
        """Run the script to its end."""
        script = self.job.life()
        instruction = next(script)
        for _ in range(4000):
            self.seen[type(instruction).__name__] += 1
            answer = self.answer(instruction)
            try:
                is_failure = isinstance(answer, PyFlinkStateError)
                instruction = script.throw(answer) if is_failure else script.send(answer)
            except StopIteration:
                return
            self.check()
        raise AssertionError("it does not come to an end")

    def check(self) -> None:
        """Check what holds after every step."""
        flight = self.flight
        epochs = list(flight._epochs.values())
        assert [epoch.number for epoch in epochs] == list(range(epochs[0].number, flight.newest.number + 1))
        assert flight.committed <= flight.prepared
        assert flight.last.number == flight.prepared
        stages = [epoch.stage.value for epoch in epochs]
        assert stages == sorted(stages, reverse=True), "an epoch has overtaken another one"
        unprepared = [epoch for epoch in epochs if epoch.stage in (Stage.PLANNED, Stage.RUNNING)]
        assert len(unprepared) <= self.job.facts.epochs_in_flight
        assert sum(epoch.stage is Stage.RUNNING for epoch in epochs) <= 1
        if self.is_claimed:
            assert flight.committed >= self.committed, "it went back to before its last commit"
            self.committed = flight.committed

    def answer(self, instruction: Any) -> Any:
        checked = getattr(self, f"_{type(instruction).__name__}", None)
        answer = None if checked is None else checked(instruction)
        may_fail = not isinstance(instruction, SURE)
        return self._failed(instruction) if may_fail and self.rng.random() < 0.02 else answer

    def _failed(self, instruction: Any) -> PyFlinkStateError:
        if isinstance(instruction, (StartSlots, RunEpoch)):
            self.engine = None
        if isinstance(instruction, ShuffleAhead):
            self.ahead.clear()
        return SparkJobError(f"{type(instruction).__name__} has failed")

    # --- instructions ----------------------------------------------------------------------------------

    def _BeginAttempt(self, instruction: BeginAttempt) -> Epoch:
        assert instruction.attempt == self.pauses, "an attempt began without a pause before it"
        assert (self.engine, self.ahead) == (None, []), "what was given up still runs"
        assert instruction.is_final == self.job.has_taken_over
        return Epoch(self.restored)

    def _ClaimJob(self, instruction: ClaimJob) -> Claim:
        self.is_claimed = False
        assert instruction.epoch.number == self.restored
        return Claim(instruction.epoch, self.rng.random() < 0.5)

    def _StartSlots(self, instruction: StartSlots) -> None:
        self._begins(instruction.epoch)

    def _RunEpoch(self, instruction: RunEpoch) -> None:
        assert self.job.has_taken_over
        assert instruction.epoch.number == self.flight.prepared + 1
        self._begins(instruction.epoch)

    def _begins(self, epoch: Epoch) -> None:
        assert self.engine is None, "two things run at once"
        self.engine = epoch

    def _TakeOver(self, instruction: TakeOver) -> None:
        assert self.engine is None, "the slots have not restored their state yet"
        assert instruction.epoch == self.restored

    def _GoBack(self, instruction: GoBack) -> None:
        assert instruction.epoch == self.restored

    def _AskSource(self, instruction: AskSource) -> Found:
        self.is_claimed, self.committed = True, self.flight.committed
        rng = self.rng
        assert instruction.last.number == self.flight.prepared
        step = instruction.ahead or (Step(None, rng.random() < 0.05) if rng.random() < 0.6 else None)
        return Found(step, rng.random() < 0.2, rng.random() < 0.2, rng.random() < 0.2, rng.random() < 0.1)

    def _SetBarrier(self, instruction: SetBarrier) -> list[Any]:
        if self.rng.random() < 0.02:
            return [Failed(BROKEN)]
        taken = self.rng.random() < 0.8
        instruction.epoch.savepoint = instruction.savepoint if taken else None
        instruction.epoch.trigger = TRIGGER if taken or instruction.is_needed else None
        return []

    def _ShuffleAhead(self, instruction: ShuffleAhead) -> Step | None:
        assert self.engine is not None, "there is nothing it could be ahead of"
        assert instruction.newest is self.flight.newest
        assert not instruction.newest.ends_job
        assert not self.ahead
        if self.rng.random() < 0.3:
            return None
        self.ahead.append(instruction.newest.number + 1)
        return Step(None, self.rng.random() < 0.05)

    def _PrepareOutput(self, instruction: PrepareOutput) -> None:
        assert self.engine is None
        assert instruction.epoch.number == self.flight.prepared + 1

    def _AlignBarrier(self, instruction: AlignBarrier) -> list[Any]:
        is_done = instruction.epoch.trigger is not None and self.rng.random() < 0.3
        return [self._completes()] if is_done else []

    def _CommitOutput(self, instruction: CommitOutput) -> PyFlinkStateError | None:
        assert self.flight.committed < instruction.epoch.number <= self.flight.prepared
        assert instruction.epoch.stage is Stage.PREPARED
        self.restored = max(self.restored, instruction.epoch.number)  # the checkpoint exists in any case
        return BROKEN if self.rng.random() < 0.03 else None

    def _ConfirmCheckpoint(self, _: ConfirmCheckpoint) -> list[Any]:
        return []

    def _EndAttempt(self, instruction: EndAttempt) -> AttemptEnded:
        assert (self.engine, self.ahead) == (None, []), "what was given up still runs"
        assert not isinstance(instruction.error, ImpossibleEventError), instruction.error
        falls_back = self.rng.random() < 0.1 and not isinstance(instruction.error, JobCancelledError)
        return AttemptEnded(instruction.error, falls_back)

    def _Pause(self, _: Pause) -> None:
        self.pauses += 1

    # --- events ----------------------------------------------------------------------------------------

    def _Wait(self, _: Wait) -> Any:
        event = self._event()
        self.seen[type(event).__name__] += 1
        return event

    def _event(self) -> Any:
        """Return something that may happen now."""
        rng, job, draw = self.rng, self.job, self.rng.random()
        if job.phase is Phase.CREATED or draw < (0.2 if job.phase is Phase.CLOSING else 0.02):
            return PhaseOver() if job.phase is Phase.CREATED else Failed(BROKEN)
        if draw < 0.024:
            return CancelJob() if draw < 0.022 else StopAtCheckpoint("SIGTERM")
        if draw < 0.06:
            return SavepointRequest("somewhere", rng.random() < 0.3, drains=rng.random() < 0.3)
        if draw < 0.1:
            late = rng.random() < 0.3
            error = SparkJobError("a task has failed") if late else None
            return TaskReport(job.attempt, rng.randint(0, job.epoch + 2), "a", error=error)
        is_attempt = job.phase not in (Phase.PAUSED, Phase.CLOSING)
        if draw < 0.2 and job.epoch > self.flight.committed and is_attempt:
            return self._completes()
        if draw < 0.5 and self.ahead:
            return ShuffledAhead(self.ahead.pop())
        if draw < 0.8 and self.engine is not None:
            epoch, self.engine = self.engine, None
            error = SparkJobError("it failed") if rng.random() < 0.1 else None
            return EpochEnded(None if error else [], error, epoch.run)
        return self._over()

    def _completes(self) -> CheckpointCompleted:
        last = self.flight.last
        stops = self.job.phase is Phase.COMMITTING and last.savepoint is not None
        self.restored = max(self.restored, last.number)
        return CheckpointCompleted(1, last.number, stops and last.savepoint.stops_job)

    def _over(self) -> Any:
        """Return that the phase is over, if it is, or else something that changes nothing."""
        phase = self.job.phase
        is_busy = self.engine is not None or bool(self.ahead)
        if phase in (Phase.RUNNING, Phase.RESTORING) or (phase is Phase.STOPPING and is_busy):
            return EpochEnded(None, BROKEN, -1)
        return PhaseOver()


@pytest.mark.parametrize("block", range(4))
def test_random_lives_hold_what_the_theory_says(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * 250, (block + 1) * 250):
        job = made(restarts=5, uses_timers=seed % 2 == 0, epochs_in_flight=1 + seed % 4)
        life = Life(random.Random(seed), job)
        try:
            life.live()
        except BaseException as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
        assert job.phase is Phase.ENDED
        assert job.flight.running is None, seed
        assert not isinstance(job.error, ImpossibleEventError)
        seen += life.seen
        seen[job.status.name] += 1
    assert {"FINISHED", "CANCELED", "FAILED"} <= set(seen)
    assert {kind.__name__ for kind in get_args(epochs.Instruction)} <= set(seen)
    own = {SlotLost, ConsumerLeft}
    assert {kind.__name__ for kind in set(get_args(epochs.Event)) - own} <= set(seen)
