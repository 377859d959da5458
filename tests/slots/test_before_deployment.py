"""What a slot hears before it is told what to run: other threads of the driver do not wait for that."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from slot_functions import Echo, HearOfCheckpoints, TellOfClose
from support_runtime import PATIENCE_S, receive
from support_slots import SLOT, ActedSlot, Driver, deployment, in_thread, outcome

from pyflinkstate.api.functions import KeyedProcessFunction
from pyflinkstate.runtime.wire.messages import (
    AbortCheckpoint,
    CloseSlot,
    DeploySlot,
    Heartbeat,
    NotifyCheckpointComplete,
    SlotId,
)

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("forked_slots")]


class Deploying:
    """Stands still after a slot has registered, and before its deployment is sent."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._is_asked, self._may_go_on = threading.Event(), threading.Event()
        driver.of = self._of  # type: ignore[method-assign]

    def _of(self, slot: SlotId) -> DeploySlot:
        self._is_asked.set()
        assert self._may_go_on.wait(PATIENCE_S)
        return self._driver.deployments[slot]

    def __enter__(self) -> None:
        assert self._is_asked.wait(PATIENCE_S), "no slot has registered"

    def __exit__(self, *_: object) -> None:
        self._may_go_on.set()


@pytest.fixture
def deploying(driver: Driver) -> Deploying:
    return Deploying(driver)


def fed(driver: Driver, deploying: Deploying, function: KeyedProcessFunction, *early: object) -> Any:
    """Feed a slot that has heard of something before its deployment; return the results."""
    starting = in_thread(lambda: driver.start_slot(function))
    with deploying:
        assert driver.registry.beat(PATIENCE_S) == []
        for message in early:
            driver.registry.send(SLOT, message)
    slot = outcome(starting)
    assert not isinstance(slot, Exception), f"the slot has not started: {slot}"
    return slot.feed(1, [("a", 1)])[0]


def test_a_heartbeat_does_not_end_the_slot(driver: Driver, deploying: Deploying) -> None:
    assert fed(driver, deploying, Echo()) == [("a", 1)]
    assert driver.events.empty()


def test_what_a_function_is_to_hear_is_kept_for_it(
    driver: Driver, deploying: Deploying, tmp_path: Path
) -> None:
    path = tmp_path / "heard"
    early = AbortCheckpoint(2), NotifyCheckpointComplete(3)
    assert fed(driver, deploying, HearOfCheckpoints(str(path)), *early) == [("a", 1)]
    driver.registry.close(PATIENCE_S)
    assert path.read_text() == "aborted 2\ncomplete 3\nclosed\n"


def test_a_slot_that_is_to_close_opens_its_function_and_closes_it(
    driver: Driver, deploying: Deploying, tmp_path: Path
) -> None:
    path = tmp_path / "closed"
    driver.deployments[SLOT] = deployment(TellOfClose(str(path)))
    starting = in_thread(lambda: driver.link.acquire_slot(SLOT))
    with deploying:
        driver.registry.send(SLOT, CloseSlot())
    assert not isinstance(outcome(starting), Exception)
    driver.registry.close(PATIENCE_S)
    assert path.read_text() == "closed\n"


def test_a_slot_is_not_silent_before_it_is_told_what_to_run(driver: Driver, deploying: Deploying) -> None:
    """It answers, and the driver listens when the deployment is sent, which may be large."""
    now = [0.0]
    driver.registry._now_s = lambda: now[0]
    driver.deployments[SLOT] = deployment(Echo())
    acted = ActedSlot(driver.control.address, driver.secret)
    with deploying:
        now[0] = 1000.0
        assert driver.registry.beat(50.0) == []
        assert receive(acted.connection) == Heartbeat()
    assert acted.deployed().name == "count"
    acted.ready()
    driver.link.acquire_slot(SLOT)  # returns when the driver has heard of it
    now[0] = 1049.9
    assert driver.registry.beat(50.0) == []
    now[0] = 1050.0
    assert driver.registry.beat(50.0) == [SLOT]
