"""What a task does with its connection to a state slot: it is closed once nobody needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from slot_functions import Count
from support_runtime import PATIENCE_S
from support_slots import Driver, Slot, frames_for

from pyflinkstate.runtime.tasks import slot_client
from pyflinkstate.runtime.wire.channel import Channel


@pytest.fixture
def slot(driver: Driver) -> Slot:
    return driver.start_slot(Count())


@pytest.fixture
def connections(slot: Slot, monkeypatch: pytest.MonkeyPatch) -> list[Channel]:
    """The connections that tasks make to slots."""
    made: list[Channel] = []
    connect = slot_client.connect

    def noting(*arguments: Any) -> Channel:
        made.append(connect(*arguments))
        return made[-1]

    monkeypatch.setattr(slot_client, "connect", noting)
    return made


def test_it_is_closed_at_the_end_of_an_epoch(slot: Slot, connections: list[Channel]) -> None:
    slot.feed(1, [("a", 1)])
    assert [connection.fileno() for connection in connections] == [-1]


def test_whoever_reads_no_further_leaves_it_to_the_writer(slot: Slot, connections: list[Channel]) -> None:
    goes_on = threading.Event()

    def frames() -> Iterator[bytes]:
        for number in range(3):
            yield frames_for([("a", number)])[0][0]
        goes_on.wait(PATIENCE_S)

    results = slot.run(1, frames())
    next(results)
    (writer,) = [thread for thread in threading.enumerate() if isinstance(thread, slot_client._FrameWriter)]
    results.close()
    assert connections[0].fileno() >= 0, "the writer may be using it"
    goes_on.set()
    writer.join(PATIENCE_S)
    assert connections[0].fileno() == -1
