"""What the main job keeps of each customer: SQL over its last checkpoint, against a plain Python loop."""

from __future__ import annotations

import csv
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate.state_access.command_line import main

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import retail_spend  # noqa: E402 - it lies among the examples
from made_up_retail import make_days  # noqa: E402

pytest.importorskip("duckdb")
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark", "no_slot_left")]

ALL_STATES = """
    select key, spend_cents, orders, last_products, largest_quantity, mean_line_cents from spend order by key
"""


def lines(directory: Path) -> Iterator[dict[str, str]]:
    for path in sorted(directory.glob("*.csv.gz")):
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            yield from (row for row in csv.DictReader(file) if row["CustomerID"])


def plain_loop(directory: Path) -> list[dict[str, Any]]:
    """The five states of each customer after all lines, without any of our code."""
    customers: dict[str, dict[str, Any]] = {}
    for row in lines(directory):
        quantity = int(row["Quantity"])
        cents = round(float(row["UnitPrice"]) * 100) * quantity
        key = row["CustomerID"].removesuffix(".0")
        new = {"spend_cents": 0, "orders": None, "last_products": [], "largest_quantity": quantity}
        state = customers.setdefault(key, {"key": key, **new, "mean_line_cents": {"f0": 0, "f1": 0}})
        state["spend_cents"] += cents
        if not row["InvoiceNo"].startswith("C"):
            state["orders"] = (state["orders"] or {}) | {row["InvoiceNo"]: True}
        state["last_products"] = [*state["last_products"], row["StockCode"]][-5:]
        state["largest_quantity"] = max(state["largest_quantity"], quantity)
        sums = state["mean_line_cents"]
        state["mean_line_cents"] = {"f0": sums["f0"] + cents, "f1": sums["f1"] + 1}
    return [customers[key] for key in sorted(customers)]


def run_job(directory: Path, folder: Path) -> str:
    """Run the main job over all days; return the folder of its checkpoints."""
    places = ["--checkpoint-dir", str(folder / "checkpoints"), "--output", str(folder / "out")]
    args = retail_spend.parse([*places, "--parallelism", "2"])
    result = retail_spend.run(args, str(directory))
    return str(folder / "checkpoints" / result.job_id)


def asked(folder: str, query: str, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    capsys.readouterr()
    assert main(["sql", folder, query, "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["rows"]
    return rows


@pytest.mark.quick
def test_made_up_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = tmp_path / "days"
    make_days(days, days=6, lines_a_day=400)
    check(days, tmp_path, capsys)


def test_all_real_days(retail_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(retail_dir, tmp_path, capsys)


def check(days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_job(days, tmp_path)
    expected = plain_loop(days)
    assert asked(folder, ALL_STATES, capsys) == expected
    assert_entries(folder, expected, capsys)


def assert_entries(folder: str, expected: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    """The same of the tables with a row for each entry."""
    (counts,) = asked(
        folder,
        "select (select count(*) from spend_orders) as orders,"
        " (select count(*) from spend_last_products) as products,"
        " (select sum(value) from spend_spend_cents)::bigint as cents",
        capsys,
    )
    assert counts == {
        "orders": sum(len(row["orders"] or ()) for row in expected),
        "products": sum(len(row["last_products"]) for row in expected),
        "cents": sum(row["spend_cents"] for row in expected),
    }
