"""Which epochs lie on the line of a job's newest run."""

from __future__ import annotations

import pytest

from pyflinkstate.runtime.storage.runs import RunHistory, newest_run, run_id_after, sorted_runs

FIRST, SECOND, THIRD = (f"{number:06d}-0000000{number}" for number in (1, 2, 3))
#: The third run has gone back behind the second one's beginning, to epoch 10 of the first one.
LINE = RunHistory(((FIRST, 0), (THIRD, 10)))


@pytest.mark.parametrize(
    ("runs", "last_held"),
    [
        (((FIRST, 0),), 10),
        (((FIRST, 0), (SECOND, 20)), 10),
        (((FIRST, 0), (SECOND, 5)), 5),
        (((SECOND, 0),), 0),
        ((), 0),
        (LINE.runs, 1_000),
        (((FIRST, 0), (THIRD, 10), ("000004-00000004", 30)), 1_000),
    ],
    ids=["older", "another way", "another way earlier", "from nothing", "unknown", "itself", "newer"],
)
def test_a_line_holds_epochs_up_to_where_another_history_leaves_it(
    runs: tuple[tuple[str, int], ...], last_held: int
) -> None:
    history = RunHistory(runs)
    held = [epoch for epoch in range(1, 1_001) if LINE.holds(history, epoch)]
    assert held == list(range(1, last_held + 1))


def test_where_no_run_is_known_every_epoch_is_held() -> None:
    assert RunHistory().holds(LINE, 50)
    assert RunHistory().holds(RunHistory(), 1)


def test_runs_of_a_time_without_histories_are_gone_on_from() -> None:
    line = RunHistory().continued(20, FIRST)
    assert [epoch for epoch in range(1, 30) if line.holds(RunHistory(), epoch)] == list(range(1, 21))


def test_a_line_holds_what_it_goes_on_from() -> None:
    for epoch in range(1, 25):
        assert LINE.continued(epoch, "000004-00000004").holds(LINE, epoch)


def test_runs_are_ordered_by_number_and_then_by_token() -> None:
    many = "1000000-00000000"
    assert newest_run([SECOND, many, THIRD]) == many
    assert sorted_runs([many, FIRST, SECOND], newest_first=True) == [many, SECOND, FIRST]
    assert run_id_after([FIRST, many], "abcdef01") == "1000001-abcdef01"
    assert newest_run([]) is None
