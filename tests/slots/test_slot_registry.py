"""The slot registry, without a network: who starts a slot, who waits, who is told what."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from support_runtime import PATIENCE_S, receive
from support_slots import SLOT, in_thread, outcome

from pyflinkstate.errors import RuntimeFailure
from pyflinkstate.runtime.slots.control import SlotRegistry
from pyflinkstate.runtime.wire.channel import Channel
from pyflinkstate.runtime.wire.messages import (
    AbortCheckpoint,
    CloseSlot,
    RegisterSlot,
    SlotAvailable,
    SlotId,
    SlotUnavailable,
    StartSlot,
)
from pyflinkstate.runtime.wire.transport import Address

ADDRESS = Address("127.0.0.1", 4_000)
OTHER = SlotId("count-1", 1)
BROKEN = RuntimeFailure("broken")


@attrs.frozen
class Peer:
    """Both ends of a connection: the registry's, and the one that the task or slot reads."""

    theirs: Channel
    ours: Channel

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
    made = [Peer(*map(Channel, socket.socketpair())) for _ in range(4)]
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
