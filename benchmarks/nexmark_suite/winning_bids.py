"""Queries 9, 4 and 6: the bid that wins each auction, and averages of what auctions were sold for.

An auction is decided when the watermark passes its last millisecond: an event-time timer emits the winner and
frees the auction's state. The SQL of queries 4 and 9 has no such end: it emits a preliminary winner, and
retracts it when a higher bid comes. When all input is read, the tables are the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from nexmark_suite.events import Auction, Bid, Event
from nexmark_suite.views import Row, auctions, bids, timed
from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    DataStream,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)

#: Query 6 averages over so many auctions of a seller.
LAST_AUCTIONS = 10


class Sale(NamedTuple):
    """An auction that has ended with at least one bid."""

    auction: Auction
    bid: Bid


def precedence(bid: Bid) -> tuple[int, int, int, str]:
    """Return what bids for an auction are sorted by: the least one wins.

    The price decides, then the time, as in the SQL text. The other fields decide what it leaves open, so that
    there is one right result.
    """
    return -bid.price, bid.date_time, bid.bidder, bid.extra


class Decide(KeyedCoProcessFunction[int, Auction, Bid, Sale]):
    """Finds the bid that wins each auction, and emits it when the auction has ended.

    A bid that comes before its auction waits for it until the watermark has passed the bid's own time. If the
    auction has not come by then, it begins after the bid or has ended, and the bid does not count.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        self.auction = runtime_context.get_state(ValueStateDescriptor("auction"))
        self.best = runtime_context.get_state(ValueStateDescriptor("best"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, value: Auction, ctx: KeyedCoProcessFunction.Context[int]) -> None:
        self.auction.update(value)
        ctx.timer_service().register_event_time_timer(value.expires)
        for bid in self.waiting.get():
            self.offer(value, bid)
        self.waiting.clear()

    def process_element2(self, value: Bid, ctx: KeyedCoProcessFunction.Context[int]) -> None:
        auction = self.auction.value()
        if auction is not None:
            self.offer(auction, value)
        else:
            self.waiting.add(value)
            ctx.timer_service().register_event_time_timer(value.date_time)

    def offer(self, auction: Auction, bid: Bid) -> None:
        if auction.date_time <= bid.date_time <= auction.expires:
            best = self.best.value()
            if best is None or precedence(bid) < precedence(best):
                self.best.update(bid)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext[int]) -> Iterator[Sale]:
        auction = self.auction.value()
        if auction is None:
            self.waiting.update([bid for bid in self.waiting.get() if bid.date_time > timestamp])
        elif auction.expires == timestamp:
            best = self.best.value()
            self.auction.clear()
            self.best.clear()
            if best is not None:
                yield Sale(auction, best)


def sales(events: DataStream[Event]) -> DataStream[Sale]:
    """Return each auction that had a bid, with the one that has won, at the auction's end."""
    in_time = timed(events)
    both = auctions(in_time).connect(bids(in_time))
    keyed = both.key_by(lambda auction: auction.id, lambda bid: bid.auction, key_type=Types.LONG())
    return keyed.process(Decide())


def winning_bids(events: DataStream[Event]) -> DataStream[Row]:
    """Query 9: each auction with its winning bid."""

    def row_of(sale: Sale) -> Row:
        bid = sale.bid
        return (*sale.auction, bid.auction, bid.bidder, bid.price, bid.date_time, bid.extra)

    return sales(events).map(row_of)


class Average(AggregateFunction[int, tuple[int, int], int]):
    """The average of whole numbers, rounded down as SQL does for a BIGINT that is not negative."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0] // accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class AveragePrice(KeyedProcessFunction[int, tuple[int, int], Row]):
    """Emits the average of all prices of the key so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        accumulator = Types.TUPLE([Types.LONG(), Types.LONG()])
        descriptor = AggregatingStateDescriptor("average", Average(), accumulator)
        self.average = runtime_context.get_aggregating_state(descriptor)

    def process_element(
        self, value: tuple[int, int], ctx: KeyedProcessFunction.Context[int]
    ) -> Iterator[Row]:
        category, price = value
        self.average.add(price)
        yield category, self.average.get()


def average_price_for_category(events: DataStream[Event]) -> DataStream[Row]:
    """Query 4: the average of the winning prices of all auctions of each category."""
    prices = sales(events).map(lambda sale: (sale.auction.category, sale.bid.price))
    return prices.key_by(lambda pair: pair[0], key_type=Types.LONG()).process(AveragePrice())


class AverageOfLast(KeyedProcessFunction[int, tuple[int, int, int], Row]):
    """Emits the average price of the last auctions of a seller whenever one has ended.

    Sales reach a seller from several subtasks, so they are put into the order of time first: a sale counts
    when the watermark has passed it.
    """

    def open(self, runtime_context: RuntimeContext) -> None:
        long = Types.LONG()
        ended = MapStateDescriptor("ended", long, Types.LIST(Types.TUPLE([long, long])))
        self.ended = runtime_context.get_map_state(ended)
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", long))

    def process_element(self, value: tuple[int, int, int], ctx: KeyedProcessFunction.Context[int]) -> None:
        _, auction, price = value
        time = ctx.timestamp()
        assert time is not None, "a sale has the time of the timer that made it"
        self.ended.put(time, [*(self.ended.get(time) or []), (auction, price)])
        ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[int]) -> Iterator[Row]:
        last = list(self.last.get())
        for _, price in sorted(self.ended.get(timestamp) or []):
            last = [*last, price][-LAST_AUCTIONS:]
            yield ctx.get_current_key(), sum(last) // len(last)
        self.ended.remove(timestamp)
        self.last.update(last)


def average_price_by_seller(events: DataStream[Event]) -> DataStream[Row]:
    """Query 6: the average price of each seller's last 10 auctions, in the order in which they ended."""
    prices = sales(events).map(lambda sale: (sale.auction.seller, sale.auction.id, sale.bid.price))
    return prices.key_by(lambda sale: sale[0], key_type=Types.LONG()).process(AverageOfLast())
