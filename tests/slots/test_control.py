"""The driver's control server over real connections: who is served, who is told, who is refused."""

from __future__ import annotations

import os
import socket
from multiprocessing.connection import wait

import attrs
import pytest
from support_runtime import PATIENCE_S, ack, decline, handle, next_event, raising, receive
from support_slots import SLOT, ActedSlot, Driver, deployment, in_thread, outcome

from pyflinkstate.errors import ConfigurationError, RuntimeFailure, SlotLostError
from pyflinkstate.runtime.slots import control
from pyflinkstate.runtime.slots.control import ControlServer, Endpoint, SlotLost
from pyflinkstate.runtime.wire.channel import Channel
from pyflinkstate.runtime.wire.messages import (
    AcquireSlot,
    CloseSlot,
    PackageCopy,
    RegisterSlot,
    SlotAvailable,
    SlotClosed,
    SlotFailed,
    SlotId,
    SlotOutput,
    SlotUnavailable,
    StartSlot,
    StateMaterialized,
    TaskReport,
)
from pyflinkstate.runtime.wire.transport import DRIVER, Address, connect

ADDRESS = Address("127.0.0.1", 4_000)
OTHER = SlotId("count-1", 1)
BROKEN = RuntimeFailure("broken")


def ask(driver: Driver, slot: SlotId = SLOT, attempt: int = 0) -> Channel:
    connection = driver.connect()
    connection.send(AcquireSlot(attempt, slot))
    return connection


def act(driver: Driver, slot: SlotId = SLOT, attempt: int = 0) -> ActedSlot:
    return ActedSlot(driver.control.address, driver.secret, slot, attempt)


@pytest.fixture
def deployable(driver: Driver) -> Driver:
    for slot in (SLOT, OTHER):
        driver.deployments[slot] = deployment(None, slot.subtask, 2)  # type: ignore[arg-type]
    return driver


def test_tasks_get_the_address_when_the_slot_is_ready(deployable: Driver) -> None:
    starter = ask(deployable)
    assert receive(starter) == StartSlot()
    others = [ask(deployable) for _ in range(5)]
    slot = act(deployable)
    assert slot.deployed() == deployable.deployments[SLOT]
    slot.ready()
    assert [receive(task) for task in (starter, *others)] == [SlotAvailable(slot.listens_at)] * 6
    assert deployable.registry.addresses() == {SLOT: slot.listens_at}
    assert deployable.registry.pids() == {SLOT: os.getpid()}


def test_the_starter_that_goes_away_hands_over(deployable: Driver) -> None:
    starter, heir = ask(deployable), ask(deployable)
    (first,) = wait([starter, heir], PATIENCE_S)
    assert receive(first) == StartSlot()
    first.close()
    assert receive(heir if first is starter else starter) == StartSlot()


def test_a_slot_that_cannot_start_is_told_to_its_tasks_and_to_the_job(deployable: Driver) -> None:
    task = ask(deployable)
    assert receive(task) == StartSlot()
    slot = act(deployable)
    slot.deployed()
    slot.connection.send(SlotFailed(BROKEN))
    assert str(receive(task).error) == "broken"
    event = next_event(deployable.events, SlotLost)
    assert (event.attempt, event.slot, str(event.error)) == (0, SLOT, "broken")
    with pytest.raises(RuntimeFailure, match="broken"):
        deployable.link.acquire_slot(SLOT)


@pytest.mark.parametrize("ready", [True, False], ids=["ready", "starting"])
def test_a_slot_that_vanishes_is_lost(
    deployable: Driver, ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The task that has started it does not say with which exit code it ended.
    monkeypatch.setattr(control, "_START_ENDED_S", 0.0)
    task = ask(deployable)
    assert receive(task) == StartSlot()
    slot = act(deployable)
    slot.deployed()
    if ready:
        slot.ready()
        assert receive(task) == SlotAvailable(slot.listens_at)
    slot.connection.close()
    event = next_event(deployable.events, SlotLost)
    assert isinstance(event.error, SlotLostError)
    assert event.error.recoverable
    assert f"state slot count-1[0] (process {os.getpid()} at 127.0.0.1) died" in str(event.error)
    if not ready:
        assert isinstance(receive(task), SlotUnavailable)
    assert deployable.registry.addresses() == deployable.registry.pids() == {}


def test_what_a_slot_tells_of_checkpoints_and_of_its_output_becomes_events(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    slot.ready()
    materialized = StateMaterialized(4, SLOT, handle())
    output = SlotOutput(SLOT, ((20, "a line"),))
    for message in (ack(3, SLOT), ack(3, SLOT), ack(4, SLOT), materialized, output):
        slot.connection.send(message)
        assert deployable.events.get(timeout=PATIENCE_S) == message
    slot.connection.send(decline(5, SLOT))
    assert str(deployable.events.get(timeout=PATIENCE_S).error) == "disk full"


def test_reports_of_tasks_become_events_before_the_task_goes_on(deployable: Driver) -> None:
    report = TaskReport(0, 3, "map[1]", {"map.records_in": 5}, ("rejected",))
    deployable.link.report(report)
    assert deployable.events.get_nowait() == report


def test_tasks_and_slots_of_another_attempt_are_refused(deployable: Driver) -> None:
    newer = deployable.control.new_attempt(2)
    for attempt in (0, 1, 3):
        with ask(deployable, attempt=attempt) as task, pytest.raises(EOFError):
            receive(task)
        with act(deployable, attempt=attempt).connection as slot, pytest.raises(EOFError):
            receive(slot)
    assert newer.pids() == {}
    assert receive(ask(deployable, attempt=2)) == StartSlot()
    assert deployable.events.empty()


def test_a_new_attempt_cuts_off_the_one_before(deployable: Driver) -> None:
    slot, task = act(deployable), ask(deployable, OTHER)
    slot.deployed()
    assert receive(task) == StartSlot()
    deployable.control.new_attempt(1)
    for connection in (slot.connection, task):
        with pytest.raises(EOFError):
            receive(connection)
    lost = next_event(deployable.events, SlotLost)
    assert lost.attempt == 0, "so the job can tell that this is no failure of the new attempt"


def test_a_second_slot_for_one_subtask_is_sent_away(deployable: Driver) -> None:
    first = act(deployable)
    first.deployed()
    with pytest.raises(EOFError):
        act(deployable).deployed()
    first.ready()
    assert receive(ask(deployable)) == SlotAvailable(first.listens_at)


def test_a_slot_that_closes_with_an_error_is_told_to_the_job(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    slot.ready()
    closing = in_thread(lambda: deployable.registry.close(PATIENCE_S))
    assert receive(slot.connection) == CloseSlot()
    slot.connection.send(SlotClosed(BROKEN))
    assert outcome(closing) is None
    assert str(deployable.events.get_nowait().error) == "broken"


def test_a_slot_that_dies_while_it_closes_does_not_keep_the_job_waiting(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    closing = in_thread(lambda: deployable.registry.close(10**6))
    assert receive(slot.connection) == CloseSlot()
    slot.connection.close()
    assert outcome(closing) is None


def test_a_peer_with_a_wrong_secret_is_refused(deployable: Driver) -> None:
    with pytest.raises(ConnectionError, match="cannot authenticate"):
        connect(deployable.control.address, DRIVER, b"wrong")
    assert receive(ask(deployable)) == StartSlot()


def test_a_server_that_does_not_know_the_secret_gets_no_message(deployable: Driver) -> None:
    link = attrs.evolve(deployable.link, secret=b"the task's own")
    with pytest.raises(ConnectionError, match="cannot authenticate"):
        link.report(TaskReport(0, 1, "map[0]"))
    assert deployable.events.empty()


def test_nobody_is_served_after_the_close(deployable: Driver) -> None:
    waiting = ask(deployable)
    assert receive(waiting) == StartSlot()
    deployable.control.close()
    with pytest.raises(EOFError):
        receive(waiting)
    with pytest.raises(OSError, match=r"refused|cannot authenticate"):
        ask(deployable)


def test_a_task_that_waits_when_the_driver_ends_is_told_so(deployable: Driver) -> None:
    starter = ask(deployable)
    assert receive(starter) == StartSlot()
    waiting = in_thread(lambda: deployable.link.acquire_slot(SLOT))
    deployable.control.close()
    assert isinstance(outcome(waiting), OSError)


def test_a_port_that_is_taken_is_a_matter_of_settings(deployable: Driver) -> None:
    taken = Endpoint(port=deployable.control.address.port)
    with pytest.raises(ConfigurationError, match=r"cannot listen on 127\.0\.0\.1, port \d+[\s\S]*port"):
        ControlServer(taken, b"", deployable.events, raising(KeyError()))


def test_a_peer_that_says_nothing_keeps_nobody_waiting(deployable: Driver) -> None:
    address = deployable.control.address
    with socket.create_connection((address.host, address.port)):
        assert receive(ask(deployable)) == StartSlot()


OWN = PackageCopy.here()


@pytest.mark.parametrize(
    ("other", "program", "said"),
    [
        (attrs.evolve(OWN, folder="/checkout"), OWN, "runs another copy"),
        (attrs.evolve(OWN, folder="/checkout", host="another"), OWN, ""),
        (attrs.evolve(OWN, folder="/packages/package.zip"), OWN, ""),
        (attrs.evolve(OWN, is_compiled=False), attrs.evolve(OWN, is_compiled=True), "runs it interpreted"),
        (attrs.evolve(OWN, is_compiled=True), attrs.evolve(OWN, is_compiled=False), ""),
        (OWN, OWN, ""),
    ],
)
def test_which_copies_of_the_package_differ(other: PackageCopy, program: PackageCopy, said: str) -> None:
    assert other.difference(program).startswith(said)
    assert bool(other.difference(program)) == bool(said)


def test_workers_and_slots_with_another_copy_of_the_package_are_one_warning(
    deployable: Driver, caplog: pytest.LogCaptureFixture
) -> None:
    other = attrs.evolve(OWN, folder="/checkout")
    for _ in range(2):
        deployable.link.report(TaskReport(0, 1, "map[0]", package=other))
    connection = deployable.connect()
    connection.send(RegisterSlot(0, SLOT, os.getpid(), ADDRESS, other))
    receive(connection)
    (record,) = caplog.records
    assert "a Python worker on" in record.getMessage()
    assert "imports pyflinkstate from /checkout" in record.getMessage()
    assert "start it in another folder" in record.getMessage()
