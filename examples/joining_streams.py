"""Joining two streams: orders meet their payments, in whichever order they come.

    python examples/joining_streams.py [--parallelism N] [--checkpoint-dir DIR] [--restore latest]

Who comes first waits in keyed state, with a timer. When the timer fires nobody has come, and what has
waited goes to a side output of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import command_line

from pyflinkstate.common import Duration, Types, WatermarkStrategy
from pyflinkstate.common.watermark_strategy import TimestampAssigner
from pyflinkstate.datastream import DataStream, KeyedCoProcessFunction, OutputTag, RuntimeContext
from pyflinkstate.datastream.state import ValueStateDescriptor

MINUTE_MS = 60_000
WAIT_MS = 15 * MINUTE_MS


class Order(NamedTuple):
    number: int
    time_ms: int
    item: str


class Payment(NamedTuple):
    number: int
    time_ms: int
    cents: int


class Sale(NamedTuple):
    number: int
    item: str
    cents: int


#: An order a minute. Most are paid some minutes later, some a little before, some too late, some never.
ORDERS = [Order(number, number * MINUTE_MS, f"item {number % 7}") for number in range(40)]
PAYMENTS = sorted(
    (
        Payment(number, (number + delay) * MINUTE_MS, 100 + number)
        for number in range(40)
        for delay in [(3, -1, 8, None, 14, 15, 16, 40, 1)[number % 9]]
        if delay is not None
    ),
    key=lambda payment: payment.time_ms,
)

UNPAID = OutputTag("unpaid")
UNKNOWN = OutputTag("unknown")


class Join(KeyedCoProcessFunction):
    """Keeps the order and the payment of a number until they have met, or waited in vain."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.order = runtime_context.get_state(ValueStateDescriptor("order"))
        self.payment = runtime_context.get_state(ValueStateDescriptor("payment"))

    def process_element1(self, value: Order, ctx: KeyedCoProcessFunction.Context) -> Iterator[Sale]:
        self.order.update(value)
        ctx.timer_service().register_event_time_timer(value.time_ms + WAIT_MS)
        return self.meet(ctx)

    def process_element2(self, value: Payment, ctx: KeyedCoProcessFunction.Context) -> Iterator[Sale]:
        self.payment.update(value)
        ctx.timer_service().register_event_time_timer(value.time_ms + WAIT_MS)
        return self.meet(ctx)

    def meet(self, ctx: KeyedCoProcessFunction.Context) -> Iterator[Sale]:
        order, payment = self.order.value(), self.payment.value()
        if order is None or payment is None or abs(order.time_ms - payment.time_ms) > WAIT_MS:
            return
        for state, one in [(self.order, order), (self.payment, payment)]:
            state.clear()
            ctx.timer_service().delete_event_time_timer(one.time_ms + WAIT_MS)
        yield Sale(order.number, order.item, payment.cents)

    def on_timer(
        self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext
    ) -> Iterator[tuple[OutputTag, Order | Payment]]:
        for state, tag in [(self.order, UNPAID), (self.payment, UNKNOWN)]:
            one = state.value()
            if one is not None and one.time_ms + WAIT_MS == timestamp:
                state.clear()
                yield tag, one


class OwnTime(TimestampAssigner):
    def extract_timestamp(self, value: Order | Payment, record_timestamp: int) -> int:
        return value.time_ms


def build(orders: DataStream, payments: DataStream) -> DataStream:
    """Return the sales; the side outputs ``UNPAID`` and ``UNKNOWN`` have the orders and payments left alone.

    Both streams may be out of order by five minutes.
    """
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
    strategy = strategy.with_timestamp_assigner(OwnTime())
    both = orders.assign_timestamps_and_watermarks(strategy).connect(
        payments.assign_timestamps_and_watermarks(strategy)
    )
    keyed = both.key_by(lambda order: order.number, lambda payment: payment.number, key_type=Types.LONG())
    return keyed.process(Join())


def main() -> None:
    args = command_line.parse("Join orders and payments.", takes_input=False)
    env = command_line.environment(args)
    sales = build(env.from_collection(ORDERS), env.from_collection(PAYMENTS))
    sales.print()
    sales.get_side_output(UNPAID).print("unpaid")
    sales.get_side_output(UNKNOWN).print("unknown")
    env.execute("sales")


if __name__ == "__main__":
    main()
