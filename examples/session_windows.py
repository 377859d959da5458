"""Sessions: which events of a user belong to one visit, by event time.

    python examples/session_windows.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR]
        [--restore latest]

A visit is over when half an hour has passed without an event. It is found in two ways, with the same
results: by timers and state, and by session windows. With --input an event is a line of an invoice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import command_line
from retail import Line, invoice_lines

from pyflinkstate.common import Duration, Time, Types, WatermarkStrategy
from pyflinkstate.common.watermark_strategy import TimestampAssigner
from pyflinkstate.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    ProcessWindowFunction,
    RuntimeContext,
)
from pyflinkstate.datastream.state import MapStateDescriptor
from pyflinkstate.datastream.window import EventTimeSessionWindows, TimeWindow

MINUTE_MS = 60_000
GAP_MS = 30 * MINUTE_MS


class Event(NamedTuple):
    user: str
    time_ms: int


class Visit(NamedTuple):
    user: str
    first_ms: int
    last_ms: int
    events: int


#: In the order in which they come, which is not quite that of their times.
SAMPLE = [
    Event(user, minute * MINUTE_MS)
    for user, minute in [
        ("ann", 0),
        ("bob", 3),
        ("ann", 12),
        ("ann", 9),
        ("cleo", 15),
        ("bob", 31),
        ("ann", 45),
        ("bob", 29),
        ("cleo", 58),
        ("ann", 71),
        ("bob", 83),
        ("ann", 140),
        ("cleo", 131),
        ("cleo", 139),
        ("bob", 150),
        ("ann", 165),
        ("bob", 158),
    ]
]


class VisitsByTimers(KeyedProcessFunction):
    """Keeps how many events there are of each time, until the visit that they belong to is over."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.events = runtime_context.get_map_state(MapStateDescriptor("events", Types.LONG(), Types.LONG()))

    def process_element(self, value: Event, ctx: KeyedProcessFunction.Context) -> None:
        self.events.put(value.time_ms, (self.events.get(value.time_ms) or 0) + 1)
        ctx.timer_service().register_event_time_timer(value.time_ms + GAP_MS)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Visit]:
        times = first_visit(sorted(self.events))
        if times[-1] + GAP_MS > timestamp:
            return  # it went on; the timer of its last event is still to come
        yield Visit(ctx.get_current_key(), times[0], times[-1], sum(self.events[time] for time in times))
        for time in times:
            self.events.remove(time)


def first_visit(times: list[int]) -> list[int]:
    """Return the first of ``times``, up to where the gap is too wide."""
    visit = times[:1]
    for time in times[1:]:
        if time - visit[-1] > GAP_MS:
            break
        visit.append(time)
    return visit


class VisitsByWindows(ProcessWindowFunction[Event, Visit, str, TimeWindow]):
    """Is called with all events of a session."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Event]
    ) -> Iterator[Visit]:
        times = [event.time_ms for event in elements]
        yield Visit(key, min(times), max(times), len(times))


class TimeOfEvent(TimestampAssigner):
    def extract_timestamp(self, value: Event, record_timestamp: int) -> int:
        return value.time_ms


def by_user(events: DataStream) -> KeyedStream:
    """Return the events with their time and key; an event may come a day after later ones."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_days(1))
    timed = events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOfEvent()))
    return timed.key_by(lambda event: event.user, key_type=Types.STRING())


def build(events: DataStream) -> DataStream:
    """Return the visits, found with timers."""
    return by_user(events).process(VisitsByTimers())


def build_with_windows(events: DataStream) -> DataStream:
    """Return the visits, found with session windows."""
    windows = by_user(events).window(EventTimeSessionWindows.with_gap(Time.milliseconds(GAP_MS)))
    return windows.process(VisitsByWindows())


def events_of(lines: DataStream) -> DataStream:
    """Return an event for each invoice line of a known customer."""

    def event_of(line: Line) -> Iterator[Event]:
        if line.customer:
            yield Event(line.customer, line.time_ms)

    return lines.flat_map(event_of)


def main() -> None:
    args = command_line.parse("Find out which events of a user belong to one visit.")
    env = command_line.environment(args)
    if args.input is None:
        events = env.from_collection(SAMPLE)
    else:
        events = events_of(invoice_lines(env, args.input, args.days))
    build(events).print()
    env.execute("sessions")


if __name__ == "__main__":
    main()
