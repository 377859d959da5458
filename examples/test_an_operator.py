"""Unit tests of operators: in milliseconds, without Spark and without Java.

    pytest examples/test_an_operator.py

A harness runs one subtask of an operator on the real state backend. Time is what the test says it is, and a
snapshot can be restored at any parallelism. The operators are those of the examples beside this one.
"""

from __future__ import annotations

from typing import Any

from deduplication import Event, build as deduplicated
from joining_streams import UNPAID, WAIT_MS, Join, Order, Payment, Sale
from session_windows import GAP_MS, MINUTE_MS, Event as Click, Visit, VisitsByTimers

from pyflinkstate.common import Types
from pyflinkstate.testing import (
    MAX_WATERMARK,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    harness_of,
    split,
)


def test_an_event_passes_once_a_day() -> None:
    harness = harness_of(deduplicated)
    event = Event("event-1", "hello")
    assert harness.process_element(event) == [event]
    assert harness.process_element(event) == []
    harness.set_processing_time(24 * 60 * MINUTE_MS - 1)
    assert harness.process_element(event) == []
    harness.set_processing_time(24 * 60 * MINUTE_MS)
    assert harness.process_element(event) == [event], "its time to live has passed"


def visits(**options: Any) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(VisitsByTimers(), lambda event: event.user, Types.STRING(), **options)


def click(harness: KeyedOneInputOperatorHarness, user: str, minute: int) -> list[Visit]:
    return harness.process_element(Click(user, minute * MINUTE_MS), minute * MINUTE_MS)


def test_a_visit_ends_when_half_an_hour_has_passed() -> None:
    with visits() as harness:
        for minute in (10, 0, 25):  # in no order
            assert click(harness, "ann", minute) == []
        assert harness.process_watermark(25 * MINUTE_MS + GAP_MS - 1) == []
        ann = Visit("ann", 0, 25 * MINUTE_MS, 3)
        assert harness.process_watermark(25 * MINUTE_MS + GAP_MS) == [ann]
        assert harness.num_event_time_timers() == 0
        assert harness.num_keyed_state_entries() == 0, "nothing is left of it"


def test_open_visits_survive_a_restart_at_another_parallelism() -> None:
    users = [f"user {number}" for number in range(20)]
    with visits() as harness:
        for user in users:
            click(harness, user, 5)
        snapshot = harness.snapshot()
    parts = [visits(restore=part) for part in split(snapshot, 3)]
    found = [part.process_watermark(MAX_WATERMARK) for part in parts]
    assert all(found), "each of the three has some"
    assert {visit.user for visits_of_part in found for visit in visits_of_part} == set(users)


def test_an_order_waits_for_its_payment_and_gives_up() -> None:
    harness = KeyedTwoInputOperatorHarness(
        Join(), lambda order: order.number, lambda payment: payment.number, Types.LONG()
    )
    cup, pen = Order(1, 0, "cup"), Order(2, 0, "pen")
    for order in (cup, pen):
        assert harness.process_element1(order, order.time_ms) == []
    paid = Payment(1, 3 * MINUTE_MS, 99)
    assert harness.process_element2(paid, paid.time_ms) == [Sale(1, "cup", 99)]
    harness.process_watermark1(WAIT_MS)
    assert harness.extract_side_output_values(UNPAID) == [], "the payments are not there yet"
    harness.process_watermark2(WAIT_MS)
    assert harness.extract_side_output_values(UNPAID) == [pen]
