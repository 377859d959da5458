"""The last lines of slots: within a bound in bytes, whatever is printed."""

from __future__ import annotations

from pyflinkstate.monitor.log_tail import LogTail


def test_the_oldest_lines_are_dropped_and_counted() -> None:
    tail = LogTail(most_bytes=2_000)
    for number in range(1_000):
        tail.add(number, "a[0]", [(20, f"line {number}")])
    found = tail.found()
    assert 1 <= found["kept"] < 20
    assert found["kept"] + found["forgotten"] == 1_000
    assert found["lines"][-1] == [999, "a[0]", "INFO", "line 999"]


def test_a_long_line_is_cut_and_one_that_does_not_fit_is_dropped() -> None:
    tail = LogTail()
    tail.add(1, "a[0]", [(20, "x" * 100_000)])
    assert len(tail.found()["lines"][0][3]) == 2_000
    small = LogTail(most_bytes=10)
    small.add(1, "a[0]", [(20, "x")])
    assert (small.found()["kept"], small.found()["forgotten"]) == (0, 1)


def test_a_filter_sees_all_that_is_kept_and_shows_the_newest() -> None:
    tail = LogTail()
    tail.add(1, "Orders[0]", [(40, "Broken"), *[(20, f"n {n}") for n in range(600)]])
    assert tail.found("broken", "orders", 40)["lines"] == [[1, "Orders[0]", "ERROR", "Broken"]]
    found = tail.found()
    assert (found["matching"], len(found["lines"])) == (601, 500)
    assert found["lines"][0][3] == "n 100"
