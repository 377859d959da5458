"""Nexmark's generator: the same events however they are read, in the published proportions."""

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
from nexmark_suite.source import NexmarkSource

from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.sources import Source

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
