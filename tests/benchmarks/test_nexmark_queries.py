"""Nexmark's queries give what plain Python computes from the SQL, whatever the order of the events."""

from __future__ import annotations

import pytest
from nexmark_suite.events import Auction, Bid
from nexmark_suite.generator import BASE_TIME_MS, GeneratorConfig, events_between
from nexmark_suite.oracles import Tables
from nexmark_suite.queries import QUERIES
from nexmark_suite.windows import count_in_processing_time
from nexmark_suite.winning_bids import Decide
from nexmark_support import Event, table_of
from tiers import cases

from pyflinkstate.testing import MAX_WATERMARK, KeyedTwoInputOperatorHarness, ManualClock, harness_of

#: A minute of event time; the groups in which events are out of order last 2 of the 4 seconds allowed.
MINUTE = {"events": 3_000, "rate": 50}
DAY_MS = 86_400_000


def events_of(**config: int) -> list[Event]:
    made = GeneratorConfig(**config)
    return list(events_between(made, 0, made.events))


@pytest.mark.parametrize("number", QUERIES)
class TestResults:
    @pytest.mark.parametrize(("seed", "disorder"), cases([(1, 1), (2, 100), (3, 1), (4, 99)], [(2, 100)]))
    def test_they_are_those_of_plain_python(self, number: int, seed: int, disorder: int) -> None:
        events = events_of(**MINUTE, seed=seed, disorder=disorder)
        query, tables = QUERIES[number], Tables(events)
        assert query.difference(table_of(query, events), tables) == ({}, {})
        assert query.oracle(tables)

    def test_the_check_finds_a_row_too_many_and_one_too_few(self, number: int) -> None:
        query, tables = QUERIES[number], Tables(events_of(**MINUTE))
        first, *others = query.oracle(tables)
        rows = [(*row, 0, 0) for row in others] if number == 12 else others
        other = (-1, 1, 0, 0) if number == 12 else (-1,)
        missing, wrong = query.difference([*rows, other], tables)
        assert list(missing) == [tuple(first)]
        assert wrong.total() == 1


@pytest.mark.parametrize("number", [15, 16, 17])
def test_reports_begin_anew_each_day(number: int) -> None:
    days = [
        event._replace(date_time=BASE_TIME_MS + (event.date_time - BASE_TIME_MS) * 60 * 24 * 3)
        for event in events_of(**MINUTE)
    ]
    tables = Tables(days)
    assert {bid.date_time // DAY_MS for bid in tables.bids} == {16_631, 16_632, 16_633}
    assert QUERIES[number].difference(table_of(QUERIES[number], days), tables) == ({}, {})


def bid(time: int, price: int = 100, auction: int = 7, bidder: int = 1) -> Bid:
    return Bid(auction, bidder, price, "Google", "url", time, "")


def auction(time: int, expires: int) -> Auction:
    return Auction(7, "item", "", 1, 1, time, expires, 3, 10, "")


class TestWinningBids:
    @pytest.fixture
    def harness(self) -> KeyedTwoInputOperatorHarness:
        return KeyedTwoInputOperatorHarness(Decide(), lambda a: a.id, lambda b: b.auction)

    @pytest.mark.parametrize(("time", "counts"), [(99, False), (100, True), (200, True), (201, False)])
    @pytest.mark.parametrize("is_first", [True, False])
    def test_bids_count_from_the_first_to_the_last_millisecond(
        self, harness: KeyedTwoInputOperatorHarness, time: int, counts: bool, is_first: bool
    ) -> None:
        if is_first:
            harness.process_element2(bid(time), time)
        harness.process_element1(auction(100, 200), 100)
        if not is_first:
            harness.process_element2(bid(time), time)
        assert harness.process_watermark(199) == []
        assert [sale.bid for sale in harness.process_watermark(200)] == [bid(time)] * counts

    def test_the_first_of_equal_bids_wins(self, harness: KeyedTwoInputOperatorHarness) -> None:
        harness.process_element1(auction(100, 200), 100)
        for time, price in [(150, 8), (140, 9), (130, 9), (160, 9)]:
            harness.process_element2(bid(time, price), time)
        (sale,) = harness.process_watermark(200)
        assert sale.bid == bid(130, 9)

    def test_nothing_is_kept_of_what_is_over(self, harness: KeyedTwoInputOperatorHarness) -> None:
        harness.process_element2(bid(90), 90)
        harness.process_element1(auction(100, 200), 100)
        harness.process_element2(bid(150), 150)
        harness.process_watermark(200)
        harness.process_element2(bid(205), 205)
        harness.process_element2(bid(207), 207)
        harness.process_watermark(206)
        assert harness.num_keyed_state_entries() == 1, "one bid may still meet an auction"
        harness.process_watermark(207)
        assert harness.num_keyed_state_entries() == 0
        assert harness.num_event_time_timers() == 0


class TestHighestBid:
    def test_all_bids_with_the_highest_price_come(self) -> None:
        events = [bid(1_000, 9), bid(2_000, 9, auction=8), bid(3_000, 8), bid(12_000, 7)]
        assert sorted(table_of(QUERIES[7], events)) == [
            (7, 1, 7, 12_000, ""),
            (7, 1, 9, 1_000, ""),
            (8, 1, 9, 2_000, ""),
        ]

    def test_a_bid_at_the_end_of_a_window_can_have_its_price(self) -> None:
        """``BETWEEN`` includes both ends, so the bid at 10,000 is in two windows: it comes for each."""
        events = [bid(1_000, 9), bid(10_000, 9, auction=8), bid(20_000, 8)]
        assert sorted(table_of(QUERIES[7], events)) == [
            (7, 1, 8, 20_000, ""),
            (7, 1, 9, 1_000, ""),
            (8, 1, 9, 10_000, ""),
            (8, 1, 9, 10_000, ""),
        ]
        assert QUERIES[7].difference(table_of(QUERIES[7], events), Tables(events)) == ({}, {})


def test_windows_of_processing_time_are_cut_by_the_clock() -> None:
    harness = harness_of(count_in_processing_time, clock=ManualClock())
    for now_ms, bidder in [(0, 5), (3_000, 5), (9_999, 6), (10_000, 5), (10_001, 5)]:
        harness.set_processing_time(now_ms)
        harness.process_element(bidder, 0)
    assert sorted(harness.extract_output_values()) == [(5, 2, 0, 10_000), (6, 1, 0, 10_000)]
    assert harness.process_watermark(MAX_WATERMARK) == [(5, 2, 10_000, 20_000)], (
        "open at the end of the input"
    )
    assert harness.num_keyed_state_entries() == 0
