"""Queries 5, 7, 8, 11 and 12: windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nexmark_suite.events import Auction, Bid, Event, Person
from nexmark_suite.views import SECOND_MS, Row, auctions, bids, persons, timed, without_bids
from pyflinkstate import (
    AggregateFunction,
    DataStream,
    EventTimeSessionWindows,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ProcessAllWindowFunction,
    ProcessingTimeTrigger,
    ProcessWindowFunction,
    RuntimeContext,
    SlidingEventTimeWindows,
    Time,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
)

WINDOW = Time.seconds(10)
WINDOW_MS = 10 * SECOND_MS
SLIDE = Time.seconds(2)
#: The watermark at the end of a bounded input: Flink's ``Long.MAX_VALUE``.
END_OF_TIME = 2**63 - 1


class Count(AggregateFunction[object, int, int]):
    """The number of elements."""

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: object, accumulator: int) -> int:
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, acc_a: int, acc_b: int) -> int:
        return acc_a + acc_b


# --- query 5 --------------------------------------------------------------------------------------------


class WithWindowEnd(ProcessWindowFunction[int, Row, int, TimeWindow]):
    """Emits ``(end of the window, key, count)``."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[Row]:
        (count,) = elements
        yield context.window().end, key, count


class Hottest(KeyedProcessFunction[int, Row, Row]):
    """Emits the auctions with the highest count of a window, when all counts of the window have come."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.most = runtime_context.get_state(ValueStateDescriptor("most", Types.LONG()))
        self.hottest = runtime_context.get_list_state(ListStateDescriptor("hottest", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context[int]) -> None:
        end, auction, count = value
        most = self.most.value()
        if most is None:
            ctx.timer_service().register_event_time_timer(end)
        if most is None or count > most:
            self.most.update(count)
            self.hottest.update([auction])
        elif count == most:
            self.hottest.add(auction)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[int]) -> Iterator[Row]:
        most = self.most.value()
        for auction in self.hottest.get():
            yield auction, most
        self.most.clear()
        self.hottest.clear()


def hot_items(events: DataStream[Event]) -> DataStream[Row]:
    """Query 5: the auctions with most bids in the last 10 seconds, every 2 seconds."""
    offers = bids(timed(events)).map(lambda bid: bid.auction)
    windows = offers.key_by(lambda auction: auction, Types.LONG()).window(
        SlidingEventTimeWindows.of(WINDOW, SLIDE)
    )
    counts = windows.aggregate(Count(), WithWindowEnd())
    return counts.key_by(lambda count: count[0], key_type=Types.LONG()).process(Hottest())


# --- query 7 --------------------------------------------------------------------------------------------


class HighestBids(AggregateFunction[Bid, list[Bid], list[Bid]]):
    """All bids that have the highest price."""

    def create_accumulator(self) -> list[Bid]:
        return []

    def add(self, value: Bid, accumulator: list[Bid]) -> list[Bid]:
        if not accumulator or value.price > accumulator[0].price:
            return [value]
        if value.price == accumulator[0].price:
            accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[Bid]) -> list[Bid]:
        return accumulator

    def merge(self, acc_a: list[Bid], acc_b: list[Bid]) -> list[Bid]:
        for bid in acc_b:
            acc_a = self.add(bid, acc_a)
        return acc_a


class Candidates(ProcessWindowFunction[list[Bid], Row, int, TimeWindow]):
    """Emits ``(end of the window, bid)`` for each of an auction's highest bids."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[list[Bid]]
    ) -> Iterator[Row]:
        for bid in next(iter(elements)):
            yield context.window().end, bid


class WithEndOfAll(ProcessAllWindowFunction[int, Row, TimeWindow]):
    """Emits ``(end of the window, price)``."""

    def process(
        self, context: ProcessAllWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[Row]:
        (price,) = elements
        yield context.window().end, price


PRICES = MapStateDescriptor("highest prices", Types.LONG(), Types.LONG())


class AtHighestPrice(KeyedBroadcastProcessFunction[int, Row, Row, Row]):
    """Keeps candidates until the highest price of their window is known, and emits those that have it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext[int]) -> None:
        self.waiting.add(value)
        ctx.timer_service().register_event_time_timer(value[0])

    def process_broadcast_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        prices = ctx.get_broadcast_state(PRICES)
        for end in [end for end in prices if end <= ctx.current_watermark()]:
            prices.remove(end)  # all timers of that window have fired
        prices.put(*value)

    def on_timer(
        self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext[int]
    ) -> Iterator[Row]:
        price = ctx.get_broadcast_state(PRICES).get(timestamp)
        waiting = list(self.waiting.get())
        self.waiting.update([candidate for candidate in waiting if candidate[0] != timestamp])
        for end, bid in waiting:
            if end == timestamp and bid.price == price:
                yield bid.auction, bid.bidder, bid.price, bid.date_time, bid.extra


def highest_bids(events: DataStream[Event]) -> DataStream[Row]:
    """Query 7: the bids with the highest price of each 10 seconds; that price is broadcast.

    Only the highest bids of each auction can have it. The SQL text also takes bids with that price at the
    first millisecond after a window (``BETWEEN`` includes both ends), which are candidates of both windows.
    """
    offers = bids(timed(events))
    by_auction = offers.key_by(lambda bid: bid.auction, key_type=Types.LONG())
    best = by_auction.window(TumblingEventTimeWindows.of(WINDOW)).aggregate(HighestBids(), Candidates())
    best_prices = best.map(lambda candidate: candidate[1].price)
    windows = best_prices.window_all(TumblingEventTimeWindows.of(WINDOW))
    prices = windows.reduce(lambda a, b: max(a, b), WithEndOfAll())
    just_after = offers.filter(lambda bid: bid.date_time % WINDOW_MS == 0)
    candidates = best.union(just_after.map(lambda bid: (bid.date_time, bid)))
    keyed = candidates.key_by(lambda candidate: candidate[1].auction, key_type=Types.LONG())
    return keyed.connect(prices.broadcast(PRICES)).process(AtHighestPrice())


# --- query 8 --------------------------------------------------------------------------------------------


class NameAndSale(AggregateFunction[Row, tuple[str | None, bool], tuple[str | None, bool]]):
    """The name of who has registered, and whether they have sold."""

    def create_accumulator(self) -> tuple[str | None, bool]:
        return None, False

    def add(self, value: Row, accumulator: tuple[str | None, bool]) -> tuple[str | None, bool]:
        _, name = value
        return (accumulator[0], True) if name is None else (name, accumulator[1])

    def get_result(self, accumulator: tuple[str | None, bool]) -> tuple[str | None, bool]:
        return accumulator

    def merge(
        self, acc_a: tuple[str | None, bool], acc_b: tuple[str | None, bool]
    ) -> tuple[str | None, bool]:
        return acc_a[0] or acc_b[0], acc_a[1] or acc_b[1]


class WhoDidBoth(ProcessWindowFunction[tuple[str | None, bool], Row, int, TimeWindow]):
    """Emits ``(id, name, start of the window)`` of who has registered and sold in it."""

    def process(
        self,
        key: int,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[str | None, bool]],
    ) -> Iterator[Row]:
        ((name, has_sold),) = elements
        if name is not None and has_sold:
            yield key, name, context.window().start


def new_sellers(events: DataStream[Event]) -> DataStream[Row]:
    """Query 8: who has registered and opened an auction in the same 10 seconds."""
    entries = without_bids(timed(events))
    registered = persons(entries).map(_registration)
    sold = auctions(entries).map(_opening)
    keyed = registered.union(sold).key_by(lambda row: row[0], key_type=Types.LONG())
    return keyed.window(TumblingEventTimeWindows.of(WINDOW)).aggregate(NameAndSale(), WhoDidBoth())


def _registration(person: Person) -> Row:
    return person.id, person.name


def _opening(auction: Auction) -> Row:
    return auction.seller, None


# --- queries 11 and 12 ----------------------------------------------------------------------------------


class WithWindow(ProcessWindowFunction[int, Row, int, TimeWindow]):
    """Emits ``(key, count, start, end)``."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[int]
    ) -> Iterator[Row]:
        (count,) = elements
        window = context.window()
        yield key, count, window.start, window.end


def user_sessions(events: DataStream[Event]) -> DataStream[Row]:
    """Query 11: how many bids each user made in each session; 10 seconds without a bid end one."""
    bidders = bids(timed(events)).map(lambda bid: bid.bidder)
    by_bidder = bidders.key_by(lambda bidder: bidder, key_type=Types.LONG())
    return by_bidder.window(EventTimeSessionWindows.with_gap(WINDOW)).aggregate(Count(), WithWindow())


class OrAtEndOfInput(ProcessingTimeTrigger):
    """Fires at the end of a processing-time window, and at the end of the input for windows open then.

    Without it, the last windows of a bounded input would never fire, and nobody could check the sum.
    """

    def on_element(
        self, element: object, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(END_OF_TIME)
        return super().on_element(element, timestamp, window, ctx)

    def on_event_time(self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.delete_event_time_timer(END_OF_TIME)
        super().clear(window, ctx)


def bids_in_processing_time(events: DataStream[Event]) -> DataStream[Row]:
    """Query 12: how many bids each user made in each 10 seconds of processing time."""
    return count_in_processing_time(bids(timed(events)).map(lambda bid: bid.bidder))


def count_in_processing_time(bidders: DataStream[int]) -> DataStream[Row]:
    """Count each number in each 10 seconds of processing time."""
    by_bidder = bidders.key_by(lambda bidder: bidder, key_type=Types.LONG())
    windows = by_bidder.window(TumblingProcessingTimeWindows.of(WINDOW))
    return windows.trigger(OrAtEndOfInput()).aggregate(Count(), WithWindow())
