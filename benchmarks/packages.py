"""Runs a program with this package and with another one in turns, so that both meet the same noise."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

Figures = dict[str, float]

HERE = "here"
THERE = "there"


def medians(program: str, options: list[str], rounds: int, against: Path | None) -> dict[str, Figures]:
    """Call ``program --once`` with each package in each round; return the median of each figure by package.

    Args:
        program: the file of the program; with ``--once`` it prints its figures as one line of JSON.
        options: what it is called with beside ``--once``.
        rounds: how often.
        against: the other folder that has a package ``pyflinkstate``, or None to run this one alone.
    """
    folders = {HERE: Path(__file__).parent.parent} | ({THERE: against} if against else {})
    seen: dict[str, list[Figures]] = {where: [] for where in folders}
    for _ in range(rounds):
        for where, folder in folders.items():
            seen[where].append(_figures_of(program, options, folder))
    return {
        where: {key: statistics.median(figures[key] for figures in found) for key in found[0]}
        for where, found in seen.items()
    }


def _figures_of(program: str, options: list[str], folder: Path) -> Figures:
    """Run the program once, in a process of its own."""
    command = [sys.executable, program, "--once", *options]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: Figures = json.loads(done.stdout.splitlines()[-1])
    return found
