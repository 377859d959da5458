"""A day of a supervisor: a program that is stopped, killed, upgraded and interrupted, and always goes on.

Its disk fills up in between, and is given room again.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
import pytest
import supervised_program
from small_disk import fill, make_room, small_disk

pytestmark = [pytest.mark.spark, pytest.mark.needs_root, pytest.mark.timeout(900)]

FILES, LINES = 120, 10


@attrs.frozen
class Ended:
    """How a program has ended."""

    code: int
    said: str

    @property
    def lines(self) -> list[str]:
        """What it logged, and nothing of the JVM's start."""
        return [line for line in self.said.splitlines() if not line.startswith("WARNING: Using incubator")]


@attrs.define
class Supervisor:
    """Starts the program, and ends it in one way or another."""

    folder: Path
    ended: Ended | None = None

    @contextmanager
    def running(self, restore: str = "latest", *more: str) -> Iterator[subprocess.Popen[str]]:
        """Let the program run; it has to end meanwhile."""
        program = [sys.executable, supervised_program.__file__, str(self.folder), restore, *more]
        log = self.folder / "log"
        with (
            log.open("w+", encoding="utf-8") as stderr,
            subprocess.Popen(
                program, stdout=subprocess.PIPE, stderr=stderr, text=True, start_new_session=True
            ) as process,
        ):
            try:
                yield process
                code = process.wait(120)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        self.ended = Ended(code, log.read_text(encoding="utf-8"))

    def commanded(self, *words: str) -> str:
        """Run the command line, which has to succeed; return what it printed."""
        command = [sys.executable, "-m", "pyflinkstate", *words, "--token-file", str(self.folder / "token")]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()

    def output(self) -> list[list[int]]:
        """Return the committed lines: each with its number."""
        files = (self.folder / "out").glob("epoch=*/part-*")
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        return sorted([int(part) for part in line.split()] for line in lines)


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        first = number * LINES
        lines = "".join(f"{line}\n" for line in range(first, first + LINES))
        (tmp_path / "in" / f"{number:03}.txt").write_text(lines)
    with small_disk(tmp_path / "checkpoints", 8):
        yield Supervisor(tmp_path)


def until(
    process: subprocess.Popen[str], word: str, count: int = 1, meanwhile: Callable[[], None] = lambda: None
) -> str:
    """Wait until the program has told something often enough; return what it told last.

    ``meanwhile`` is called at first, and at each line before.
    """
    assert process.stdout is not None
    meanwhile()
    for line in process.stdout:
        count -= word in line
        if count == 0:
            return line
        meanwhile()
    raise AssertionError(f"the program ended before it said {word!r}")


def test_a_day_of_a_supervisor(supervisor: Supervisor) -> None:
    with supervisor.running() as process:
        until(process, "checkpoint", 3)
        process.send_signal(signal.SIGTERM)
    assert supervisor.ended is not None
    assert supervisor.ended.code == -signal.SIGTERM
    (line,) = supervisor.ended.lines[1:]
    assert "is CANCELED" in line
    assert "by SIGTERM; it goes on from" in line

    with supervisor.running() as process:
        until(process, "checkpoint", 2)
        process.kill()
    assert supervisor.ended.code == -signal.SIGKILL

    with supervisor.running() as process:
        address = until(process, "http").partition("?")[0]
        until(process, "checkpoint")
        savepoint = supervisor.commanded("stop", address)
    assert supervisor.ended.code == 0
    assert Path(savepoint).parent == supervisor.folder / "savepoints"

    for restored in (savepoint, "latest"):
        with supervisor.running(restored, "dies"):
            pass
        assert supervisor.ended.code == -signal.SIGKILL
    with supervisor.running("latest", "upgraded") as process:
        until(process, "checkpoint", 2)
        until(process, "failed", meanwhile=lambda: fill(supervisor.folder / "checkpoints"))
        make_room(supervisor.folder / "checkpoints")
        until(process, "checkpoint", 2)
        os.killpg(process.pid, signal.SIGINT)
    assert supervisor.ended.code == -signal.SIGINT
    line = supervisor.ended.lines[-1]  # others tell of the disk
    assert "is CANCELED" in line
    assert "by SIGINT" in line

    with supervisor.running("latest", "upgraded") as process:
        pass
    assert supervisor.ended.code == 0
    count = [0] * 7
    expected = []
    for number in range(FILES * LINES):
        count[number % 7] += 1
        expected.append([number, count[number % 7]])
    assert supervisor.output() == expected
