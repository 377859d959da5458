"""A made-up web shop: the same invoice lines on every run, in files like those of the real data."""

from __future__ import annotations

import csv
import gzip
import random
from pathlib import Path

COLUMNS = (
    "InvoiceNo",
    "StockCode",
    "Description",
    "Quantity",
    "InvoiceDate",
    "UnitPrice",
    "CustomerID",
    "Country",
)


def make_days(directory: Path, days: int = 40, lines_a_day: int = 1500, seed: int = 17) -> None:
    """Write ``days`` gzipped CSV files into ``directory``, which is made if need be.

    The lines have the quirks of real ones: a quarter without customer, returns with negative
    quantities, zero prices, quotes and commas in descriptions.
    """
    directory.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)
    invoice = 536365
    for day in range(days):
        date = f"2010-{1 + day // 28:02d}-{1 + day % 28:02d}"
        rows = []
        while len(rows) < lines_a_day:
            invoice += 1
            rows += _invoice(rng, invoice, date)
        _write(directory / f"{date}.csv.gz", rows[:lines_a_day])


def _invoice(rng: random.Random, number: int, date: str) -> list[list[str]]:
    is_return = rng.random() < 0.05
    invoice = f"C{number}" if is_return else str(number)
    customer = "" if rng.random() < 0.25 else f"{12346 + int(rng.expovariate(1 / 400))}.0"
    time_of_day = f"{date} {rng.randrange(8, 18):02d}:{rng.randrange(60):02d}:00"
    rows = []
    for _ in range(rng.randrange(1, 25)):
        product = rng.randrange(3000)
        quantity = rng.choice((1, 2, 6, 12, 24, 48)) * (-1 if is_return else 1)
        price = 0.0 if rng.random() < 0.01 else round(rng.uniform(0.2, 15), 2)
        description = f'BOX NO "{product}", WOOD'
        rows.append(
            [
                invoice,
                f"{20000 + product}{rng.choice(('', 'A', 'B'))}",
                description,
                str(quantity),
                time_of_day,
                str(price),
                customer,
                "United Kingdom",
            ]
        )
    return rows


def _write(path: Path, rows: list[list[str]]) -> None:
    with gzip.open(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows)
