"""The main job as a user runs it: as a program, killed and restored, against a plain Python loop."""

from __future__ import annotations

import csv
import gzip
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from pyflinkstate.state_access.command_line import main

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

import demo  # noqa: E402 - it lies among the examples
import retail_spend  # noqa: E402
from made_up_retail import make_days  # noqa: E402

pytestmark = pytest.mark.spark


def plain_loop(directory: Path, days: int | None = None) -> Iterator[str]:
    """What the job writes, without any of our code."""
    customers: dict[str, Any] = {}
    for row in lines(directory, days):
        yield json.dumps(_step(customers, row), separators=(",", ":"), ensure_ascii=False)


def states_of_all(directory: Path) -> list[dict[str, Any]]:
    """The five states of each customer after all lines."""
    customers: dict[str, Any] = {}
    for row in lines(directory):
        _step(customers, row)
    return [
        {
            "key": key,
            "spend_cents": state["spend"],
            "orders": dict.fromkeys(state["orders"], True) or None,
            "last_products": state["last"],
            "largest_quantity": state["largest"],
            "mean_line_cents": {"f0": state["spend"], "f1": state["count"]},
        }
        for key, state in sorted(customers.items())
    ]


def lines(directory: Path, days: int | None = None) -> Iterator[dict[str, str]]:
    for path in sorted(directory.glob("*.csv.gz"))[:days]:
        with gzip.open(path, "rt", newline="", encoding="utf-8") as file:
            yield from (row for row in csv.DictReader(file) if row["CustomerID"])


def _step(customers: dict[str, Any], row: dict[str, str]) -> dict[str, Any]:
    customer = row["CustomerID"].removesuffix(".0")
    quantity = int(row["Quantity"])
    cents = round(float(row["UnitPrice"]) * 100) * quantity
    new: dict[str, Any] = {"spend": 0, "count": 0, "orders": set(), "last": [], "largest": quantity}
    state = customers.setdefault(customer, new)
    state["spend"] += cents
    state["count"] += 1
    if not row["InvoiceNo"].startswith("C"):
        state["orders"].add(row["InvoiceNo"])
    state["last"] = [*state["last"], row["StockCode"]][-5:]
    state["largest"] = max(state["largest"], quantity)
    return {
        "customer": customer,
        "invoice": row["InvoiceNo"],
        "spend_cents": state["spend"],
        "orders": len(state["orders"]),
        "last_products": state["last"],
        "largest_quantity": state["largest"],
        "mean_line_cents": state["spend"] // state["count"],
    }


class MainJob:
    """Runs the program in a folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.arguments = arguments
        self.processes: set[psutil.Process] = set()

    def run(self, *more: str, at: dict[str, Callable[[demo.Run], None]] | None = None) -> int:
        places = ["--checkpoint-dir", str(self.folder / "checkpoints"), "--output", str(self.folder / "out")]
        program = demo.Run(*places, *self.arguments, *more, at=at)
        code = program.wait()
        self.processes |= program.processes
        return code

    def rows(self) -> Counter[str]:
        return demo.rows_of(self.folder / "out")


def kill_slot_then_driver(run: demo.Run) -> None:
    """Kill both, the driver when there is a checkpoint to restore."""
    run.kill_slot()
    run.kill_driver_soon()


def test_a_killed_slot_and_a_killed_driver_on_made_up_days(tmp_path: Path) -> None:
    days = tmp_path / "days"
    days.mkdir()
    make_days(days, days=12, lines_a_day=400)
    job = MainJob(tmp_path, "--input", str(days), "--interval-ms", "0")
    assert job.run("--parallelism", "2", at={"epoch 3:": kill_slot_then_driver}) == -signal.SIGKILL
    assert demo.still_running(job.processes) == [], "everything ends with the driver"
    assert job.run("--parallelism", "3", "--restore", "latest") == 0
    assert job.rows() == Counter(plain_loop(days))
    assert demo.still_running(job.processes) == []


def test_real_days_equal_a_plain_loop(retail_dir: Path, tmp_path: Path) -> None:
    job = MainJob(tmp_path, "--input", str(retail_dir), "--days", "9")
    assert job.run("--parallelism", "2") == 0
    assert job.rows() == Counter(plain_loop(retail_dir, days=9))


def test_a_usage_error_is_one_line(tmp_path: Path) -> None:
    arguments = [
        "--checkpoint-dir",
        str(tmp_path / "c"),
        "--output",
        str(tmp_path / "o"),
        "--restore",
        "latest",
    ]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "retail_spend.py"), *arguments],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    own = [line for line in done.stderr.splitlines() if line.startswith("CheckpointNotFoundError: ")]
    assert len(own) == 1
    assert "Traceback" not in done.stderr


# --- its state, in SQL over its last checkpoint ----------------------------------------------------

ALL_STATES = """
    select key, spend_cents, orders, last_products, largest_quantity, mean_line_cents from spend order by key
"""


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


@pytest.mark.usefixtures("spark", "no_slot_left")
@pytest.mark.quick
def test_made_up_days(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    days = tmp_path / "days"
    make_days(days, days=6, lines_a_day=400)
    check(days, tmp_path, capsys)


@pytest.mark.usefixtures("spark", "no_slot_left")
def test_all_real_days(retail_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(retail_dir, tmp_path, capsys)


def check(days: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("duckdb")
    folder = run_job(days, tmp_path)
    expected = states_of_all(days)
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
