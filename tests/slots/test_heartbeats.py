"""Signs of life between driver and slots, with real processes that are killed, stopped and busy for ever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import BacktrackAWhile, Count, ForkAndStay
from support_runtime import next_event, receive, wait_for_exit
from support_slots import SLOT, ActedSlot, Driver, deployment, frames_for, in_thread, outcome

from pyflinkstate.errors import ConfigurationError, SlotLostError
from pyflinkstate.runtime.slots.control import ControlServer, Endpoint, SlotLost
from pyflinkstate.runtime.tasks.slot_client import run_epoch
from pyflinkstate.runtime.wire.messages import BeginEpoch, Heartbeat, HeartbeatSettings, SlotId
from pyflinkstate.runtime.wire.transport import Address

pytestmark = pytest.mark.timeout(90)

#: So long that a test that waits for it fails.
LATE = HeartbeatSettings(interval_ms=100, timeout_ms=600_000)
SOON = HeartbeatSettings(interval_ms=100, timeout_ms=2_000)


# --- a driver that dies or stops ---------------------------------------------------------------------------


@attrs.frozen
class OtherDriver:
    """A driver in a process of its own, and its slot."""

    process: subprocess.Popen[bytes]
    slot_fd: int
    said: dict[str, Any]

    def feed(self) -> Any:
        """Feed its slot one record, as a task does."""
        slot, secret = SlotId(**self.said["slot"]), bytes.fromhex(self.said["secret"])
        frames = frames_for([("a", 0)])[0]
        begin = BeginEpoch(0, 1, None)
        return list(run_epoch(Address(**self.said["address"]), secret, slot, begin, frames))

    def end(self) -> None:
        for pid in (self.said["child"], self.said["pid"], self.process.pid):
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait()
        os.close(self.slot_fd)


@contextmanager
def other_driver(heartbeat: HeartbeatSettings, forks: str = "none", told: str = "") -> Iterator[OtherDriver]:
    program = Path(__file__).parents[1] / "support" / "driver_program.py"
    settings = [str(heartbeat.interval_ms), str(heartbeat.timeout_ms)]
    process = subprocess.Popen([sys.executable, program, forks, *settings, told], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as output:
        said = json.loads(output.readline())
    made = OtherDriver(process, os.pidfd_open(said["pid"]), said)
    try:
        yield made
    finally:
        made.end()


def test_what_the_driver_forks_does_not_hold_its_sockets() -> None:
    with other_driver(LATE, forks="python") as driver:
        driver.process.kill()
        wait_for_exit(driver.slot_fd)


def test_a_driver_that_is_killed_while_a_child_holds_its_sockets_ends_its_slots() -> None:
    with other_driver(SOON, forks="c") as driver:
        driver.process.kill()
        driver.process.wait()
        wait_for_exit(driver.slot_fd)


def test_a_driver_that_is_stopped_ends_its_slots() -> None:
    with other_driver(SOON) as driver:
        driver.process.send_signal(signal.SIGSTOP)
        wait_for_exit(driver.slot_fd)


@pytest.mark.parametrize("forks", ["none", "c"])
def test_a_function_that_keeps_the_interpreter_lock_does_not_keep_the_slot_alive(
    tmp_path: Path, forks: str
) -> None:
    told = tmp_path / "pipe"
    os.mkfifo(told)
    with other_driver(SOON, forks=forks, told=str(told)) as driver:
        feeding = in_thread(driver.feed)
        with told.open() as pipe:
            assert pipe.read() == "now\n"
        driver.process.kill()
        wait_for_exit(driver.slot_fd)
        assert isinstance(outcome(feeding), SlotLostError)


# --- a slot that dies or stops -----------------------------------------------------------------------------


@pytest.fixture
def beating(driver: Driver) -> Iterator[Driver]:
    """A driver whose heartbeats come often, and whose timeout is short."""
    yield from with_heartbeat(driver, SOON)


def with_heartbeat(driver: Driver, heartbeat: HeartbeatSettings) -> Iterator[Driver]:
    first, driver.control = (
        driver.control,
        ControlServer(Endpoint(), driver.secret, driver.events, driver, heartbeat),
    )
    first.close()
    driver.registry = driver.control.new_attempt(0)
    driver.link = attrs.evolve(driver.link, address=driver.control.address)
    yield driver


def test_a_slot_that_is_stopped_is_lost_and_does_not_come_back(beating: Driver) -> None:
    slot = beating.start_slot(Count())
    os.kill(slot.pid, signal.SIGSTOP)
    lost = next_event(beating.events, SlotLost)
    assert lost.slot == SLOT
    assert isinstance(lost.error, SlotLostError), "by the driver's clock or by its own, whichever is first"
    wait_for_exit(slot.process_fd)


def test_a_task_that_waits_for_a_slot_that_is_stopped_is_told(beating: Driver) -> None:
    beating.deployments[SLOT] = deployment(Count())
    acted = ActedSlot(beating.control.address, beating.secret)
    acted.deployed()
    waiting = in_thread(lambda: beating.link.acquire_slot(SLOT))
    error = outcome(waiting)
    assert isinstance(error, SlotLostError)
    assert "has not answered" in str(error)
    assert not beating.registry.addresses()


def test_a_slot_that_answers_lives_though_it_keeps_the_interpreter_lock_for_a_while(beating: Driver) -> None:
    slot = beating.start_slot(BacktrackAWhile())
    for epoch in range(1, 4):
        assert slot.feed(epoch, [("a", epoch)])[0] == [("a", epoch)]
    assert not any(isinstance(beating.events.get_nowait(), SlotLost) for _ in range(beating.events.qsize()))


def test_what_a_slot_forks_does_not_hold_its_connections(driver: Driver) -> None:
    slot = driver.start_slot(ForkAndStay())
    (child,) = slot.feed(1, [("a", 0)])[0]
    try:
        os.kill(slot.pid, signal.SIGKILL)
        event = next_event(driver.events, SlotLost)
        assert "died" in str(event.error)
    finally:
        os.kill(child, signal.SIGKILL)


# --- who is asked, and who answers -------------------------------------------------------------------------


def test_a_slot_answers_each_heartbeat(driver: Driver) -> None:
    for beating in with_heartbeat(driver, LATE):
        beating.deployments[SLOT] = deployment(Count())
        acted = ActedSlot(beating.control.address, beating.secret)
        acted.deployed()
        for _ in range(3):
            assert receive(acted.connection) == Heartbeat()
            acted.connection.send(Heartbeat())


def test_the_registry_gives_up_who_was_silent_and_nobody_else(driver: Driver) -> None:
    """The clock is the test's; other threads only carry messages."""
    now = [0.0]
    driver.registry._now_s = lambda: now[0]
    slots = [SLOT, SlotId("count-1", 1)]
    for slot in slots:
        driver.deployments[slot] = deployment(Count(), slot.subtask, 2)
    silent, talkative = (ActedSlot(driver.control.address, driver.secret, slot) for slot in slots)
    for acted in (silent, talkative):
        acted.deployed()
        acted.ready()
        driver.link.acquire_slot(acted.slot_id)  # returns when the driver has heard of it
    now[0] = 49.9
    assert driver.registry.beat(50.0) == []
    for acted in (silent, talkative):
        assert receive(acted.connection) == Heartbeat()
    driver.registry.message_came(slots[1])
    now[0] = 50.0
    assert driver.registry.beat(50.0) == [slots[0]]
    assert receive(talkative.connection) == Heartbeat()


def test_a_slot_whose_buffers_are_full_holds_nobody_up(driver: Driver) -> None:
    driver.deployments[SLOT] = deployment(Count())
    acted = ActedSlot(driver.control.address, driver.secret)
    acted.deployed()
    filling = in_thread(lambda: driver.registry.send(SLOT, bytes(100_000_000)))
    while driver.registry._lock.acquire(blocking=False):  # until somebody is sending
        driver.registry._lock.release()
    driver.registry._slots[SLOT].connection.try_send(Heartbeat())  # type: ignore[union-attr]
    acted.connection.shut_down()
    assert outcome(filling) is None


# --- settings ----------------------------------------------------------------------------------------------


def test_the_defaults_are_flinks() -> None:
    assert HeartbeatSettings() == HeartbeatSettings(interval_ms=10_000, timeout_ms=50_000)


@pytest.mark.parametrize(("interval_ms", "timeout_ms"), [(0, 1), (-1, 5), (10, 9)])
def test_an_interval_longer_than_the_timeout_is_refused(interval_ms: int, timeout_ms: int) -> None:
    with pytest.raises(ConfigurationError, match=r"heartbeat\.interval is .* ms and heartbeat\.timeout"):
        HeartbeatSettings(interval_ms, timeout_ms)
