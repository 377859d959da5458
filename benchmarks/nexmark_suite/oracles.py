"""What each query must give, in plain Python over a list of all events, from the SQL text of the query.

Nothing here knows how the streams compute it. ``ORDER BY`` clauses that leave a choice are completed by all
other columns of the bid, as the queries say they do.
"""

from __future__ import annotations

import datetime
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import groupby, pairwise
from typing import Any, TypeVar

from nexmark_suite.events import Auction, Bid, Event, Person

Row = tuple[Any, ...]
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

TEN_SECONDS = 10_000


def grouped(values: Iterable[V], key: Callable[[V], K]) -> dict[K, list[V]]:
    """Return the values by key, in their order."""
    groups: dict[K, list[V]] = defaultdict(list)
    for value in values:
        groups[key(value)].append(value)
    return groups


class Tables:
    """The views ``person``, ``auction`` and ``bid``."""

    def __init__(self, events: Iterable[Event]) -> None:
        everything = list(events)
        self.persons = [event for event in everything if isinstance(event, Person)]
        self.auctions = [event for event in everything if isinstance(event, Auction)]
        self.bids = [event for event in everything if isinstance(event, Bid)]

    def bids_in_time(self) -> Iterator[tuple[Auction, list[Bid]]]:
        """Yield each auction with ``B.dateTime BETWEEN A.dateTime AND A.expires``, if it has such bids."""
        by_auction = grouped(self.bids, lambda bid: bid.auction)
        for auction in self.auctions:
            times = range(auction.date_time, auction.expires + 1)
            if found := [bid for bid in by_auction.get(auction.id, ()) if bid.date_time in times]:
                yield auction, found


def query_3(tables: Tables) -> list[Row]:
    people = {person.id: person for person in tables.persons}
    joined = [(people.get(auction.seller), auction) for auction in tables.auctions if auction.category == 10]
    return [(p.name, p.city, p.state, a.id) for p, a in joined if p and p.state in {"OR", "ID", "CA"}]


def query_4(tables: Tables) -> list[Row]:
    finals = [(auction.category, max(bid.price for bid in bids)) for auction, bids in tables.bids_in_time()]
    categories = grouped(finals, lambda final: final[0])
    return [(key, sum(price for _, price in rows) // len(rows)) for key, rows in categories.items()]


def query_5(tables: Tables) -> list[Row]:
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for bid in tables.bids:
        newest = bid.date_time // 2_000 * 2_000
        for start in range(newest, newest - TEN_SECONDS, -2_000):
            counts[start][bid.auction] += 1
    tops = [(window, max(window.values())) for window in counts.values()]
    return [(auction, num) for window, most in tops for auction, num in window.items() if num >= most]


def query_6(tables: Tables) -> list[Row]:
    ended = sorted(tables.bids_in_time(), key=lambda found: (found[0].expires, found[0].id))
    rows = []
    for seller, found in grouped(ended, lambda pair: pair[0].seller).items():
        prices = [max(bid.price for bid in bids) for _, bids in found]
        for end in range(1, len(prices) + 1):
            last = prices[max(end - 10, 0) : end]
            rows.append((seller, sum(last) // len(last)))
    return rows


def query_7(tables: Tables) -> list[Row]:
    def window_end(bid: Bid) -> int:
        return bid.date_time // TEN_SECONDS * TEN_SECONDS + TEN_SECONDS

    rows: list[Row] = []
    by_window = grouped(tables.bids, window_end)
    by_time = grouped(tables.bids, lambda bid: bid.date_time)
    for end, bids in by_window.items():
        highest = max(bid.price for bid in bids)
        between = [*bids, *by_time.get(end, [])]
        rows += [(b.auction, b.bidder, b.price, b.date_time, b.extra) for b in between if b.price == highest]
    return rows


def query_8(tables: Tables) -> list[Row]:
    def start(time: int) -> int:
        return time - time % TEN_SECONDS

    sold = {(auction.seller, start(auction.date_time)) for auction in tables.auctions}
    entered = {(person.id, person.name, start(person.date_time)) for person in tables.persons}
    return [row for row in entered if (row[0], row[2]) in sold]


def query_9(tables: Tables) -> list[Row]:
    def first(bids: list[Bid]) -> Bid:
        return sorted(bids, key=lambda b: (-b.price, b.date_time, b.bidder, b.extra))[0]

    return [
        (*auction, won.auction, won.bidder, won.price, won.date_time, won.extra)
        for auction, bids in tables.bids_in_time()
        for won in [first(bids)]
    ]


def query_11(tables: Tables) -> list[Row]:
    rows = []
    for bidder, bids in grouped(tables.bids, lambda bid: bid.bidder).items():
        times = sorted(bid.date_time for bid in bids)
        # Times that a gap of ten seconds separates have different numbers of such gaps before them.
        gaps = [0]
        for before, after in pairwise(times):
            gaps.append(gaps[-1] + (after - before > TEN_SECONDS))
        for _, session in groupby(zip(gaps, times, strict=True), key=lambda pair: pair[0]):
            in_session = [time for _, time in session]
            rows.append((bidder, len(in_session), in_session[0], in_session[-1] + TEN_SECONDS))
    return rows


def query_12(tables: Tables) -> list[Row]:
    """Return ``(bidder, bids)``: what the windows add up to, wherever they were cut."""
    return list(Counter(bid.bidder for bid in tables.bids).items())


def _day(bid: Bid) -> str:
    return _utc(bid).strftime("%Y-%m-%d")


def _utc(bid: Bid) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(bid.date_time / 1000, datetime.timezone.utc)


def _by_rank(bids: list[Bid]) -> list[list[Bid]]:
    """Return all bids, and those of each rank."""
    rank1 = [bid for bid in bids if bid.price < 10_000]
    rank2 = [bid for bid in bids if 10_000 <= bid.price < 1_000_000]
    rank3 = [bid for bid in bids if bid.price >= 1_000_000]
    return [bids, rank1, rank2, rank3]


def _statistics(bids: list[Bid]) -> Row:
    ranks = _by_rank(bids)
    counts = [len(rank) for rank in ranks]
    bidders = [len({bid.bidder for bid in rank}) for rank in ranks]
    auctions = [len({bid.auction for bid in rank}) for rank in ranks]
    return *counts, *bidders, *auctions


def query_15(tables: Tables) -> list[Row]:
    return [(day, *_statistics(bids)) for day, bids in grouped(tables.bids, _day).items()]


def query_16(tables: Tables) -> list[Row]:
    groups = grouped(tables.bids, lambda bid: (bid.channel, _day(bid)))
    return [
        (*key, max(_utc(bid).strftime("%H:%M") for bid in bids), *_statistics(bids))
        for key, bids in groups.items()
    ]


def query_17(tables: Tables) -> list[Row]:
    rows = []
    for key, bids in grouped(tables.bids, lambda bid: (bid.auction, _day(bid))).items():
        prices = [bid.price for bid in bids]
        counts = [len(rank) for rank in _by_rank(bids)]
        rows.append((*key, *counts, min(prices), max(prices), sum(prices) // len(prices), sum(prices)))
    return rows


def query_18(tables: Tables) -> list[Row]:
    def last(bids: list[Bid]) -> Bid:
        return max(bids, key=lambda bid: (bid.date_time, bid.price, bid.extra))

    return [last(bids) for bids in grouped(tables.bids, lambda bid: (bid.bidder, bid.auction)).values()]


def query_19(tables: Tables) -> list[Row]:
    rows: list[Row] = []
    for bids in grouped(tables.bids, lambda bid: bid.auction).values():
        ranked = sorted(bids, key=lambda b: (-b.price, b.date_time, b.bidder, b.extra))
        rows += [(*bid, rank) for rank, bid in enumerate(ranked[:10], start=1)]
    return rows


def query_20(tables: Tables) -> list[Row]:
    wanted = {auction.id: auction for auction in tables.auctions if auction.category == 10}
    return [(*bid, *wanted[bid.auction][1:]) for bid in tables.bids if bid.auction in wanted]
