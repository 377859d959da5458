"""Nexmark: its generator, and its queries against plain Python."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from functools import cache

import attrs
import numpy as np
import pytest
from nexmark_suite.events import Auction, Bid, Event, Person
from nexmark_suite.generator import (
    AUCTION_ID_LEAD,
    AUCTIONS_IN_FLIGHT,
    BASE_TIME_MS,
    FIRST_AUCTION_ID,
    FIRST_PERSON_ID,
    HOT_CHANNELS,
    STATES,
    GeneratorConfig,
    events_between,
    last_auction,
    last_person,
)
from nexmark_suite.oracles import Tables
from nexmark_suite.queries import QUERIES
from nexmark_suite.source import NexmarkSource
from nexmark_suite.windows import count_in_processing_time
from nexmark_suite.winning_bids import Decide
from nexmark_support import table_of
from tiers import cases

from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.sources import Source
from pyflinkstate.testing import MAX_WATERMARK, KeyedTwoInputOperatorHarness, ManualClock, harness_of

MANY = GeneratorConfig(60_000)
FEW = GeneratorConfig(1_000)


def events_of(config: GeneratorConfig) -> list[Event]:
    return list(events_between(config, 0, config.events))


@cache
def many() -> tuple[list[Person], list[Auction], list[Bid]]:
    events = events_of(MANY)
    return (
        [event for event in events if isinstance(event, Person)],
        [event for event in events if isinstance(event, Auction)],
        [event for event in events if isinstance(event, Bid)],
    )


def read(source: Source) -> list[list[Event]]:
    """Return what a job reads: the events of each epoch."""
    epochs, at, is_last = [], source.initial_offset(), False
    while not is_last:
        available = source.latest_offset(json.loads(json.dumps(at)), whole=False)
        epoch = source.plan(at, available.end)
        epochs.append([event for split in epoch.splits for event in epoch.read(split, None)])  # type: ignore
        at, is_last = available.end, available.is_last
    return epochs


class TestTheSameEvents:
    @pytest.mark.parametrize("partitions", [1, 2, 3, 7])
    @pytest.mark.parametrize("events_per_epoch", [1_000, 333])
    def test_any_partitions_and_epochs_read_them(self, partitions: int, events_per_epoch: int) -> None:
        epochs = read(NexmarkSource(FEW, partitions, events_per_epoch))
        assert [len(epoch) for epoch in epochs[:-1]] == [events_per_epoch] * (len(epochs) - 1)
        assert [event for epoch in epochs for event in epoch] == events_of(FEW)

    @pytest.mark.parametrize(("first", "stop"), [(0, 1), (49, 51), (4_095, 4_097), (5_000, 5_003)])
    def test_any_part_can_be_made_alone(self, first: int, stop: int) -> None:
        config = attrs.evolve(FEW, events=6_000)
        assert list(events_between(config, first, stop)) == events_of(config)[first:stop]

    def test_they_depend_on_the_seed_and_are_the_same_on_every_machine(self) -> None:
        events = events_of(FEW)
        assert events == events_of(GeneratorConfig(1_000))
        assert not set(events_of(attrs.evolve(FEW, seed=43))) & set(events)
        assert zlib.crc32(repr(events).encode()) == GOLDEN_CRC

    @pytest.mark.parametrize("disorder", [10, 100])
    def test_disorder_moves_them_within_their_group(self, disorder: int) -> None:
        ordered = events_of(attrs.evolve(FEW, events=700))
        moved = events_of(attrs.evolve(FEW, events=700, disorder=disorder))
        for start in range(0, 700, disorder):
            group = slice(start, start + disorder)
            assert Counter(moved[group]) == Counter(ordered[group])
        assert moved != ordered

    def test_another_generator_s_checkpoint_is_refused(self) -> None:
        start = NexmarkSource(FEW).initial_offset()
        with pytest.raises(IncompatibleCheckpointError, match="seed=43"):
            NexmarkSource(attrs.evolve(FEW, seed=43)).latest_offset(start, whole=False)


class TestProportions:
    def test_there_are_3_auctions_and_46_bids_for_each_person_and_ids_count_up(self) -> None:
        persons, auctions, bids = many()
        assert [person.id for person in persons] == list(range(1_000, 2_200))
        assert [auction.id for auction in auctions] == list(range(1_000, 4_600))
        assert len(bids) == 55_200
        kinds = [type(event).__name__ for event in events_of(FEW)[:50]]
        assert kinds == ["Person"] + ["Auction"] * 3 + ["Bid"] * 46

    @pytest.mark.parametrize("rate", [1, 7, 10_000, 1_000_000])
    def test_times_follow_from_the_rate(self, rate: int) -> None:
        times = [event.date_time for event in events_of(attrs.evolve(FEW, rate=rate))]
        assert times == [BASE_TIME_MS + number * 1_000 // rate for number in range(1_000)]

    def test_half_of_the_bids_are_for_the_hot_auction(self) -> None:
        numbers = bid_numbers()
        hot = FIRST_AUCTION_ID + last_auction(numbers) // 100 * 100
        assert share(np.array([bid.auction for bid in many()[2]]) == hot) == pytest.approx(0.5, abs=0.02)

    def test_three_quarters_are_of_the_hot_bidder_and_seller(self) -> None:
        hot = FIRST_PERSON_ID + last_person(bid_numbers()) // 100 * 100
        assert share(np.array([bid.bidder for bid in many()[2]]) == hot + 1) == pytest.approx(0.75, abs=0.02)
        sellers = np.array([auction.seller for auction in many()[1]])
        hot = FIRST_PERSON_ID + np.arange(3_600) // 3 // 100 * 100
        assert share(sellers == hot) == pytest.approx(0.75, abs=0.03)

    def test_other_bids_are_for_auctions_in_flight_or_about_to_begin(self) -> None:
        numbers = bid_numbers()
        ahead = np.array([bid.auction for bid in many()[2]]) - FIRST_AUCTION_ID - last_auction(numbers)
        assert ahead.min() >= -AUCTIONS_IN_FLIGHT
        assert ahead.max() == AUCTION_ID_LEAD
        assert share(ahead > 0) == pytest.approx(0.5 * 10 / 111, abs=0.01)

    def test_auctions_last_as_long_as_a_hundred_take_to_begin(self) -> None:
        lengths = [auction.expires - auction.date_time for auction in many()[1]]
        assert MANY.horizon_ms == 166
        assert min(lengths) >= 1
        assert max(lengths) <= 2 * MANY.horizon_ms
        assert np.mean(lengths) == pytest.approx(MANY.horizon_ms, rel=0.03)

    def test_categories_states_and_channels_are_even(self) -> None:
        persons, auctions, bids = many()
        categories = Counter(auction.category for auction in auctions)
        assert sorted(categories) == [10, 11, 12, 13, 14]
        assert min(categories.values()) > 600
        states = Counter(person.state for person in persons)
        assert sorted(states) == sorted(STATES)
        assert min(states.values()) > 150
        channels = Counter(bid.channel for bid in bids)
        assert sum(channels[hot] for hot in HOT_CHANNELS) / len(bids) == pytest.approx(0.5, abs=0.02)
        assert len(channels) > 9_000

    def test_the_logarithm_of_prices_is_uniform(self) -> None:
        logarithms = np.log10([bid.price for bid in many()[2]])
        counts, _ = np.histogram(logarithms, bins=6, range=(2, 8))
        assert counts.sum() == len(logarithms)
        assert counts / len(logarithms) == pytest.approx(1 / 6, abs=0.01)

    def test_events_have_the_published_sizes(self) -> None:
        assert [np.mean(list(map(size_of, kind))) for kind in many()] == pytest.approx(
            [200, 500, 100], rel=0.03
        )

    def test_a_channel_has_one_url_which_mostly_names_its_id(self) -> None:
        urls = {(bid.channel, bid.url) for bid in many()[2]}
        assert len(urls) == len({channel for channel, _ in urls})
        assert share(np.array(["channel_id=" in url for _, url in urls])) == pytest.approx(0.9, abs=0.01)


def size_of(event: Event) -> int:
    """Return the size of an event as the generator counts it: 8 bytes a number, a byte a letter.

    A person's time and a bid's channel and URL are not counted.
    """
    if isinstance(event, Bid):
        return 32 + len(event.extra)
    fields = [len(field) if isinstance(field, str) else 8 for field in event]
    return sum(fields) - (8 if isinstance(event, Person) else 0)


def bid_numbers() -> np.ndarray:
    numbers = np.arange(MANY.events)
    return numbers[numbers % 50 >= 4]


def share(chosen: np.ndarray) -> float:
    return float(chosen.mean())


#: Of the first 1,000 events, as they were when the benchmark was written.
GOLDEN_CRC = 2641987658


# --- queries give what plain Python computes from the SQL --------------------------------------------------


#: A minute of event time; the groups in which events are out of order last 2 of the 4 seconds allowed.
MINUTE = {"events": 3_000, "rate": 50}
DAY_MS = 86_400_000


def events_of_query(**config: int) -> list[Event]:
    made = GeneratorConfig(**config)
    return list(events_between(made, 0, made.events))


@pytest.mark.parametrize("number", QUERIES)
class TestResults:
    @pytest.mark.parametrize(("seed", "disorder"), cases([(1, 1), (2, 100), (3, 1), (4, 99)], [(2, 100)]))
    def test_they_are_those_of_plain_python(self, number: int, seed: int, disorder: int) -> None:
        events = events_of_query(**MINUTE, seed=seed, disorder=disorder)
        query, tables = QUERIES[number], Tables(events)
        assert query.difference(table_of(query, events), tables) == ({}, {})
        assert query.oracle(tables)

    def test_the_check_finds_a_row_too_many_and_one_too_few(self, number: int) -> None:
        query, tables = QUERIES[number], Tables(events_of_query(**MINUTE))
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
        for event in events_of_query(**MINUTE)
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
