"""The driver's control server and its registry: who starts a slot, who waits, who is refused."""

from __future__ import annotations

import os
from collections.abc import Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S, ack, decline, next_event, receive
from support_slots import SLOT, ActedSlot, Driver, deployment, in_thread, outcome

from pyflinkstate.errors import RuntimeFailure, SlotLostError
from pyflinkstate.runtime.control import SlotLost, SlotRegistry
from pyflinkstate.runtime.messages import (
    AbortCheckpoint,
    AcquireSlot,
    CloseSlot,
    RegisterSlot,
    SlotAvailable,
    SlotClosed,
    SlotFailed,
    SlotId,
    SlotUnavailable,
    StartSlot,
    TaskReport,
)
from pyflinkstate.runtime.transport import Address, connect

ADDRESS = Address("127.0.0.1", 4_000)
OTHER = SlotId("count-1", 1)
BROKEN = RuntimeFailure("broken")


# --- the registry, without a network -----------------------------------------------------------------


@attrs.frozen
class Peer:
    """Both ends of a connection: the registry's, and the one that the task or slot reads."""

    theirs: Connection
    ours: Connection

    def heard(self) -> Any:
        """What has come so far: one message, None, or the end."""
        if not self.ours.poll(0):
            return None
        try:
            return self.ours.recv()
        except EOFError:
            return "cut off"


@pytest.fixture
def peers() -> Iterator[list[Peer]]:
    made = [Peer(*Pipe()) for _ in range(4)]
    yield made
    for peer in made:
        peer.theirs.close()
        peer.ours.close()


@pytest.fixture
def registry() -> SlotRegistry:
    return SlotRegistry(0)


def heard(peers: list[Peer]) -> list[Any]:
    return [peer.heard() for peer in peers]


def register(registry: SlotRegistry, peer: Peer, slot: SlotId = SLOT, pid: int = 77) -> bool:
    return registry.register(RegisterSlot(0, slot, pid, ADDRESS), peer.theirs)


def test_the_first_task_starts_the_slot_and_the_others_wait(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    for peer in peers[:3]:
        registry.acquire(SLOT, peer.theirs)
    assert heard(peers) == [StartSlot(), None, None, None]
    assert register(registry, peers[3])
    assert heard(peers) == [None] * 4, "a slot that has registered is not ready yet"
    registry.ready(SLOT, ADDRESS)
    assert heard(peers) == [SlotAvailable(ADDRESS)] * 3 + [None]
    registry.acquire(SLOT, peers[0].theirs)
    assert heard(peers) == [SlotAvailable(ADDRESS), None, None, None]


def test_each_slot_has_a_starter_of_its_own(registry: SlotRegistry, peers: list[Peer]) -> None:
    registry.acquire(SLOT, peers[0].theirs)
    registry.acquire(OTHER, peers[1].theirs)
    assert heard(peers) == [StartSlot(), StartSlot(), None, None]


def test_when_the_starter_leaves_the_next_that_waits_starts(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    for peer in peers[:3]:
        registry.acquire(SLOT, peer.theirs)
    registry.task_left(SLOT, peers[0].theirs)
    assert heard(peers) == [StartSlot(), StartSlot(), None, None]
    registry.task_left(SLOT, peers[1].theirs)
    registry.task_left(SLOT, peers[2].theirs)
    registry.acquire(SLOT, peers[3].theirs)
    assert heard(peers) == [None, None, StartSlot(), StartSlot()]


def test_a_task_that_waited_and_left_is_not_asked_to_start(registry: SlotRegistry, peers: list[Peer]) -> None:
    for peer in peers[:3]:
        registry.acquire(SLOT, peer.theirs)
    registry.task_left(SLOT, peers[1].theirs)
    registry.task_left(SLOT, peers[0].theirs)
    assert heard(peers) == [StartSlot(), None, StartSlot(), None]


def test_when_the_starter_leaves_a_slot_that_has_registered_nobody_starts_another(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    for peer in peers[:2]:
        registry.acquire(SLOT, peer.theirs)
    register(registry, peers[3])
    registry.task_left(SLOT, peers[0].theirs)
    assert heard(peers[1:]) == [None] * 3
    registry.ready(SLOT, ADDRESS)
    assert heard(peers[1:]) == [SlotAvailable(ADDRESS), None, None]


def test_of_two_slots_that_register_as_one_the_second_is_not_wanted(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    assert register(registry, peers[0])
    assert not register(registry, peers[1])
    assert register(registry, peers[2], OTHER)


def test_a_slot_that_fails_is_told_to_all_who_wait_and_to_all_who_ask(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    for peer in peers[:2]:
        registry.acquire(SLOT, peer.theirs)
    heard(peers)
    registry.failed(SLOT, BROKEN)
    registry.acquire(SLOT, peers[2].theirs)
    answers = heard(peers)
    assert [type(answer) for answer in answers[:3]] == [SlotUnavailable] * 3
    assert {str(answer.error) for answer in answers[:3]} == {"broken"}
    registry.failed(SLOT, RuntimeFailure("a consequence"))
    registry.acquire(SLOT, peers[3].theirs)
    assert str(peers[3].heard().error) == "broken", "the first error is the cause"


def test_addresses_and_pids_are_of_slots_that_run(registry: SlotRegistry, peers: list[Peer]) -> None:
    register(registry, peers[0], SLOT, pid=11)
    register(registry, peers[1], OTHER, pid=12)
    assert registry.addresses() == {}
    assert registry.pids() == {SLOT: 11, OTHER: 12}
    registry.ready(SLOT, ADDRESS)
    registry.ready(OTHER, ADDRESS)
    registry.failed(SLOT, BROKEN)
    assert registry.addresses() == {OTHER: ADDRESS}
    assert registry.pids() == {OTHER: 12}


def test_messages_go_to_the_slot_and_to_nobody_where_there_is_none(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    registry.send(SLOT, AbortCheckpoint(1))
    register(registry, peers[0])
    peers[1].ours.close()
    register(registry, peers[1], OTHER)
    for slot in (SLOT, OTHER):
        registry.send(slot, AbortCheckpoint(2))
    assert peers[0].heard() == AbortCheckpoint(2)


def test_the_end_of_an_attempt_cuts_off_all_and_refuses_what_comes_later(
    registry: SlotRegistry, peers: list[Peer]
) -> None:
    register(registry, peers[0])
    for peer in peers[1:3]:
        registry.acquire(OTHER, peer.theirs)
    assert peers[1].heard() == StartSlot()
    registry.end()
    registry.end()
    registry.acquire(OTHER, peers[3].theirs)
    assert heard(peers) == ["cut off"] * 4
    assert not register(registry, peers[3], OTHER)


def test_close_asks_each_slot_and_waits_for_its_answer(registry: SlotRegistry, peers: list[Peer]) -> None:
    for peer, slot in zip(peers, (SLOT, OTHER), strict=False):
        register(registry, peer, slot)
    closing = in_thread(lambda: registry.close(PATIENCE_S))
    assert receive(peers[0].ours) == receive(peers[1].ours) == CloseSlot()
    registry.slot_closed(SLOT)
    assert closing.empty()
    registry.slot_closed(OTHER)
    assert outcome(closing) is None
    assert heard(peers[:2]) == ["cut off"] * 2


# --- the server, over real connections -----------------------------------------------------------------


def ask(driver: Driver, slot: SlotId = SLOT, attempt: int = 0) -> Connection:
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
def test_a_slot_that_vanishes_is_lost(deployable: Driver, ready: bool) -> None:
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


def test_acknowledgements_and_refusals_of_checkpoints_become_events(deployable: Driver) -> None:
    slot = act(deployable)
    slot.deployed()
    slot.ready()
    for message in (ack(3, SLOT), ack(3, SLOT), ack(4, SLOT)):
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
    with pytest.raises(ConnectionError, match="no trust between the two ends"):
        connect(deployable.control.address, b"wrong")
    assert receive(ask(deployable)) == StartSlot()


def test_a_server_that_does_not_know_the_secret_gets_no_message(deployable: Driver) -> None:
    link = attrs.evolve(deployable.link, secret=b"the task's own")
    with pytest.raises(ConnectionError, match="no trust"):
        link.report(TaskReport(0, 1, "map[0]"))
    assert deployable.events.empty()


def test_nobody_is_served_after_the_close(deployable: Driver) -> None:
    waiting = ask(deployable)
    assert receive(waiting) == StartSlot()
    deployable.control.close()
    with pytest.raises(EOFError):
        receive(waiting)
    with pytest.raises(OSError, match="refused|no trust"):
        ask(deployable)


def test_a_task_that_waits_when_the_driver_ends_is_told_so(deployable: Driver) -> None:
    starter = ask(deployable)
    assert receive(starter) == StartSlot()
    waiting = in_thread(lambda: deployable.link.acquire_slot(SLOT))
    deployable.control.close()
    assert isinstance(outcome(waiting), OSError)
