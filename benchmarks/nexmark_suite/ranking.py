"""Queries 18 and 19: the last bid, and the highest bids.

Each row that changes is emitted and replaces the last one with its key. Bids that the ``ORDER BY`` of a query
does not tell apart are ordered by their other fields, so that there is one right result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from nexmark_suite.events import Bid, Event
from nexmark_suite.views import Row, bids
from nexmark_suite.winning_bids import precedence
from pyflinkstate import DataStream, KeyedProcessFunction, RuntimeContext, Types, ValueStateDescriptor

TOP = 10


def recency(bid: Bid) -> tuple[int, int, str]:
    """Return what the bids of a bidder for an auction are sorted by: the greatest is the last."""
    return bid.date_time, bid.price, bid.extra


class Last(KeyedProcessFunction[tuple[int, int], Bid, Bid]):
    """Emits each bid that is later than all others of its key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.last = runtime_context.get_state(ValueStateDescriptor("last"))

    def process_element(
        self, value: Bid, ctx: KeyedProcessFunction.Context[tuple[int, int]]
    ) -> Iterator[Bid]:
        last = self.last.value()
        if last is None or recency(value) > recency(last):
            self.last.update(value)
            yield value


def last_bids(events: DataStream[Event]) -> DataStream[Bid]:
    """Query 18: the last bid of each bidder for each auction."""
    key_type = Types.TUPLE([Types.LONG(), Types.LONG()])
    return bids(events).key_by(lambda bid: (bid.bidder, bid.auction), key_type=key_type).process(Last())


class TopBids(KeyedProcessFunction[int, Bid, Row]):
    """Emits the ranks of an auction that a bid has changed: its own and those below, down to the tenth."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.top = runtime_context.get_state(ValueStateDescriptor("top"))

    def process_element(self, value: Bid, ctx: KeyedProcessFunction.Context[int]) -> Iterator[Row]:
        top: list[Bid] = self.top.value() or []
        place = bisect_left(top, precedence(value), key=precedence)
        if place < TOP:
            top.insert(place, value)
            del top[TOP:]
            self.top.update(top)
            for number in range(place, len(top)):
                yield *top[number], number + 1


def top_bids(events: DataStream[Event]) -> DataStream[Row]:
    """Query 19: the ten highest bids for each auction, with their ranks."""
    return bids(events).key_by(lambda bid: bid.auction, key_type=Types.LONG()).process(TopBids())
