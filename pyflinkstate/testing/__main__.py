"""A demo: a short test of an operator with time to live and timers, step by step.

python -m pyflinkstate.testing
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from pyflinkstate.api import (
    KeyedProcessFunction,
    OutputTag,
    Record,
    RuntimeContext,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.testing.harness import split
from pyflinkstate.testing.harnesses import KeyedOneInputOperatorHarness

REPEATED = OutputTag("repeated", Types.STRING())
HOUR_MS = 3_600_000


class FirstOrders(KeyedProcessFunction):
    """Emits the first order of a user in 24 hours, and a reminder an hour of event time later."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Declare state that expires a day after it was written."""
        descriptor = ValueStateDescriptor("first", Types.STRING())
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(24)).build())
        self.first = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Record]:
        """Pass on the first order; others go to a side output."""
        _, order = value
        if self.first.value() is not None:
            yield REPEATED, order
            return
        self.first.update(order)
        ctx.timer_service().register_event_time_timer((ctx.timestamp() or 0) + HOUR_MS)
        yield order

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Record]:
        """Emit the reminder."""
        yield f"remind {ctx.get_current_key()} of {self.first.value()}"


def _harness(**options: object) -> KeyedOneInputOperatorHarness:
    return KeyedOneInputOperatorHarness(FirstOrders(), lambda pair: pair[0], Types.STRING(), **options)


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, not {expected!r}")
    print(f"ok  {what}: {found!r}")


def main() -> None:
    """Run the demo.

    Raises:
        AssertionError: a result is not as expected.
    """
    print("FirstOrders, a KeyedProcessFunction with time to live and timers, without Spark and Java:")
    with _harness() as harness:
        _check("a first order comes out", harness.process_element(("ann", "tea"), 0), ["tea"])
        _check("so does another user's", harness.process_element(("bob", "ink"), 10), ["ink"])
        _check("a second order does not", harness.process_element(("ann", "cup"), 20), [])
        _check("it is in the side output", harness.extract_side_output_values(REPEATED), ["cup"])
        _check("two timers wait", harness.num_event_time_timers(), 2)
        _check("event time passes", harness.process_watermark(HOUR_MS), ["remind ann of tea"])
        snapshot = harness.snapshot()
    parts = [_harness(restore=part) for part in split(snapshot, 2)]
    counts = [part.num_keyed_state_entries() for part in parts]
    _check("restored at parallelism 2, state is all there", sum(counts), 2)
    reminders = [reminder for part in parts for reminder in part.process_watermark(HOUR_MS + 10)]
    _check("the other timer fires once", reminders, ["remind bob of ink"])
    with _harness(restore=[snapshot]) as harness:
        harness.set_processing_time(24 * HOUR_MS)
        _check("after 24 hours state has expired", harness.process_element(("ann", "hat"), 40), ["hat"])
    _check("PySpark was not needed, nor imported", "pyspark" not in sys.modules, True)


if __name__ == "__main__":
    main()
