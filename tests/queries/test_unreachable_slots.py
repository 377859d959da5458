"""Questions to slots to which no connection comes about."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pyflinkstate.errors import StateQueryTimeoutError
from pyflinkstate.runtime.plan import SettledOperator
from pyflinkstate.runtime.queries import asking
from pyflinkstate.runtime.queries.asking import LiveSlots, StateQueries, StateQuestion
from pyflinkstate.runtime.wire import Address, ServerName, SlotId, new_secret
from pyflinkstate.runtime.wire.handshake import LIMITS, HandshakeLimits


def test_a_slot_that_cannot_be_reached_is_said() -> None:
    """It may have died, or a firewall may be between: neither is known."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # and does not listen
        address = Address("127.0.0.1", closed.getsockname()[1])
        slots = LiveSlots(0, 1, {SlotId("sums", 0): address}, new_secret(False))
        node: Any = None
        operator = SettledOperator("sums", "sums", node, 1, 128, False)
        queries = StateQueries([operator], lambda: slots, lambda: 0)
        with pytest.raises(StateQueryTimeoutError) as caught:
            queries.ask(StateQuestion("sums", "n"), 0.05)
    assert "waits for a connection to the slots, which failed (" in str(caught.value)
    assert "refused" in str(caught.value)
    assert "network may keep the driver" in str(caught.value)


def test_the_time_to_connect_is_what_is_left_of_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot's host takes the connection and does not answer, as one does that is stopped."""
    limits: list[HandshakeLimits] = []

    def never(address: Address, server: ServerName, secret: bytes, given: HandshakeLimits = LIMITS) -> Any:
        limits.append(given)
        now.append(now[-1] + given.timeout_s)
        raise ConnectionError("the handshake took too long")

    monkeypatch.setattr(asking, "connect", never)
    now = [100.0]
    slots = LiveSlots(0, 1, {SlotId("sums", 0): Address("127.0.0.1", 1)}, new_secret(False))
    node: Any = None
    operator = SettledOperator("sums", "sums", node, 1, 128, False)
    queries = StateQueries([operator], lambda: slots, lambda: 0, lambda: now[-1])
    with pytest.raises(StateQueryTimeoutError, match=r"has not answered within 0\.5 s"):
        queries.ask(StateQuestion("sums", "n"), 0.5)
    assert [one.timeout_s for one in limits] == [0.5]
