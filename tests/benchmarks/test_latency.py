"""The log of arrivals has each measured record once, and latency begins when a record is due."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from latency import BadLogError, Log, arrived, latencies_of, quantile
from paced.pace import LOGS, SECOND_NS, Arrivals, Pace, all_have_arrived

START_NS = 1_700_000_000 * SECOND_NS
#: Two records a key; the first arrives at once, and 2 s are measured after a warm-up of 1 s.
KEYS = 50
RATE = 100


def pace_in(folder: Path) -> Pace:
    return Pace(folder, RATE, KEYS, 1, 2)


def log_of(pace: Pace, records: int) -> Log:
    """Return the log of records that arrive 1 ms late, except that nothing arrives between 2 s and 2.5 s."""
    numbers = np.arange(records)
    due_ns = START_NS + numbers * SECOND_NS // RATE
    arrived_ns = due_ns + 10**6
    stall_ns = START_NS + 2 * SECOND_NS
    is_stalled = (arrived_ns >= stall_ns) & (arrived_ns < stall_ns + SECOND_NS // 2)
    arrived_ns[is_stalled] = stall_ns + SECOND_NS // 2
    return np.stack([numbers, numbers // KEYS + 1, due_ns, arrived_ns], axis=1)


def write(log: Log, folder: Path) -> None:
    """Log the even numbers in one file, and the odd ones in another."""
    for part in range(2):
        arrivals = Arrivals(folder)
        for number, count, due_ns, at_ns in log[part::2].tolist():
            arrivals.note(number, due_ns, count, at_ns)
        arrivals.close()


@pytest.mark.parametrize("number", [0, 1, 99, 12_345])
def test_a_record_is_due_from_its_time_on(tmp_path: Path, number: int) -> None:
    pace = Pace(tmp_path, 1_000, KEYS, 1, 2)
    due_ns = pace.due_ns(START_NS, number)
    assert pace.due_before(START_NS, due_ns) == number + 1
    assert pace.due_before(START_NS, due_ns - 1) == number


def test_all_processes_of_a_run_have_one_schedule(tmp_path: Path) -> None:
    assert pace_in(tmp_path).start_ns() == pace_in(tmp_path).start_ns()


def test_a_stall_is_seen_by_all_records_that_are_due_meanwhile(tmp_path: Path) -> None:
    pace = pace_in(tmp_path)
    write(log_of(pace, 400), tmp_path)
    waited_ms = latencies_of(arrived(tmp_path), pace, "engine")
    assert len(waited_ms) == 200
    assert np.count_nonzero(waited_ms > 1) == RATE / 2
    assert (quantile(waited_ms, 0.5), quantile(waited_ms, 0.9), quantile(waited_ms, 1)) == (1, 310, 500)


def test_a_run_ends_when_all_measured_records_have_arrived(tmp_path: Path) -> None:
    pace = pace_in(tmp_path)
    assert not all_have_arrived(pace)
    log = log_of(pace, 400)
    last = pace.measured(log[0].tolist())[-1]
    write(log[log[:, 0] != last], tmp_path)
    assert not all_have_arrived(pace)
    write(log[log[:, 0] == last], tmp_path)
    assert all_have_arrived(pace)


def test_an_incomplete_last_row_is_left_out(tmp_path: Path) -> None:
    pace = pace_in(tmp_path)
    write(log_of(pace, 400), tmp_path)
    with next(tmp_path.glob(LOGS)).open("ab") as file:
        file.write(b"12345678901234567")
    assert all_have_arrived(pace)
    assert len(arrived(tmp_path)) == 400


@pytest.mark.parametrize(
    ("row", "change", "error"),
    [
        (7, (6, 1), "301 records arrived, 300 of them different"),
        (7, (7, 0), "1 of 301 counts"),
        (57, (57, 1), "1 of 301 counts"),
    ],
    ids=["a record twice and another missing", "a count below 1", "state that was lost"],
)
def test_a_wrong_log_is_refused(tmp_path: Path, row: int, change: tuple[int, int], error: str) -> None:
    pace = pace_in(tmp_path)
    log = log_of(pace, 400)
    log[row, :2] = change
    with pytest.raises(BadLogError, match=error):
        latencies_of(log[np.argsort(log[:, 0], kind="stable")], pace, "engine")
