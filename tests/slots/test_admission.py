"""Which task may feed an epoch to a slot, and what the others are told."""

from __future__ import annotations

from typing import Any

import pytest
from slot_functions import Echo
from support_slots import SLOT, deployment

from pyflinkstate.errors import PyFlinkStateError, SlotBusyError, StaleSlotError
from pyflinkstate.runtime.slots.slot import StateSlot
from pyflinkstate.runtime.slots.slot_service import SlotHost, SlotService
from pyflinkstate.runtime.wire.messages import BeginEpoch, EpochAccepted, EpochRefused


@pytest.fixture
def service() -> SlotService:
    """A slot of attempt 0 that has applied nothing yet."""
    made = SlotService(SLOT, 0, SlotHost(lambda message: None, lambda run: run(), lambda: 0))
    assert made.deploy(deployment(Echo())) is None
    return made


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


@pytest.mark.parametrize("epoch", [1, 2])
def test_while_a_task_feeds_it_the_slot_is_busy(service: SlotService, epoch: int) -> None:
    begin(service, 1)
    kind, told, is_applied = refusal(service, epoch)
    assert (kind, told, is_applied) == (SlotBusyError, f"slot {SLOT}: another task is feeding it", False)


def test_an_epoch_that_it_has_applied_is_not_applied_again(service: SlotService) -> None:
    apply(service, 1)
    kind, told, is_applied = refusal(service, 1)
    assert (kind, is_applied) == (StaleSlotError, True)
    assert "cannot take epoch 1: it is at version 1" in told


@pytest.mark.parametrize("epoch", [1, 4])
def test_only_the_next_epoch_is_accepted(service: SlotService, epoch: int) -> None:
    apply(service, 1)
    apply(service, 2)
    kind, told, is_applied = refusal(service, epoch)
    assert (kind, is_applied) == (StaleSlotError, False)
    assert "it is at version 2" in told


def test_who_asks_for_an_epoch_that_is_over_need_not_wait_for_the_next_one(service: SlotService) -> None:
    apply(service, 1)
    begin(service, 2)
    kind, told, is_applied = refusal(service, 1)
    assert (kind, is_applied) == (StaleSlotError, False)
    assert "it processes epoch 2" in told


def test_nor_who_is_of_another_attempt(service: SlotService) -> None:
    begin(service, 1)
    kind, told, is_applied = refusal(service, 1, attempt=1)
    assert (kind, is_applied) == (StaleSlotError, False)
    assert "it is of attempt 0" in told


def test_after_an_epoch_that_broke_off_it_accepts_none(service: SlotService) -> None:
    begin(service, 1)
    service.abandon()
    kind, told, is_applied = refusal(service, 1)
    assert (kind, is_applied) == (StaleSlotError, False)
    assert "it is at version None" in told


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
