"""The example with a sink of its own, whose driver is killed at each step of the sink in turn."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import example_programs  # puts the examples on the path
import killed_sink
import pytest
from processes import quick_start
from sqlite_sink import SAMPLE

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

#: Each start of the program ends at the next step, from an epoch on that the starts before it did not commit.
#: The next start goes on from the newest checkpoint. Those with 0 happen while it opens the sink.
STEPS = [
    ("before prepare", 2),
    ("after prepare", 4),
    ("before commit", 6),
    ("before write", 0),
    ("in write", 0),
    ("after write", 0),
    ("in write", 10),
    ("after write", 12),
    ("after commit", 14),
    ("never", 0),
]


def environment(folder: Path) -> dict[str, str]:
    here = [str(Path(killed_sink.__file__).parent), str(example_programs.EXAMPLES)]
    return {**quick_start(folder), **os.environ, "PYTHONPATH": os.pathsep.join(here)}


def spend() -> Counter[tuple[str, int, int]]:
    """Return the rows by a plain loop."""
    totals: Counter[str] = Counter()
    rows = []
    for customer, amount in SAMPLE:
        totals[customer] += amount
        rows.append((customer, amount, totals[customer]))
    return Counter(rows)


def shown(database: Path) -> Counter[tuple[str, int, int]]:
    with closing(sqlite3.connect(database)) as opened:
        return Counter(opened.execute("SELECT * FROM spend"))


def test_no_row_is_lost_or_doubled_at_whatever_step_the_driver_is_killed(tmp_path: Path) -> None:
    database, checkpoints, settings = (tmp_path / name for name in ("spend.sqlite", "checkpoints", "conf"))
    settings.mkdir()
    started = environment(settings)
    before: Counter[tuple[str, int, int]] = Counter()
    for step, epoch in STEPS:
        arguments = ["--database", str(database), "--checkpoint-dir", str(checkpoints)]
        command = [sys.executable, killed_sink.__file__, step, str(epoch), *arguments]
        restore = ["--restore", "latest"] if any(checkpoints.glob("*/chk-*/_metadata")) else []
        done = subprocess.run(
            [*command, *restore], env=started, capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode == (0 if step == "never" else -signal.SIGKILL), (step, done.stderr)
        visible = shown(database)
        assert not visible - spend(), f"{step}: a row is doubled"
        assert not before - visible, f"{step}: a row that was visible is gone"
        before = visible
    assert before == spend()
    assert len(done.stdout.splitlines()) == 5
