"""The table of queries: what builds each, what it must give, and how the two are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable

import attrs

from nexmark_suite import joins, oracles, ranking, reports, windows, winning_bids
from nexmark_suite.events import Event
from nexmark_suite.oracles import Tables
from nexmark_suite.views import Row
from pyflinkstate import DataStream


def _first(count: int) -> Callable[[Row], Hashable]:
    return lambda row: row[:count]


def _sums(rows: Iterable[Row]) -> list[Row]:
    """Return the bids of each bidder in all windows, which do not depend on where the clock cut these."""
    total: Counter[int] = Counter()
    for bidder, count, _, _ in rows:
        total[bidder] += count
    return list(total.items())


@attrs.frozen
class Query:
    """One query.

    Attributes:
        name: its name in the Nexmark suite.
        build: makes the stream of its results.
        oracle: computes its result table.
        key: of a row that replaces the last one with the same key; None if the query only adds rows.
        compared: what of the rows is compared with the oracle.
    """

    name: str
    build: Callable[[DataStream[Event]], DataStream[Row]]
    oracle: Callable[[Tables], list[Row]]
    key: Callable[[Row], Hashable] | None = None
    compared: Callable[[Iterable[Row]], Iterable[Row]] = list

    def difference(self, rows: Iterable[Row], tables: Tables) -> tuple[Counter[Row], Counter[Row]]:
        """Return the rows that are missing in a result, and those that should not be there."""
        found = Counter(map(tuple, self.compared(rows)))
        expected = Counter(map(tuple, self.oracle(tables)))
        return expected - found, found - expected


QUERIES: dict[int, Query] = {
    3: Query("Local Item Suggestion", joins.local_item_suggestion, oracles.query_3),
    4: Query(
        "Average Price for a Category", winning_bids.average_price_for_category, oracles.query_4, _first(1)
    ),
    5: Query("Hot Items", windows.hot_items, oracles.query_5),
    6: Query("Average Selling Price by Seller", winning_bids.average_price_by_seller, oracles.query_6),
    7: Query("Highest Bid", windows.highest_bids, oracles.query_7),
    8: Query("Monitor New Users", windows.new_sellers, oracles.query_8),
    9: Query("Winning Bids", winning_bids.winning_bids, oracles.query_9),
    11: Query("User Sessions", windows.user_sessions, oracles.query_11),
    12: Query("Processing Time Windows", windows.bids_in_processing_time, oracles.query_12, compared=_sums),
    15: Query("Bidding Statistics Report", reports.bidding_statistics, oracles.query_15, _first(1)),
    16: Query("Channel Statistics Report", reports.channel_statistics, oracles.query_16, _first(2)),
    17: Query("Auction Statistics Report", reports.auction_statistics, oracles.query_17, _first(2)),
    18: Query("Find Last Bid", ranking.last_bids, oracles.query_18, _first(2)),
    19: Query("Auction TOP-10 Price", ranking.top_bids, oracles.query_19, lambda row: (row[0], row[-1])),
    20: Query("Expand Bid with Auction", joins.bids_with_auction, oracles.query_20),
}
