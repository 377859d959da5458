"""Queries 15, 16 and 17: statistics by day, brought up to date with every bid.

The SQL groups by the day without a window, so a day has no end, and each bid gives a new row for its group
that replaces the last one. Flink emits the same without mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterator

from nexmark_suite.events import Bid, Event
from nexmark_suite.views import Row, bids, day_of, minute_of
from pyflinkstate import (
    DataStream,
    KeyedProcessFunction,
    MapState,
    MapStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)

#: Prices below the first are rank 1, below the second rank 2, all others rank 3.
RANK_LIMITS = (10_000, 1_000_000)
RANKS = len(RANK_LIMITS) + 1
#: Where the counts of bids, of bidders and of auctions begin: all of them first, then those of each rank.
BIDS, BIDDERS, AUCTIONS = 0, 1 + RANKS, 2 * (1 + RANKS)
COUNTS = 3 * (1 + RANKS)


def rank_of(price: int) -> int:
    """Return the rank of a price, from 1 to 3."""
    return 1 + sum(price >= limit for limit in RANK_LIMITS)


def count_distinct(counts: list[int], first: int, seen: MapState[int, int], what: int, rank: int) -> None:
    """Count ``what`` if it is new, and in its rank if it is new there; ``seen`` keeps a bit for each rank."""
    ranks = seen.get(what) or 0
    if not ranks:
        counts[first] += 1
    if not ranks & 1 << rank:
        counts[first + rank] += 1
        seen.put(what, ranks | 1 << rank)


class BidStatistics(KeyedProcessFunction[Row, Bid, Row]):
    """Counts bids, distinct bidders and distinct auctions of each group, in all and by rank of the price."""

    def open(self, runtime_context: RuntimeContext) -> None:
        long = Types.LONG()
        counts = ValueStateDescriptor("counts", Types.LIST(long))
        self.counts = runtime_context.get_state(counts)
        self.bidders = runtime_context.get_map_state(MapStateDescriptor("bidders", long, long))
        self.auctions = runtime_context.get_map_state(MapStateDescriptor("auctions", long, long))

    def process_element(self, value: Bid, ctx: KeyedProcessFunction.Context[Row]) -> Iterator[Row]:
        yield (*ctx.get_current_key(), *self.count(value))

    def count(self, bid: Bid) -> list[int]:
        """Return the counts with ``bid``."""
        counts = self.counts.value() or [0] * COUNTS
        rank = rank_of(bid.price)
        counts[BIDS] += 1
        counts[BIDS + rank] += 1
        count_distinct(counts, BIDDERS, self.bidders, bid.bidder, rank)
        count_distinct(counts, AUCTIONS, self.auctions, bid.auction, rank)
        self.counts.update(counts)
        return counts


class ChannelStatistics(BidStatistics):
    """Also keeps the last minute of the day in which there was a bid."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        self.minute = runtime_context.get_state(ValueStateDescriptor("minute", Types.STRING()))

    def process_element(self, value: Bid, ctx: KeyedProcessFunction.Context[Row]) -> Iterator[Row]:
        minute = max(minute_of(value.date_time), self.minute.value() or "")
        self.minute.update(minute)
        yield (*ctx.get_current_key(), minute, *self.count(value))


def bidding_statistics(events: DataStream[Event]) -> DataStream[Row]:
    """Query 15: bids, bidders and auctions of each day, by rank of the price."""

    def group(bid: Bid) -> Row:
        return (day_of(bid.date_time),)

    return bids(events).key_by(group, key_type=Types.TUPLE([Types.STRING()])).process(BidStatistics())


def channel_statistics(events: DataStream[Event]) -> DataStream[Row]:
    """Query 16: the same for each channel and day."""

    def group(bid: Bid) -> Row:
        return bid.channel, day_of(bid.date_time)

    key_type = Types.TUPLE([Types.STRING(), Types.STRING()])
    return bids(events).key_by(group, key_type=key_type).process(ChannelStatistics())


def auction_statistics(events: DataStream[Event]) -> DataStream[Row]:
    """Query 17: the bids and prices of each auction and day."""

    def row_of(bid: Bid) -> Row:
        ranks = [int(rank_of(bid.price) == rank) for rank in range(1, RANKS + 1)]
        return bid.auction, day_of(bid.date_time), 1, *ranks, bid.price, bid.price, bid.price

    def combined(a: Row, b: Row) -> Row:
        sums = [x + y for x, y in zip(a[2:6], b[2:6], strict=True)]
        return *a[:2], *sums, min(a[6], b[6]), max(a[7], b[7]), a[8] + b[8]

    def with_average(row: Row) -> Row:
        *others, total = row
        return *others, total // row[2], total

    key_type = Types.TUPLE([Types.LONG(), Types.STRING()])
    by_day = bids(events).map(row_of).key_by(lambda row: row[:2], key_type=key_type)
    return by_day.reduce(combined).map(with_average)
