"""What slots send of their state, read from all connections at once."""

from __future__ import annotations

import gc
import socket
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from support_slots import in_thread, opened, outcome

from pyflinkstate.api.state import StateKind
from pyflinkstate.api.types import Types
from pyflinkstate.backends.format import KeyGroupEntries, StateCodec
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.errors import StateQueryError, StateQueryTimeoutError, StateValueError
from pyflinkstate.runtime.queries.live_entries import LiveEntries
from pyflinkstate.runtime.wire import AnswerEnded, Channel
from pyflinkstate.runtime.wire.tls import TlsSocket, new_secret

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


def test_an_error_of_a_slot_ends_the_answer() -> None:
    slot, driver = pair()
    slot.send_bytes(batch((1, 1)))
    slot.send_bytes(b"")
    slot.send(AnswerEnded(StateValueError("state 'count': not a number")))
    with pytest.raises(StateValueError, match="not a number"):
        rows(entries_of(driver))


def test_a_connection_that_breaks_is_said() -> None:
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
