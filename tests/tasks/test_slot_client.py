"""What a task does with a state slot: it starts the process, and closes the connection that nobody needs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from slot_functions import Count
from support_runtime import PATIENCE_S
from support_slots import SLOT, Driver, Slot, frames_for

from pyflinkstate.errors import SlotLostError
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


def ended_with_3(command: list[str], **settings: Any) -> subprocess.Popen[bytes]:
    """Return a process that has ended before anybody could write to it."""
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"], **settings)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


def test_a_slot_that_ends_before_it_reads_what_it_is_to_be_is_lost(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = SimpleNamespace(Popen=ended_with_3, PIPE=subprocess.PIPE)
    monkeypatch.setattr(slot_client, "subprocess", processes)
    monkeypatch.setattr(slot_client, "_GRACE_S", 0)
    with pytest.raises(
        SlotLostError, match=r"slot count-1\[0\] ended with exit code 3 while it was starting"
    ):
        driver.link.acquire_slot(SLOT)
