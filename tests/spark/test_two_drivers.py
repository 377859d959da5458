"""Two programs run one job: the older one was only frozen, and goes on when the other has taken over."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kill_rounds import KillRound

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def round_(tmp_path: Path) -> Iterator[KillRound]:
    """A job that nobody kills; whatever of it is left when the test ends is ended then."""
    yield (made := KillRound(0, tmp_path, kills=0))
    for program in PROGRAMS:
        program.kill()
        program.wait()
    PROGRAMS.clear()
    assert made.has_checkpoint()


PROGRAMS: list[subprocess.Popen[str]] = []


def started(of: KillRound, restore: bool) -> subprocess.Popen[str]:
    PROGRAMS.append(program := of.start(2, restore))
    return program


def epochs(program: subprocess.Popen[str]) -> Iterator[str]:
    """Yield what a program says, line by line, when it says that it has run an epoch."""
    assert program.stdout is not None
    return (line for line in program.stdout if line.startswith("epoch"))


@pytest.mark.parametrize("thaws", ["while the other one runs", "when the other one has ended"])
def test_a_driver_that_was_frozen_ends_and_the_output_is_right(round_: KillRound, thaws: str) -> None:
    older = started(round_, restore=False)
    for _ in epochs(older):
        if round_.has_checkpoint():
            break
    os.kill(older.pid, signal.SIGSTOP)
    newer = started(round_, restore=True)
    newer_epochs = epochs(newer)
    next(newer_epochs)
    if thaws == "while the other one runs":
        os.kill(older.pid, signal.SIGCONT)
    assert list(newer_epochs)
    assert newer.wait() == 0
    os.kill(older.pid, signal.SIGCONT)
    list(epochs(older))
    assert older.wait() != 0
    assert "JobSupersededError" in (round_.directory / "stderr.txt").read_text()
    round_.check()
