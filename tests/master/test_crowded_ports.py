"""A job whose ports are crowded with strangers, who only connect or send a byte now and then."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from slot_functions import Echo
from support_job import JobRun, numbers
from support_runtime import PICKLED
from tiers import cases

from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.master.reports.observe import EpochStats, JobListener
from pyflinkstate.runtime.plan.nodes import StatefulNode
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)

STRANGERS = 600


class Crowd(JobListener):
    """Connects to each port of a job after its first epoch, and stays."""

    def __init__(self, stack: ExitStack, trickles: bool) -> None:
        self.job: Job | None = None
        self.connections: list[socket.socket] = []
        self._stack = stack
        self._trickles = trickles
        self._ended = threading.Event()

    def on_epoch(self, stats: EpochStats) -> None:
        if self.connections:
            return
        assert self.job is not None
        slots = self.job._slots
        addresses = [slots.control.address, *slots.registry.addresses().values()]
        assert len(addresses) == 2
        for address in addresses:
            for _ in range(STRANGERS):
                made = socket.create_connection((address.host, address.port))
                self.connections.append(self._stack.enter_context(made))
            assert address.unix_path is None or self._crowd_on_unix(address.unix_path)
        if self._trickles:
            trickling = threading.Thread(target=self._trickle, daemon=True)
            trickling.start()
            self._stack.callback(trickling.join, 30)
            self._stack.callback(self._ended.set)

    def _crowd_on_unix(self, path: str) -> bool:
        for _ in range(STRANGERS):
            made = self._stack.enter_context(socket.socket(socket.AF_UNIX))
            made.connect(path)
            self.connections.append(made)
        return True

    def _trickle(self) -> None:
        while not self._ended.wait(0.001):
            for connection in self.connections:
                with suppress(OSError):
                    connection.send(b"P", socket.MSG_DONTWAIT)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.mark.parametrize("trickles", cases([False, True], quick=[True]), ids=["idle", "trickling"])
def test_its_epochs_go_on(storage: CheckpointFolders, stack: ExitStack, trickles: bool) -> None:
    out: list[Any] = []
    keyed = StatefulNode(numbers(30), lambda n: n % 4, PICKLED, Echo(), "process")
    crowd = Crowd(stack, trickles)
    run = JobRun(keyed, DriverSink(lambda _, values: out.extend(values)), storage, listeners=(crowd,))
    crowd.job = run.job()
    for _ in crowd.job.run():
        pass
    assert len(crowd.connections) == 3 * STRANGERS
    assert len(out) == 30
    assert run.heard.restarts == []
