"""Slots that the test acts in jobs of the job master: no process, no state, every message under control."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any

from support_job import LocalRunner
from support_runtime import PATIENCE_S, ack
from support_slots import ActedSlot

from pyflinkstate.runtime.engine import EpochRequest, SlotsRequest
from pyflinkstate.runtime.tasks import DriverLink
from pyflinkstate.runtime.wire import CloseSlot, DeploySlot, SlotClosed, SlotId

SLOTS = [SlotId("process-1", 0), SlotId("process-1", 1)]


class ServedSlot(ActedSlot):
    """An acted slot that notes what the driver says, and answers when it shall close."""

    def __init__(self, driver: DriverLink, slot: SlotId) -> None:
        super().__init__(driver.address, driver.secret, slot, driver.attempt)
        self.deployment = self.deployed()
        self.heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()
        self.ready()

    def _serve(self) -> None:
        with contextlib.suppress(EOFError, OSError):
            while True:
                self.heard.put(message := self.connection.recv())
                if message == CloseSlot():
                    self.connection.send(SlotClosed())
        self.heard.put("cut off")

    def next_heard(self) -> Any:
        return self.heard.get(timeout=PATIENCE_S)


Act = Callable[[EpochRequest, list[ServedSlot]], None]


class ActingRunner(LocalRunner):
    """Runs no task: in each epoch the test acts as the slots."""

    def __init__(self, act: Act) -> None:
        super().__init__()
        self._act = act
        self.slots: dict[int, list[ServedSlot]] = {}
        self.before = self._serve

    def _serve(self, request: EpochRequest) -> None:
        self._begin(request.link.driver)
        self._act(request, self.slots[request.link.driver.attempt])

    def start_each(self, request: SlotsRequest) -> None:
        self._begin(request.link.driver)

    def _begin(self, driver: DriverLink) -> None:
        if driver.attempt not in self.slots:
            self.slots[driver.attempt] = [ServedSlot(driver, slot) for slot in SLOTS]

    def shuffle_ahead(self, request: EpochRequest, done: Callable[[], None]) -> None:
        done()

    def _results(self, request: EpochRequest) -> list[list[Any]]:
        return [[] for _ in request.plan.sinks]

    def deployed(self, attempt: int = 0) -> list[DeploySlot]:
        return [slot.deployment for slot in self.slots[attempt]]


def acknowledge(request: EpochRequest, slots: list[ServedSlot]) -> None:
    """Be good slots."""
    for trigger in () if request.barrier is None else request.barrier.all():
        for slot in slots:
            slot.connection.send(ack(trigger.checkpoint_id, slot.slot_id))
