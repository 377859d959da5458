"""The service of a slot: which epochs it takes, its snapshots, its event time, and where its time goes."""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Count, Echo, HearOfCheckpoints, Ledger, TellOfClose
from support_runtime import PATIENCE_S, PICKLED, ManualClock, next_event, receive, tree
from support_slots import SLOT, ActedSlot, Driver, collect, deployment, frames_for, in_thread, outcome

from pyflinkstate import (
    MAX_WATERMARK,
    KeyedProcessFunction,
    OutputTag,
    TimeDomain,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    FileStateHandle,
    OperatorSubtaskState,
    StateAssignment,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import (
    CheckpointStorageError,
    CorruptCheckpointError,
    FunctionResultError,
    IncompatibleCheckpointError,
    PyFlinkStateError,
    SlotBusyError,
    SlotMemoryError,
    StaleSlotError,
    StateValueError,
    UserFunctionError,
)
from pyflinkstate.runtime.slots import SlotHost, SlotLost, SlotService
from pyflinkstate.runtime.slots.slot import StateSlot
from pyflinkstate.runtime.slots.time_shares import TimeShares
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.tasks import Router
from pyflinkstate.runtime.wire import (
    NO_WATERMARK,
    AbortCheckpoint,
    BeginEpoch,
    ChannelEvent,
    CheckpointAck,
    CheckpointDecline,
    CheckpointTrigger,
    CloseSlot,
    DeploySlot,
    EpochAccepted,
    EpochDone,
    EpochRefused,
    FrameTime,
    Heartbeat,
    InputFrame,
    NotifyCheckpointComplete,
    SlotClosed,
    SlotId,
    SubtaskStatus,
    ValuesFrame,
)
from pyflinkstate.runtime.wire.frames import CHUNK


def service_of(
    function: KeyedProcessFunction,
    now_ms: Callable[[], int] = lambda: 0,
    perf_ns: Callable[[], int] = lambda: 0,
    **deployed: Any,
) -> SlotService:
    """Return the service of a slot of attempt 0, without a process, that has applied nothing yet."""
    made = SlotService(SLOT, 0, SlotHost(lambda _: None, lambda run: run(), now_ms, perf_ns=perf_ns))
    assert made.deploy(attrs.evolve(deployment(function), **deployed)) is None
    return made


@pytest.fixture
def service() -> SlotService:
    return service_of(Echo())


def begin(service: SlotService, epoch: int) -> None:
    assert service.begin(BeginEpoch(0, epoch, None)) == EpochAccepted()


def apply(service: SlotService, epoch: int) -> None:
    begin(service, epoch)
    list(service.finish_input())
    service.end()


def refusal(service: SlotService, epoch: int, attempt: int = 0) -> tuple[type[PyFlinkStateError], str, bool]:
    """Return why a task is refused, and whether another one has fed its epoch."""
    refused = service.begin(BeginEpoch(attempt, epoch, None))
    assert isinstance(refused, EpochRefused)
    return type(refused.error), str(refused.error), refused.is_applied


@pytest.mark.parametrize(
    ("before", "asked", "answer"),
    [
        ("begin", (1, 0), (SlotBusyError, f"slot {SLOT}: another task is feeding it", False)),
        ("begin", (2, 0), (SlotBusyError, f"slot {SLOT}: another task is feeding it", False)),
        ("apply", (1, 0), (StaleSlotError, "cannot take epoch 1: it is at version 1", True)),
        ("apply apply", (1, 0), (StaleSlotError, "it is at version 2", False)),
        ("apply apply", (4, 0), (StaleSlotError, "it is at version 2", False)),
        ("apply begin", (1, 0), (StaleSlotError, "it processes epoch 2", False)),
        ("begin", (1, 1), (StaleSlotError, "it is of attempt 0", False)),
        ("begin abandon", (1, 0), (StaleSlotError, "it is at version None", False)),
    ],
)
def test_who_is_refused_and_why(
    service: SlotService, before: str, asked: tuple[int, int], answer: tuple[type, str, bool]
) -> None:
    for number, step in enumerate(before.split(), start=1):
        if step == "abandon":
            service.abandon()
        else:
            {"begin": begin, "apply": apply}[step](service, number)
    kind, told, is_applied = refusal(service, *asked)
    assert (kind, is_applied) == (answer[0], answer[2])
    assert answer[1] in told


class TaskThatHasLeft:
    """The slot's end of a connection whose task dies when it has sent some messages."""

    def __init__(self, *sent: Any, fails_at: str) -> None:
        self._sent, self._fails_at = iter(sent), fails_at

    def recv(self) -> Any:
        return next(self._sent)

    def recv_bytes(self) -> bytes:
        self._may_fail("recv_bytes")
        return b""

    def send(self, message: object) -> None:
        self._may_fail(type(message).__name__)

    def send_bytes(self, data: bytes) -> None:
        self._may_fail("send_bytes")

    def _may_fail(self, what: str) -> None:
        if what == self._fails_at:
            raise BrokenPipeError("the task has left")


def serve(service: SlotService, fails_at: str) -> None:
    slot = object.__new__(StateSlot)
    slot._service = service
    task: Any = TaskThatHasLeft(BeginEpoch(0, 1, None), fails_at=fails_at)
    with pytest.raises(BrokenPipeError):
        slot._serve_task(task)


@pytest.mark.parametrize(
    ("fails_at", "version"), [("EpochAccepted", None), ("recv_bytes", None), ("EpochDone", 1)]
)
def test_a_task_that_dies_at_any_moment_leaves_no_busy_slot(
    service: SlotService, fails_at: str, version: int | None
) -> None:
    serve(service, fails_at)
    kind, told, _ = refusal(service, 1)
    assert kind is StaleSlotError, "a retry of the task would ask for ever"
    assert f"it is at version {version}" in told


def test_an_error_at_the_end_of_an_epoch_leaves_no_busy_slot(
    service: SlotService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        raise BrokenPipeError("the system does not tell")

    monkeypatch.setattr(service, "_status", fails)
    serve(service, "never")
    assert refusal(service, 1)[0] is StaleSlotError


def test_a_task_that_is_refused_ends_no_epoch_of_another(service: SlotService) -> None:
    begin(service, 1)
    serve(service, "EpochRefused")
    assert refusal(service, 1)[0] is SlotBusyError


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


class FailsToClose(HearOfCheckpoints):
    """Fails in both."""

    def close(self) -> None:
        super().close()
        raise ConnectionResetError("the index is gone")


def closed(function: HearOfCheckpoints) -> SlotClosed:
    """Close a slot while an epoch runs, at whose end the function would hear of a checkpoint."""
    service = service_of(function)
    service.begin(BeginEpoch(0, 1, None))
    service.hear(NotifyCheckpointComplete(1))
    return service.close()


def test_a_function_hears_of_checkpoints_before_it_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "heard"
    assert closed(HearOfCheckpoints(str(path))) == SlotClosed()
    assert path.read_text() == "complete 1\nclosed\n"


@pytest.mark.parametrize("function", [HearOfCheckpoints, FailsToClose])
def test_a_function_that_fails_to_hear_is_closed_too(
    tmp_path: Path, function: type[HearOfCheckpoints], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "heard"
    error = closed(function(str(path), fails_at=1)).error
    assert error is not None
    assert "TimeoutError: the index cannot be switched" in str(error)
    assert path.read_text() == "complete 1\nclosed\n"
    assert ("the index is gone" in caplog.text) is (function is FailsToClose)


OPEN, TIMED_RECORDS, CLOSE, CLOSE_EMPTY = ChannelEvent
ODD = OutputTag("odd")


class Timers(KeyedProcessFunction):
    """A record is ``(key, "e" or "p", time)`` for a timer, else its time and watermark come out."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        timers = ctx.timer_service()
        _, what, *rest = value
        if what == "e":
            timers.register_event_time_timer(*rest)
        elif what == "p":
            timers.register_processing_time_timer(*rest)
        elif what == "odd":
            yield ODD, value
        else:
            yield value, ctx.timestamp(), timers.current_watermark()

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        timers = ctx.timer_service()
        domain = "e" if ctx.time_domain() is TimeDomain.EVENT_TIME else "p"
        yield ctx.get_current_key(), domain, timestamp, timers.current_watermark()


@attrs.define
class Served:
    """A slot in this process: no sockets, and a clock by hand."""

    service: SlotService
    clock: ManualClock
    is_timed: bool = True
    epoch: int = 0

    def begin(self, is_final: bool = False) -> None:
        self.epoch += 1
        begin = BeginEpoch(0, self.epoch, None, self.is_timed, is_final)
        assert self.service.begin(begin) == EpochAccepted()

    def feed(
        self, *records: Any, time: FrameTime | None = None, timestamps: Any = None
    ) -> ValuesFrame | None:
        """Send one frame; return the frame that comes back."""
        if records:
            router = Router("timers", lambda record: record[0], PICKLED, 1, 128)
            ((_, frame),) = router.splitter(0)(list(records), timestamps)
        else:
            frame = InputFrame(b"", (), ())
        return _decoded(self.service.process(attrs.evolve(frame, time=time).encode()))

    def send(self, records: list[Any], time: FrameTime | None = None, timestamps: Any = None) -> Any:
        return self.feed(*records, time=time, timestamps=timestamps)

    def at(self, watermark: int, event: ChannelEvent = TIMED_RECORDS, branch: int = 0) -> ValuesFrame | None:
        return self.feed(time=FrameTime(branch, 0, watermark, event))

    def finish(self) -> ValuesFrame | None:
        return _decoded(self.service.finish_input())

    def set_clock(self, time_ms: int) -> None:
        self.clock.time_ms = time_ms

    def done(self, field: str) -> Any:
        """End the epoch."""
        return getattr(self.end(), field)

    def end(self) -> EpochDone:
        done = self.service.end()
        assert isinstance(done, EpochDone)
        return done


def _decoded(frames: Iterator[bytes]) -> ValuesFrame | None:
    found = [ValuesFrame.decode(data) for data in frames]
    assert len(found) <= 1
    return found[0] if found else None


def serve_timed(function: Any = None, is_timed: bool = True, watermark: int = NO_WATERMARK) -> Served:
    clock = ManualClock(1000)
    service = service_of(Timers() if function is None else function, clock.now_ms, watermark=watermark)
    return Served(service, clock, is_timed)


def begun(*arguments: Any, is_final: bool = False, **options: Any) -> Served:
    """A slot in its first epoch."""
    served = serve_timed(*arguments, **options)
    served.begin(is_final)
    return served


def values(frame: ValuesFrame | None) -> list[Any]:
    return list(frame.values)


TELL = ("a", "tell")
NO = NO_WATERMARK
#: By what they show: the slot, and what it is told, with the frame that comes back or the values in it.
#: ``send``: records, their time in the channel, their timestamps; ``at``: a watermark alone; ``done``: a
#: field of the answer at the end of the epoch.
STORIES: dict[str, tuple[dict[str, Any], list[tuple[Any, ...]]]] = {
    "the first frame back says where the epoch opened, and only news are told, and the end": (
        {"watermark": 3},
        [
            ("at", 3, OPEN, None),
            ("at", 3, ValuesFrame([], [], 3, opening=3)),
            ("at", 3, None),
            ("at", 7, ValuesFrame([], [], 7)),
            ("at", 7, CLOSE, None),
            ("finish", ValuesFrame([], [], 7)),
            ("done", "watermark", 7),
        ],
    ),
    "openings of several branches advance nothing before all are known": (
        {"watermark": 5},
        [
            ("at", 10, OPEN, 0, None),
            ("at", 5, OPEN, 1, None),
            ("send", [TELL], FrameTime(0, 0, 12), [7], ValuesFrame([(TELL, 7, 5)], [7], 5, opening=5)),
            ("done", "watermark", 5),
        ],
    ),
    "records meet the watermark before their frame": (
        {},
        [
            ("at", NO, OPEN, None),
            ("send", [TELL], FrameTime(0, 0, 4), [5], [(TELL, 5, NO)]),
            ("send", [TELL], FrameTime(0, 0, 9), [None], ValuesFrame([(TELL, None, 4)], [None], 9)),
        ],
    ),
    "an idle slot says so": (
        {"watermark": 3},
        [
            ("send", [], FrameTime(0, 0, 3, OPEN, is_idle=True), None),
            (
                "send",
                [],
                FrameTime(0, 0, 3, CLOSE_EMPTY, is_idle=True),
                ValuesFrame([], [], 3, True, opening=3),
            ),
        ],
    ),
    "event time goes on over epochs": (
        {},
        [
            ("at", NO, OPEN, None),
            ("at", 4, ValuesFrame([], [], 4, opening=NO)),
            ("done", "watermark", 4),
            ("begin", None),
            ("at", 4, OPEN, None),
            ("at", 9, ValuesFrame([], [], 9, opening=4)),
            ("done", "watermark", 9),
            ("begin", None),
            ("send", [TELL], FrameTime(0, 0, 9), ValuesFrame([(TELL, None, 9)], [None], 9, opening=9)),
        ],
    ),
    "a slot that does not know its watermark (it was restored from the end) begins with that of its input": (
        {},
        [
            ("at", 9, OPEN, 0, None),
            ("at", 7, OPEN, 1, None),
            ("send", [TELL], FrameTime(0, 0, 9), [2], ValuesFrame([(TELL, 2, 7)], [2], 7, opening=7)),
            ("done", "watermark", 7),
        ],
    ),
    "what fires when the input opens is not late for those who read it": (
        {},
        [
            ("send", [("a", "e", 5)], FrameTime(0, 0, NO), []),
            ("done", "watermark", NO),
            ("begin", None),
            ("at", 7, OPEN, None),
            (
                "send",
                [TELL],
                FrameTime(0, 0, 7),
                [8],
                ValuesFrame([("a", "e", 5, 7), (TELL, 8, 7)], [5, 8], 7, opening=NO),
            ),
        ],
    ),
    "without event time frames are plain, and an epoch that is not the last ends no time": (
        {"is_timed": False},
        [
            ("send", [TELL], ValuesFrame([(TELL, None, NO)])),
            ("send", [("a", "e", 5)], None),
            ("finish", None),
        ],
    ),
    "F2 of Flink's behaviour: a late timer fires at the next advance, not at once": (
        {"watermark": 19},
        [
            ("at", 19, OPEN, None),
            ("send", [("a", "e", 3)], FrameTime(0, 0, 19), []),
            ("at", 19, None),
            ("at", 20, ValuesFrame([("a", "e", 3, 20)], [3], 20)),
        ],
    ),
    "the end of the input is the end of time": (
        {"is_final": True},
        [
            ("send", [("a", "e", MAX_WATERMARK), ("a", "e", 7)], []),
            ("finish", [("a", "e", at, MAX_WATERMARK) for at in (7, MAX_WATERMARK)]),
        ],
    ),
    "so it is without event time": (
        {"is_final": True, "is_timed": False},
        [
            ("send", [("a", "e", MAX_WATERMARK), ("a", "e", 7)], None),
            ("finish", [("a", "e", at, MAX_WATERMARK) for at in (7, MAX_WATERMARK)]),
        ],
    ),
    "results have the timer's time as their timestamp": (
        {},
        [
            ("send", [("a", "e", 7), ("b", "e", 6)], FrameTime(0, 0, NO), []),
            ("at", 8, ValuesFrame([("b", "e", 6, 8), ("a", "e", 7, 8)], [6, 7], 8)),
        ],
    ),
    "F4: at the end a timer in the past fires, and pending ones are dropped": (
        {"is_timed": False, "is_final": True},
        [
            ("send", [("a", "p", 1000 + delay) for delay in (-5, 50, 60_000)], None),
            ("finish", [("a", "p", 995, NO)]),
            ("done", "next_timer_ms", 1050),
        ],
    ),
    "both kinds in one operator fire by their own time": (
        {},
        [
            ("send", [("a", "e", 7), ("a", "p", 1007)], FrameTime(0, 0, NO), []),
            ("at", 2000, [("a", "e", 7, 2000)]),
            ("set_clock", 1007, None),
            ("at", 2000, [("a", "p", 1007, 2000)]),
        ],
    ),
    "results of timers of processing time have no timestamp": (
        {},
        [
            ("send", [("a", "p", 3)], FrameTime(0, 0, 5), []),
            ("at", 5, ValuesFrame([("a", "p", 3, 5)], [None], 5)),
        ],
    ),
    "they fire before the records of the next frame": (
        {"is_timed": False},
        [("send", [("a", "p", 3)], None), ("send", [TELL], [("a", "p", 3, NO), (TELL, None, NO)])],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_comes_back(name: str) -> None:
    options, steps = STORIES[name]
    served = begun(**options)
    for method, *arguments, expected in steps:
        found = getattr(served, method)(*arguments)
        assert (values(found) if isinstance(expected, list) else found) == expected, (method, arguments)


class TestEventTimeTimers:
    def test_timers_registered_in_on_timer_fire_in_the_same_advance(self) -> None:
        """F1."""

        class Chained(Timers):
            def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
                if timestamp > -300:
                    ctx.timer_service().register_event_time_timer(timestamp - 100)
                yield timestamp, ctx.timer_service().current_watermark()

        served = begun(Chained(), is_final=True)
        served.at(NO_WATERMARK, OPEN)
        served.feed(("a", "e", 10), time=FrameTime(0, 0, 5))
        assert values(served.at(MAX_WATERMARK, CLOSE)) == [
            (at, MAX_WATERMARK) for at in (10, -90, -190, -290, -390)
        ]

    def test_a_timer_is_there_once_and_may_be_deleted(self) -> None:
        """F3."""

        class Deletes(Timers):
            def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
                timers = ctx.timer_service()
                for timestamp in (5, 5, 6, -5, MAX_WATERMARK):
                    timers.register_event_time_timer(timestamp)
                for timestamp in (6, 7):
                    timers.delete_event_time_timer(timestamp)

        served = begun(Deletes(), is_final=True)
        served.feed(("a",), time=FrameTime(0, 0, NO_WATERMARK))
        fired = values(served.at(MAX_WATERMARK, CLOSE))
        assert [result[2] for result in fired] == [-5, 5, MAX_WATERMARK]

    def test_a_timer_that_raises_names_key_and_time(self) -> None:
        class Broken(Timers):
            def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
                raise LookupError("gone")

        served = begun(Broken())
        served.feed(("a", "e", 7), time=FrameTime(0, 0, NO_WATERMARK))
        with pytest.raises(UserFunctionError, match=r"gone[\s\S]*'count', key 'a',.*on_timer\(\) at 7"):
            served.at(8)


class TestResults:
    def test_side_outputs_are_apart_and_counted(self) -> None:
        served = begun(is_timed=False)
        found = served.feed(("a", "odd"), ("a", "tell"), ("b", "odd"))
        assert len(found.values) == 1
        assert found.output("odd") == ([("a", "odd"), ("b", "odd")], [None, None])
        assert served.end().records_out == 3

    @pytest.mark.parametrize(
        ("result", "given"),
        [
            (lambda: [1, 2], [1, 2]),
            (lambda: ("t", "e"), ["t", "e"]),
            (lambda: (n for n in (1, 2)), [1, 2]),
            (lambda: range(2), [0, 1]),
            (lambda: None, []),
            (lambda: (), []),
        ],
        ids=["list", "tuple", "generator", "range", "None", "empty"],
    )
    @pytest.mark.parametrize("timestamp", [None, 5])
    def test_any_iterable_is_results(
        self, result: Callable[[], Any], given: list[Any], timestamp: int | None
    ) -> None:
        """F7: each element comes out."""
        served = begun(Gives(result), is_timed=False)
        found = served.feed(("a",), timestamps=None if timestamp is None else [timestamp])
        assert ([] if found is None else list(found.values)) == given

    @pytest.mark.parametrize("timestamp", [None, 5])
    @pytest.mark.parametrize(
        ("result", "problem"),
        [
            (7, "an int, 7, and that is no iterable"),
            ("text", "a str, 'text', and each of its letters"),
            ({"a": 1}, "a dict, {'a': 1}, and each of its keys"),
        ],
    )
    def test_one_record_instead_of_a_list_of_them_fails(
        self, result: object, problem: str, timestamp: int | None
    ) -> None:
        served = begun(Gives(lambda: result), is_timed=False)
        with pytest.raises(FunctionResultError, match=rf"returned {problem}[\s\S]*record \('a',\)"):
            served.feed(("a",), timestamps=None if timestamp is None else [timestamp])


class Gives(KeyedProcessFunction):
    """Gives the same for each record."""

    def __init__(self, result: Callable[[], Any]) -> None:
        self.result = result

    def open(self, runtime_context: Any) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.last.update(value)
        return self.result()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000

    def pass_ns(self, ns: int) -> None:
        self.now += ns


CLOCK = Clock()
LATE = OutputTag("late")


class Slow(KeyedProcessFunction):
    """Needs 5 ns for each record, and registers a timer for it."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        CLOCK.pass_ns(5)
        ctx.timer_service().register_event_time_timer(value[1] + 1_000)
        yield value
        if value[1] % 2:
            yield LATE, value


def served(function: KeyedProcessFunction) -> SlotService:
    return service_of(function, perf_ns=lambda: CLOCK.now)


def feed(service: SlotService, epoch: int, waits_ns: int, takes_ns: int) -> EpochDone:
    """Feed two frames of three records, as a slot's process does, to a reader that needs its time."""
    assert isinstance(service.begin(BeginEpoch(0, epoch, None)), EpochAccepted)

    def hand_over(results: Iterator[bytes]) -> None:
        for _ in results:
            CLOCK.pass_ns(takes_ns)

    for frame in range(2):
        CLOCK.pass_ns(waits_ns)
        (data,) = frames_for([(n, frame * 3 + n) for n in range(3)])[0]
        hand_over(service.process(data))
    CLOCK.pass_ns(waits_ns)
    hand_over(service.finish_input())
    done = service.end()
    assert isinstance(done, EpochDone)
    return done


def status(done: EpochDone) -> SubtaskStatus:
    assert done.status is not None
    return done.status


def test_work_waiting_and_handing_over_are_told_apart() -> None:
    service = served(Slow())
    first = status(feed(service, 1, waits_ns=100, takes_ns=7_000))
    assert (first.busy_ns, first.idle_ns, first.back_pressured_ns) == (30, 300, 14_000)


def test_the_time_between_epochs_is_waiting_and_nothing_is_told_twice() -> None:
    service = served(Slow())
    feed(service, 1, waits_ns=100, takes_ns=7_000)
    CLOCK.pass_ns(1_000_000)
    second = status(feed(service, 2, waits_ns=1, takes_ns=2))
    assert (second.busy_ns, second.idle_ns, second.back_pressured_ns) == (30, 1_000_003, 4)


def test_memory_and_timers_are_told() -> None:
    done = status(feed(served(Slow()), 1, 0, 0))
    assert done.timers == 6
    assert done.memory_bytes > 1 << 20
    assert done.memory_limit_bytes is None


def test_side_outputs_are_counted() -> None:
    service = served(Slow())
    assert feed(service, 1, 0, 0).side_out == {"late": 3}
    assert feed(service, 2, 0, 0).side_out == {"late": 3}
    assert feed(served(Echo()), 1, 0, 0).side_out == {}


class LargeAside(KeyedProcessFunction):
    """Gives nothing but a large result on a side output for each record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        CLOCK.pass_ns(1)
        yield LATE, bytes(20_000)


def test_results_for_side_outputs_do_not_wait_for_the_end_of_their_frame() -> None:
    service = served(LargeAside())
    service.begin(BeginEpoch(0, 1, None))
    (data,) = frames_for([(n, n) for n in range(2_000)])[0]
    began, found = CLOCK.now, 0
    for results in service.process(data):
        found += len(ValuesFrame.decode(results).output("late")[0])
        assert CLOCK.now - began - found <= 2 * CHUNK
    assert found == 2_000


@pytest.mark.parametrize("records", [1, 10_000])
def test_the_clock_is_read_for_frames_and_not_for_records(records: int) -> None:
    reads = 0

    def now_ns() -> int:
        nonlocal reads
        reads += 1
        return reads

    service = service_of(Echo(), perf_ns=now_ns)
    service.begin(BeginEpoch(0, 1, None))
    for data in frames_for([(1, n) for n in range(records)])[0]:
        list(service.process(data))
    list(service.finish_input())
    service.end()
    assert reads <= 40


def test_nothing_is_lost_if_there_are_no_results() -> None:
    times = iter([0, 10, 15, 18])
    shares = TimeShares(lambda: next(times))
    assert list(shares.of(iter(()))) == []
    shares.waited()
    assert shares.take() == (5, 13, 0)
    assert shares.take() == (0, 0, 0)


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


class Deploying:
    """Stands still after a slot has registered, and before its deployment is sent."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._is_asked, self._may_go_on = threading.Event(), threading.Event()
        driver.control._deployment_of = self._of

    def _of(self, slot: SlotId) -> DeploySlot:
        self._is_asked.set()
        assert self._may_go_on.wait(PATIENCE_S)
        return self._driver.deployments[slot]

    def __enter__(self) -> None:
        assert self._is_asked.wait(PATIENCE_S), "no slot has registered"

    def __exit__(self, *_: object) -> None:
        self._may_go_on.set()


@pytest.fixture
def deploying(driver: Driver) -> Deploying:
    return Deploying(driver)


def fed(driver: Driver, deploying: Deploying, function: KeyedProcessFunction, *early: object) -> Any:
    """Feed a slot that has heard of something before its deployment; return the results."""
    starting = in_thread(lambda: driver.start_slot(function))
    with deploying:
        assert driver.registry.beat(PATIENCE_S) == []
        for message in early:
            driver.registry.send(SLOT, message)
    slot = outcome(starting)
    assert not isinstance(slot, Exception), f"the slot has not started: {slot}"
    return slot.feed(1, [("a", 1)])[0]


def test_a_heartbeat_does_not_end_the_slot(driver: Driver, deploying: Deploying) -> None:
    assert fed(driver, deploying, Echo()) == [("a", 1)]
    assert driver.events.empty()


def test_what_a_function_is_to_hear_is_kept_for_it(
    driver: Driver, deploying: Deploying, tmp_path: Path
) -> None:
    path = tmp_path / "heard"
    early = AbortCheckpoint(2), NotifyCheckpointComplete(3)
    assert fed(driver, deploying, HearOfCheckpoints(str(path)), *early) == [("a", 1)]
    driver.registry.close(PATIENCE_S)
    assert path.read_text() == "aborted 2\ncomplete 3\nclosed\n"


def test_a_slot_that_is_to_close_opens_its_function_and_closes_it(
    driver: Driver, deploying: Deploying, tmp_path: Path
) -> None:
    path = tmp_path / "closed"
    driver.deployments[SLOT] = deployment(TellOfClose(str(path)))
    starting = in_thread(lambda: driver.link.acquire_slot(SLOT))
    with deploying:
        driver.registry.send(SLOT, CloseSlot())
    assert not isinstance(outcome(starting), Exception)
    driver.registry.close(PATIENCE_S)
    assert path.read_text() == "closed\n"


def test_a_slot_is_not_silent_before_it_is_told_what_to_run(driver: Driver, deploying: Deploying) -> None:
    """It answers, and the driver listens when the deployment is sent, which may be large."""
    now = [0.0]
    driver.registry._now_s = lambda: now[0]
    driver.deployments[SLOT] = deployment(Echo())
    acted = ActedSlot(driver.control.address, driver.secret)
    with deploying:
        now[0] = 1000.0
        assert driver.registry.beat(50.0) == []
        assert receive(acted.connection) == Heartbeat()
    assert acted.deployed().name == "count"
    acted.ready()
    driver.link.acquire_slot(SLOT)  # returns when the driver has heard of it
    now[0] = 1049.9
    assert driver.registry.beat(50.0) == []
    now[0] = 1050.0
    assert driver.registry.beat(50.0) == [SLOT]
