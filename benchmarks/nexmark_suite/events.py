"""The three kinds of events of the auction site. Fields and their order are those of Nexmark's tables.

Times are milliseconds since 1970, prices are cents.
"""

from __future__ import annotations

from typing import NamedTuple


class Person(NamedTuple):
    """Somebody who sells or bids; registers once."""

    id: int
    name: str
    email_address: str
    credit_card: str
    city: str
    state: str
    date_time: int
    extra: str


class Auction(NamedTuple):
    """An item for sale, from ``date_time`` to ``expires``, both included."""

    id: int
    item_name: str
    description: str
    initial_bid: int
    reserve: int
    date_time: int
    expires: int
    seller: int
    category: int
    extra: str


class Bid(NamedTuple):
    """A bid for an item."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


Event = Person | Auction | Bid
