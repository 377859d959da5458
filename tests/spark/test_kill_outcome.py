"""A kill round finds what is not as it must be; the job is played by programs of a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import kill_program
from kill_plan import Plan
from kill_rounds import MARK, MAX_RUNS, KillRound
from processes import marked


def playing(program: str, folder: Path, **limits: float) -> KillRound:
    """Return a round without troubles whose job is this program."""
    return KillRound(0, folder, plan=Plan(), launch=lambda _: [sys.executable, "-c", program], **limits)


def write_rows(folder: Path, rows: list[kill_program.Row]) -> None:
    epoch = folder / "out" / "epoch=1"
    epoch.mkdir(parents=True)
    (epoch / "part-0").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_rows_are_counted_that_are_missing_or_too_many(tmp_path: Path) -> None:
    _, second, *others = kill_program.expected()
    write_rows(tmp_path, [second, second, second, *others])
    outcome = playing("", tmp_path).run()
    assert (outcome.lost, outcome.doubled) == (1, 2)
    assert outcome.problems() == ["1 rows lost", "2 rows doubled"]


def test_all_is_well(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    assert playing("", tmp_path).run().problems() == []


def test_who_says_nothing_hangs_and_is_ended(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    this = playing("import signal; print('epoch 1', flush=True); signal.pause()", tmp_path, silence_s=10)
    (problem,) = this.run().problems()
    assert problem.startswith("hang: program 1 said nothing for 10 s, after '1: epoch 1'")
    assert marked(MARK, this.mark) == []


def test_a_driver_that_fails_again_and_again_does_not_end_well(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    hang, *strange = playing("raise ValueError('odd')", tmp_path).run().problems()
    assert hang == f"hang: {MAX_RUNS} programs were not enough"
    assert strange == ["ended by itself: ValueError: odd"] * MAX_RUNS


def test_processes_that_are_left_are_told_and_ended_but_not_who_was_forked_to_stay(tmp_path: Path) -> None:
    write_rows(tmp_path, kill_program.expected())
    this = playing("", tmp_path, patience_s=1)
    stays = [sys.executable, "-c", "import signal; signal.pause()"]
    strays = [subprocess.Popen(stays, env={**os.environ, MARK: this.mark}) for _ in range(2)]
    (tmp_path / "children").mkdir()
    (tmp_path / "children" / str(strays[1].pid)).touch()
    (problem,) = this.run().problems()
    assert problem.startswith(f"left behind: {strays[0].pid} ")
    assert marked(MARK, this.mark) == []
    for stray in strays:
        stray.wait()
