"""Top N: what sells best in each country, day by day.

    python examples/top_n.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR] [--restore latest]

A window of a day for each country adds up quantities as they come, and ranks them when the day is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import command_line
from retail import Line, invoice_lines

from pyflinkstate.common import Duration, Time, Types, WatermarkStrategy
from pyflinkstate.common.watermark_strategy import TimestampAssigner
from pyflinkstate.datastream import AggregateFunction, DataStream, ProcessWindowFunction
from pyflinkstate.datastream.window import TimeWindow, TumblingEventTimeWindows

HOUR_MS = 3_600_000
Quantities = dict[str, int]


class Sale(NamedTuple):
    country: str
    time_ms: int
    product: str
    quantity: int


class Ranked(NamedTuple):
    country: str
    day_ms: int
    rank: int
    product: str
    quantity: int


#: A sale every hour of four days, in one of two countries.
SAMPLE = [
    Sale(("France", "Norway")[hour % 3 % 2], hour * HOUR_MS, f"product {hour * hour % 11}", 1 + hour % 5)
    for hour in range(4 * 24)
]


class AddUp(AggregateFunction):
    """Quantities by product."""

    def create_accumulator(self) -> Quantities:
        return {}

    def add(self, value: Sale, accumulator: Quantities) -> Quantities:
        accumulator[value.product] = accumulator.get(value.product, 0) + value.quantity
        return accumulator

    def get_result(self, accumulator: Quantities) -> Quantities:
        return accumulator

    def merge(self, acc_a: Quantities, acc_b: Quantities) -> Quantities:
        return {product: acc_a.get(product, 0) + acc_b.get(product, 0) for product in {*acc_a, *acc_b}}


class Rank(ProcessWindowFunction[Quantities, Ranked, str, TimeWindow]):
    """Keeps the ``n`` products that sold most; of those that sold the same, the first by name."""

    def __init__(self, n: int) -> None:
        self.n = n

    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Quantities]
    ) -> Iterator[Ranked]:
        (quantities,) = elements  # they were aggregated to one
        best = sorted(quantities.items(), key=lambda item: (-item[1], item[0]))[: self.n]
        for rank, (product, quantity) in enumerate(best, start=1):
            yield Ranked(key, context.window().start, rank, product, quantity)


class TimeOfSale(TimestampAssigner):
    def extract_timestamp(self, value: Sale, record_timestamp: int) -> int:
        return value.time_ms


def build(sales: DataStream, n: int = 3) -> DataStream:
    """Return the ``n`` best products of each country and day; sales may come an hour late."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_hours(1))
    timed = sales.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(TimeOfSale()))
    by_country = timed.key_by(lambda sale: sale.country, key_type=Types.STRING())
    days = by_country.window(TumblingEventTimeWindows.of(Time.days(1)))
    return days.aggregate(AddUp(), Rank(n))


def sales_of(lines: DataStream) -> DataStream:
    """Return what the invoice lines sold; returns are negative."""

    def sale_of(line: Line) -> Sale:
        return Sale(line.country, line.time_ms, line.description, line.quantity)

    return lines.map(sale_of)


def main() -> None:
    args = command_line.parse("Find the products that sell best, by country and day.")
    env = command_line.environment(args)
    if args.input is None:
        sales = env.from_collection(SAMPLE)
    else:
        sales = sales_of(invoice_lines(env, args.input, args.days))
    build(sales).print()
    env.execute("top n")


if __name__ == "__main__":
    main()
