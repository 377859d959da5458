"""Queries 3 and 20: joins in which each record meets one other by its id, whichever comes first.

The SQL joins keep both sides for ever. Ids are unique, so here a record waits only until the other one comes.
What the ``WHERE`` of a query excludes on the side of the id still sends its id, so that nothing waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nexmark_suite.events import Auction, Bid, Event, Person
from nexmark_suite.views import Row, auctions, bids, persons, without_bids
from pyflinkstate import (
    DataStream,
    KeyedCoProcessFunction,
    ListStateDescriptor,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
)

LOCAL_STATES = ("OR", "ID", "CA")
CATEGORY = 10

#: A record with its id; None in the record's place says that the query excludes it.
Known = tuple[int, Any]


class JoinById(KeyedCoProcessFunction[int, Known, Any, Row]):
    """Joins records of the second input with the one record of the first that has their key."""

    def __init__(self, row_of: Callable[[Any, Any], Row]) -> None:
        self._row_of = row_of

    def open(self, runtime_context: RuntimeContext) -> None:
        self.known = runtime_context.get_state(ValueStateDescriptor("known"))
        self.waiting = runtime_context.get_list_state(ListStateDescriptor("waiting"))

    def process_element1(self, value: Known, ctx: KeyedCoProcessFunction.Context[int]) -> Iterable[Row]:
        self.known.update(value)
        waiting = list(self.waiting.get())
        self.waiting.clear()
        return () if value[1] is None else [self._row_of(value[1], other) for other in waiting]

    def process_element2(self, value: Any, ctx: KeyedCoProcessFunction.Context[int]) -> Iterator[Row]:
        known = self.known.value()
        if known is None:
            self.waiting.add(value)
        elif known[1] is not None:
            yield self._row_of(known[1], value)


def join_by_id(
    known: DataStream[Known],
    others: DataStream[Any],
    id_of: Callable[[Any], int],
    row_of: Callable[[Any, Any], Row],
) -> DataStream[Row]:
    """Join ``known`` with the records of ``others`` whose ``id_of`` is the id."""
    both = known.connect(others).key_by(lambda pair: pair[0], id_of, key_type=Types.LONG())
    return both.process(JoinById(row_of))


def local_item_suggestion(events: DataStream[Event]) -> DataStream[Row]:
    """Query 3: who sells in Oregon, Idaho or California in category 10, and in which auctions."""

    def local(person: Person) -> Known:
        return person.id, (person if person.state in LOCAL_STATES else None)

    def row_of(seller: Person, auction: Auction) -> Row:
        return seller.name, seller.city, seller.state, auction.id

    entries = without_bids(events)
    wanted = auctions(entries).filter(lambda auction: auction.category == CATEGORY)
    return join_by_id(persons(entries).map(local), wanted, lambda auction: auction.seller, row_of)


def bids_with_auction(events: DataStream[Event]) -> DataStream[Row]:
    """Query 20: each bid in category 10, with its auction."""

    def wanted(auction: Auction) -> Known:
        return auction.id, (auction if auction.category == CATEGORY else None)

    def row_of(auction: Auction, bid: Bid) -> Row:
        return (*bid, *auction[1:])

    return join_by_id(auctions(events).map(wanted), bids(events), lambda bid: bid.auction, row_of)
