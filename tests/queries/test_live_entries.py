"""Answers of slots: how they are read, and slots that cannot be reached."""

from __future__ import annotations

import gc
import socket
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support_slots import in_thread, opened, outcome

from pyflinkstate import Types
from pyflinkstate.api import StateKind
from pyflinkstate.backends.format import KeyGroupEntries, StateCodec
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import StateQueryError, StateQueryTimeoutError, StateValueError
from pyflinkstate.runtime import queries
from pyflinkstate.runtime.plan import SettledOperator
from pyflinkstate.runtime.queries import LiveEntries, LiveSlots, StateQueries, StateQuestion
from pyflinkstate.runtime.wire import (
    Address,
    AnswerEnded,
    Channel,
    HandshakeLimits,
    ServerName,
    SlotId,
    new_secret,
)
from pyflinkstate.runtime.wire.handshake import LIMITS
from pyflinkstate.runtime.wire.tls import TlsSocket

META = RegisteredStateMeta("count", StateKind.VALUE, Types.LONG())
OPERATOR: Any = SimpleNamespace(operator_id="counts", node=SimpleNamespace(key_type=Types.LONG()))


def pair(is_encrypted: bool = False) -> tuple[Channel, Channel]:
    """Return both ends of a TCP connection: that of the slot, and that of the driver."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    if not is_encrypted:
        return opened(Channel(theirs)), opened(Channel(ours))
    secret = new_secret(True)
    slot, driver = TlsSocket(theirs, secret, is_server=True), TlsSocket(ours, secret, is_server=False)
    agreed = in_thread(lambda: slot.do_handshake(lambda: None))
    driver.do_handshake(lambda: None)
    assert outcome(agreed) is None
    return opened(Channel(slot)), opened(Channel(driver))


def batch(*counts: tuple[int, int]) -> bytes:
    entries = KeyGroupEntries(0, [key for key, _ in counts], None, [count for _, count in counts])
    made = StateCodec(Types.LONG(), META, None).to_batch(entries)
    return bytes(made.serialize().to_pybytes())


def entries_of(*channels: Channel, timeout_s: float = 20.0, closed: list[int] | None = None) -> LiveEntries:
    told = [] if closed is None else closed
    return LiveEntries(OPERATOR, META, 3, 0, channels, timeout_s, lambda: told.append(1))


def rows(entries: LiveEntries) -> list[tuple[int, int]]:
    table = pa.Table.from_batches(list(entries.batches()))
    return sorted(zip(*(table.column(name).to_pylist() for name in ("key", "value")), strict=True))


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_what_has_come_before_is_read_whether_it_was_read_ahead_or_not(is_encrypted: bool) -> None:
    (left, from_left), (right, from_right) = pair(is_encrypted), pair(is_encrypted)
    for number in range(3):
        left.send_bytes(batch((number, 1)))
    right.send_bytes(batch((7, 2), (8, 2)))
    for slot in (left, right):
        slot.send_bytes(b"")
        slot.send(AnswerEnded())
    closed: list[int] = []
    assert rows(entries_of(from_left, from_right, closed=closed)) == [(0, 1), (1, 1), (2, 1), (7, 2), (8, 2)]
    assert closed == [1]
    assert from_left.fileno() == from_right.fileno() == -1


def test_an_error_of_a_slot_and_a_connection_that_breaks_end_the_answer() -> None:
    slot, driver = pair()
    slot.send_bytes(batch((1, 1)))
    slot.send_bytes(b"")
    slot.send(AnswerEnded(StateValueError("state 'count': not a number")))
    with pytest.raises(StateValueError, match="not a number"):
        rows(entries_of(driver))
    slot, driver = pair()
    slot.send_bytes(batch((1, 1)))
    slot.close()
    with pytest.raises(StateQueryError, match="'counts' ended or cut off its answer"):
        rows(entries_of(driver))


def test_a_slot_that_sends_nothing_is_not_waited_for_for_ever() -> None:
    _, driver = pair()
    with pytest.raises(StateQueryTimeoutError, match=r"sent anything for 0\.05 s"):
        rows(entries_of(driver, timeout_s=0.05))


def test_what_nobody_refers_to_any_more_is_closed() -> None:
    slot, driver = pair()
    closed: list[int] = []
    entries = entries_of(driver, closed=closed)
    slot.send_bytes(batch((1, 1)))
    started = entries.batches()
    next(started)
    del started, entries
    gc.collect()
    assert closed == [1]
    assert slot.poll(20.0), "the slot notices"


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

    monkeypatch.setattr(queries, "connect", never)
    now = [100.0]
    slots = LiveSlots(0, 1, {SlotId("sums", 0): Address("127.0.0.1", 1)}, new_secret(False))
    node: Any = None
    operator = SettledOperator("sums", "sums", node, 1, 128, False)
    asked = StateQueries([operator], lambda: slots, lambda: 0, lambda: now[-1])
    with pytest.raises(StateQueryTimeoutError, match=r"has not answered within 0\.5 s"):
        asked.ask(StateQuestion("sums", "n"), 0.5)
    assert [one.timeout_s for one in limits] == [0.5]
