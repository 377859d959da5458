"""Real slot processes, without Spark: epochs, versions, failures, and how they end."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import (
    Count,
    Divide,
    Echo,
    FailToOpen,
    FailToUnpickle,
    GiveUnpicklable,
    TellOfClose,
    Whoami,
)
from support_runtime import PATIENCE_S, next_event, raising, receive, wait_for_exit
from support_slots import SLOT, Driver, Slot, collect, frames_for

from pyflinkstate.errors import (
    BadRecordError,
    KeyGroupRangeError,
    PyFlinkStateError,
    RuntimeFailure,
    SlotBusyError,
    SlotLostError,
    SourceError,
    StaleSlotError,
    UserFunctionError,
)
from pyflinkstate.runtime.slots.control import SlotLost
from pyflinkstate.runtime.wire.frames import KeyedFrame
from pyflinkstate.runtime.wire.messages import EpochAccepted, EpochDone, EpochFailed, EpochRefused, SlotId
from pyflinkstate.runtime.wire.transport import connect

pytestmark = pytest.mark.timeout(60)


def by(way: str, slot: Slot) -> Slot:
    """Return the slot as a task on the same host reaches it, or as one on another does."""
    return slot if way == "unix" else attrs.evolve(slot, address=attrs.evolve(slot.address, unix_path=None))


# --- epochs and versions -------------------------------------------------------------------------------


def test_state_lives_on_from_epoch_to_epoch_and_each_is_applied_once(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    assert slot.feed(1, [("a", 0), ("b", 0), ("a", 0)]) == ([("a", 1), ("b", 1), ("a", 2)], EpochDone(3, 3))
    assert slot.feed(2, []) == ([], EpochDone(0, 0))
    assert slot.feed(3, [("a", 0)]) == ([("a", 3)], EpochDone(1, 1))
    for epoch in (3, 1, 5):
        with pytest.raises(StaleSlotError, match=rf"cannot take epoch {epoch}: it is at version 3") as caught:
            slot.feed(epoch, [("a", 0)])
        assert caught.value.recoverable
        assert str(SLOT) in str(caught.value)
    assert slot.feed(4, [("a", 0)])[0] == [("a", 4)]


def test_a_task_finds_the_slot_that_another_has_started(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    assert driver.link.acquire_slot(SLOT) == slot.address
    assert driver.registry.addresses() == {SLOT: slot.address}
    assert slot.pid != os.getpid()
    assert slot.address.host == "127.0.0.1"
    folder = Path(slot.address.unix_path).parent
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_function_is_told_where_it_runs(driver: Driver) -> None:
    slot = driver.start_slot(Whoami(), SlotId("count-1", 2), parallelism=3, attempt=5)
    (_, _, frames) = frames_for([(f"key-{n}", n) for n in range(50)], parallelism=3)
    results, _ = collect(slot.run(1, frames))
    assert set(results) == {("count (3/3)", 128, 5)}


def test_only_one_task_feeds_at_a_time(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    with slot.connect() as first:
        first.send(slot.begin(1))
        assert receive(first) == EpochAccepted()
        with slot.connect() as second:
            second.send(slot.begin(1))
            refused = receive(second)
        assert isinstance(refused, EpochRefused)
        assert isinstance(refused.error, SlotBusyError)
        assert "another task is feeding it" in str(refused.error)
        first.send_bytes(b"")
        assert first.recv_bytes() == b""
        assert receive(first) == EpochDone(0, 0)
    assert slot.feed(2, [("a", 0)])[0] == [("a", 1)]


def feed_when_free(slot: Slot, epoch: int, records: list[Any]) -> None:
    """Feed a slot, which is busy until it notices that the task before has gone."""
    while True:
        with contextlib.suppress(SlotBusyError):
            slot.feed(epoch, records)
            return


@pytest.mark.parametrize("frames_before", [0, 2])
def test_after_a_task_that_vanished_half_way_nobody_takes_the_state_for_whole(
    driver: Driver, frames_before: int
) -> None:
    slot = driver.start_slot(Count())
    slot.feed(1, [("a", 0)])
    with slot.connect() as task:
        task.send(slot.begin(2))
        assert receive(task) == EpochAccepted()
        for _ in range(frames_before):
            task.send_bytes(frames_for([("a", 0)])[0][0])
            task.recv_bytes()
    for epoch in (2, 1, 3):
        with pytest.raises(StaleSlotError):
            feed_when_free(slot, epoch, [("a", 0)])


def test_a_task_of_another_attempt_is_refused(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    with pytest.raises(SlotLostError, match=r"no trust between the two ends.*means another one"):
        slot.feed(1, [("a", 0)], attempt=1)
    with slot.connect() as task:
        task.send(slot.begin(1, attempt=1))
        assert isinstance(receive(task).error, StaleSlotError)


# --- what goes wrong in an epoch -----------------------------------------------------------------------


def test_a_user_function_that_raises_is_reported_with_key_record_and_its_own_lines(driver: Driver) -> None:
    slot = driver.start_slot(Divide())
    assert slot.feed(1, [("a", 3)])[0] == [4.0]
    with pytest.raises(UserFunctionError) as caught:
        slot.feed(2, [("a", 4), ("käse", 0), ("b", 6)])
    text = str(caught.value)
    assert text.startswith("ZeroDivisionError: division by zero")
    assert "operator 'count', key 'käse', record ('käse', 0)" in text
    assert "yield 12 / value[1]" in text
    assert caught.value.context["key"] == "'käse'"
    with pytest.raises(StaleSlotError, match="it is at version None"):
        slot.feed(3, [("a", 1)])


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_the_frames_that_a_failed_task_still_sends_do_not_lose_the_error(driver: Driver, way: str) -> None:
    slot = by(way, driver.start_slot(Divide()))
    with slot.connect() as task:
        task.send(slot.begin(1))
        assert receive(task) == EpochAccepted()
        for frame in frames_for([("a", 0)])[0] + frames_for([("b", bytes(1_000_000))])[0] * 20:
            task.send_bytes(frame)
        task.send_bytes(b"")
        assert task.recv_bytes() == b""
        failed = receive(task)
    assert isinstance(failed, EpochFailed)
    assert isinstance(failed.error, UserFunctionError)


def test_results_that_cannot_be_pickled_are_a_bad_record(driver: Driver) -> None:
    slot = driver.start_slot(GiveUnpicklable())
    with pytest.raises(BadRecordError, match="must be picklable"):
        slot.feed(1, [("a", 0)])


def test_a_frame_of_another_subtask_is_refused(driver: Driver) -> None:
    slot = driver.start_slot(Count(), parallelism=2)
    own, foreign = frames_for([(f"key-{n}", n) for n in range(50)], parallelism=2)
    assert collect(slot.run(1, own))[1].records_in > 0
    with pytest.raises(KeyGroupRangeError, match=r"this subtask owns 0\.\.63"):
        collect(slot.run(2, foreign))


def test_a_record_whose_class_the_slot_cannot_import_is_no_lost_slot(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = types.ModuleType("only_on_the_map_side")
    exec("class Order: pass", module.__dict__)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    frame = KeyedFrame(b"\x00\x00", ["a"], [module.Order()]).encode()
    slot = driver.start_slot(Echo())
    with pytest.raises(PyFlinkStateError, match="only_on_the_map_side") as caught:
        collect(slot.run(1, [frame]))
    assert not isinstance(caught.value, SlotLostError)


def test_an_upstream_that_fails_is_raised_as_it_is(driver: Driver) -> None:
    slot = driver.start_slot(Count())

    def upstream() -> Iterator[bytes]:
        yield from frames_for([("a", 0)])[0]
        raise SourceError("the file is gone")

    with pytest.raises(SourceError, match="the file is gone"):
        collect(slot.run(1, upstream()))
    with pytest.raises(StaleSlotError):
        feed_when_free(slot, 1, [])


# --- traffic -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["unix", "tcp"])
def test_frames_far_larger_than_socket_buffers_do_not_deadlock(driver: Driver, way: str) -> None:
    slot = by(way, driver.start_slot(Echo()))
    records = [("a", number, bytes([number]) * 4_000_000) for number in range(16)]
    frames = [frames_for([record])[0][0] for record in records]
    results, done = collect(slot.run(1, frames))
    assert [(key, number, payload[:1]) for key, number, payload in results] == [
        (key, number, payload[:1]) for key, number, payload in records
    ]
    assert done == EpochDone(16, 16)


def test_a_task_that_stops_reading_between_large_frames_blocks_nobody(driver: Driver) -> None:
    slot = driver.start_slot(Echo())
    frames = frames_for([("a", bytes(4_000_000))])[0] * 16
    before = set(threading.enumerate())
    running = slot.run(1, frames)
    assert len(next(running)) > 4_000_000
    running.close()
    with pytest.raises(StaleSlotError):
        feed_when_free(slot, 1, [("a", 0)])
    driver.control.close()
    wait_for_exit(slot.process_fd)
    for thread in set(threading.enumerate()) - before:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), f"{thread.name} still writes to a slot that has ended"


def test_who_does_not_know_the_secret_is_refused_and_harms_nobody(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    for address in (slot.address, attrs.evolve(slot.address, unix_path=None)):
        with pytest.raises(ConnectionError, match="no trust"):
            connect(address, slot.name, b"wrong")
    assert slot.feed(1, [("a", 0)])[0] == [("a", 1)]


# --- how a slot begins and ends ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (FailToOpen(), r"ConnectionRefusedError: the database is down[\s\S]*operator 'count'.*in open"),
        (FailToUnpickle(), "only_on_the_driver"),
    ],
    ids=["open", "unpickle"],
)
def test_a_function_that_cannot_start_is_an_error_where_the_slot_is_needed(
    driver: Driver, function: Echo, text: str
) -> None:
    with pytest.raises(UserFunctionError, match=text):
        driver.start_slot(function)
    event = next_event(driver.events, SlotLost)
    assert isinstance(event.error, UserFunctionError)
    with pytest.raises(UserFunctionError, match=text):
        driver.link.acquire_slot(SLOT)
    assert driver.registry.pids() == {}


def test_a_driver_that_cannot_say_what_to_run_is_an_error_where_the_slot_is_needed(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "of", raising(EOFError()))
    with pytest.raises(SlotLostError):
        driver.link.acquire_slot(SLOT)


def test_the_end_of_the_driver_ends_its_slots(driver: Driver) -> None:
    idle = driver.start_slot(Count())
    fed = driver.start_slot(Count(), SlotId("count-1", 1))
    with fed.connect() as task:
        task.send(fed.begin(1))
        assert receive(task) == EpochAccepted()
        driver.control.close()
        for slot in (idle, fed):
            wait_for_exit(slot.process_fd)
        with pytest.raises(EOFError):
            receive(task)
    assert not any(Path(slot.address.unix_path).exists() for slot in (idle, fed))


def test_a_slot_that_is_killed_is_lost_to_its_task_and_to_the_job(driver: Driver) -> None:
    slot = driver.start_slot(Count())
    killed = threading.Event()

    def frames() -> Iterator[bytes]:
        yield from frames_for([("a", 0)])[0]
        assert killed.wait(PATIENCE_S)

    running = slot.run(1, frames())
    next(running)
    os.kill(slot.pid, signal.SIGKILL)
    wait_for_exit(slot.process_fd)
    killed.set()
    with pytest.raises(SlotLostError, match=r"slot count-1\[0\] died or was cut off in epoch 1") as caught:
        next(running)
    assert caught.value.recoverable
    event = next_event(driver.events, SlotLost)
    assert (event.attempt, event.slot, event.error.context["pid"]) == (0, SLOT, slot.pid)
    with pytest.raises(SlotLostError, match="died"):
        driver.link.acquire_slot(SLOT)
    with pytest.raises(SlotLostError, match="died or was cut off in epoch 2"):
        slot.feed(2, [])


def test_the_socket_of_a_killed_slot_is_cleared_away_by_the_next(driver: Driver) -> None:
    before = set(threading.enumerate())
    killed = driver.start_slot(Count())
    os.kill(killed.pid, signal.SIGKILL)
    for thread in set(threading.enumerate()) - before:  # among them the one that reaps the process
        thread.join(PATIENCE_S)
    driver.start_slot(Count(), SlotId("count-1", 1))
    assert not Path(killed.address.unix_path).exists()


@pytest.mark.parametrize("fails", [False, True], ids=["well", "with an error"])
def test_a_slot_that_is_told_to_close_closes_its_function_and_ends(
    driver: Driver, tmp_path: Path, fails: bool
) -> None:
    path = tmp_path / "closed"
    slot = driver.start_slot(TellOfClose(str(path), fails))
    slot.feed(1, [("a", 0)])
    driver.registry.close(PATIENCE_S)
    assert path.read_text() == "closed\n"
    wait_for_exit(slot.process_fd)
    if fails:
        error = driver.events.get_nowait().error
        assert isinstance(error, UserFunctionError)
        assert "TimeoutError: flush took too long" in str(error)
        assert "in close()" in str(error)
    else:
        assert driver.events.empty()


def test_errors_of_a_slot_arrive_as_what_they_are(driver: Driver) -> None:
    slot = driver.start_slot(Divide())
    with pytest.raises(UserFunctionError) as caught:
        slot.feed(1, [("a", 0)])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.context) == (str(caught.value), caught.value.context)
    assert not isinstance(copy, RuntimeFailure)
