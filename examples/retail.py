"""Invoices of a web shop as a stream: what the examples read with ``--input``."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyflinkstate.datastream import DataStream, StreamExecutionEnvironment


class Line(NamedTuple):
    """One line of an invoice. A line of a return has a negative quantity; ``customer`` may be empty."""

    invoice: str
    product: str
    description: str
    quantity: int
    time_ms: int
    cents: int
    customer: str
    country: str


def line_of(row: dict[str, str]) -> Line:
    """Return what a row of a file means."""
    time = datetime.datetime.fromisoformat(row["InvoiceDate"]).replace(tzinfo=datetime.timezone.utc)
    quantity = int(row["Quantity"])
    return Line(
        row["InvoiceNo"],
        row["StockCode"],
        row["Description"],
        quantity,
        int(time.timestamp() * 1000),
        round(float(row["UnitPrice"]) * 100) * quantity,
        row["CustomerID"].removesuffix(".0"),
        row["Country"],
    )


def invoice_lines(
    env: StreamExecutionEnvironment, directory: str, days: int | None = None, *, growing: bool = False
) -> DataStream:
    """Read the lines of a directory that has one CSV file for each day; a day is an epoch.

    Args:
        env: where to read them.
        directory: a path or URI.
        days: only the first so many files.
        growing: wait for more files, without end.
    """
    return env.from_files(directory, "csv", max_files=days, growing=growing).map(line_of)
