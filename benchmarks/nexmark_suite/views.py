"""The tables that the queries read, as streams.

``timed`` gives events the timestamps and watermarks of the source table: event time is ``date_time``, and the
watermark is 4 seconds behind it.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import Any, cast

from nexmark_suite.events import Auction, Bid, Event, Person
from pyflinkstate import DataStream, Duration, TimestampAssigner, WatermarkStrategy

SECOND_MS = 1_000
DAY_MS = 86_400_000
WATERMARK_DELAY = Duration.of_seconds(4)


class DateTime(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value.date_time


def timed(events: DataStream[Event]) -> DataStream[Event]:
    """Return the events with event time."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(WATERMARK_DELAY)
    return events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(DateTime()))


def without_bids(events: DataStream[Event]) -> DataStream[Event]:
    """Return persons and auctions. What two views read is kept in between, and most events are bids."""
    return events.filter(_is_no_bid)


def persons(events: DataStream[Event]) -> DataStream[Person]:
    return cast("DataStream[Person]", events.filter(_is_person))


def auctions(events: DataStream[Event]) -> DataStream[Auction]:
    return cast("DataStream[Auction]", events.filter(_is_auction))


def bids(events: DataStream[Event]) -> DataStream[Bid]:
    return cast("DataStream[Bid]", events.filter(_is_bid))


def _is_person(event: Event) -> bool:
    return type(event) is Person


def _is_auction(event: Event) -> bool:
    return type(event) is Auction


def _is_no_bid(event: Event) -> bool:
    return type(event) is not Bid


def _is_bid(event: Event) -> bool:
    return type(event) is Bid


def day_of(time_ms: int) -> str:
    """Return the day in UTC, as ``DATE_FORMAT(dateTime, 'yyyy-MM-dd')`` does."""
    return _day(time_ms // DAY_MS)


@lru_cache(maxsize=1024)
def _day(number: int) -> str:
    return (datetime.date(1970, 1, 1) + datetime.timedelta(days=number)).isoformat()


def minute_of(time_ms: int) -> str:
    """Return the time of the day in UTC, as ``DATE_FORMAT(dateTime, 'HH:mm')`` does."""
    hours, minutes = divmod(time_ms // 60_000 % (24 * 60), 60)
    return f"{hours:02d}:{minutes:02d}"


#: A row of a result, whose columns are those of the query.
Row = tuple[Any, ...]
