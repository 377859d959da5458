"""Deduplication: each event once, however often it is delivered.

    python examples/deduplication.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR] [--restore latest]

What has been seen is remembered for a day after it came, and then forgotten: time to live keeps the state
as small as a day's events. With --input it drops the lines that are twice on one invoice.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import command_line
from retail import invoice_lines

from pyflinkstate.common import Time, Types
from pyflinkstate.datastream import DataStream, FilterFunction, RuntimeContext
from pyflinkstate.datastream.state import StateTtlConfig, ValueStateDescriptor


class Event(NamedTuple):
    event_id: str
    text: str


#: Every fourth delivery is that of an event which came five before.
SAMPLE = [Event(f"event-{n - 5 if n % 4 == 0 else n}", "hello") for n in range(5, 65)]


class FirstTime(FilterFunction):
    """Lets the first record of a key pass."""

    def open(self, runtime_context: RuntimeContext) -> None:
        descriptor = ValueStateDescriptor("seen", Types.BOOLEAN())
        descriptor.enable_time_to_live(
            StateTtlConfig.new_builder(Time.days(1))
            .set_update_type(StateTtlConfig.UpdateType.OnCreateAndWrite)
            .set_state_visibility(StateTtlConfig.StateVisibility.NeverReturnExpired)
            .cleanup_full_snapshot()
            .build()
        )
        self.seen = runtime_context.get_state(descriptor)

    def filter(self, value: Any) -> bool:
        if self.seen.value():
            return False
        self.seen.update(True)
        return True


def build(events: DataStream) -> DataStream:
    """Return the events, each once; two are the same if all their fields are."""
    return events.key_by(lambda event: tuple(event)).filter(FirstTime()).name("first time")


def main() -> None:
    args = command_line.parse("Let each event pass once.")
    env = command_line.environment(args)
    events = env.from_collection(SAMPLE) if args.input is None else invoice_lines(env, args.input, args.days)
    build(events).print()
    env.execute("deduplication")


if __name__ == "__main__":
    main()
