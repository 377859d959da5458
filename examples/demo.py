"""``make demo``: the main job, undisturbed and disturbed, and whether the two outputs are equal.

(a) runs ``retail_spend.py`` undisturbed; (b) runs it again, kills a state slot and later the driver
program itself with SIGKILL, restores from the latest checkpoint at another parallelism and goes on;
(c) compares the outputs row by row. Needs ``psutil``. With ``--page`` each run is on a web page.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import IO

import psutil

PROGRAM = Path(__file__).with_name("retail_spend.py")
SLOT = "pyflinkstate.runtime.slots.slot"
KILL_SLOT_AT = "epoch 12:"
KILL_DRIVER_AFTER = "epoch 26:"


class Run:
    """One run of the program; its output is shown, and ``at`` says what to do when a line begins so."""

    def __init__(self, *arguments: str, at: dict[str, Callable[[Run], None]] | None = None) -> None:
        self.at = at or {}
        self.processes: set[psutil.Process] = set()
        print("$", "python", PROGRAM.name, *arguments, flush=True)
        self.process = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self) -> int:
        """Show the output until the program ends; return its exit code."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        with self.process.stdout, self.process.stderr:
            return self._show(self.process.stdout, self.process.stderr)

    def _show(self, output: IO[str], error_output: IO[str]) -> int:
        errors: list[str] = []
        drain = threading.Thread(target=errors.extend, args=(error_output,), daemon=True)
        drain.start()
        for line in output:
            print("   ", line, end="", flush=True)
            self.processes |= family(self.process.pid)
            for beginning in [beginning for beginning in self.at if line.startswith(beginning)]:
                self.at.pop(beginning)(self)
        code = self.process.wait()
        drain.join()
        if code > 0:
            print("".join(errors), file=sys.stderr)
        return code

    def kill_slot(self) -> None:
        """SIGKILL one of the state slots."""
        slot = next(process for process in family(self.process.pid) if is_slot(process))
        print(f"*** kill -9 {slot.pid} (a state slot)", flush=True)
        slot.kill()

    def kill_driver_soon(self) -> None:
        """SIGKILL the program itself, when next a checkpoint is complete."""
        self.at["checkpoint "] = Run.kill_driver

    def kill_driver(self) -> None:
        """SIGKILL the program itself."""
        print(f"*** kill -9 {self.process.pid} (the driver program)", flush=True)
        self.process.kill()


def family(pid: int) -> set[psutil.Process]:
    """Return a process and all that it started, directly or not."""
    try:
        program = psutil.Process(pid)
        return {program, *program.children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def is_slot(process: psutil.Process) -> bool:
    """Return whether a process is a state slot."""
    try:
        return SLOT in " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return False


def runs(process: psutil.Process) -> bool:
    """Return whether a process has not ended; its parent may not have asked for its exit code yet."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def still_running(processes: set[psutil.Process], timeout_s: float = 30) -> list[int]:
    """Return the pids of those that are there after ``timeout_s``; sooner if none is."""
    deadline = time.monotonic() + timeout_s
    while (left := set(filter(runs, processes))) and time.monotonic() < deadline:
        psutil.wait_procs(left, 0.2)
    return sorted(process.pid for process in left)


def rows_of(output: Path) -> Counter[str]:
    """Return the committed rows of a run."""
    files = sorted(output.glob("epoch=*/*.jsonl"))
    return Counter(row for file in files for row in file.read_text().splitlines())


def compare(undisturbed: Counter[str], disturbed: Counter[str]) -> bool:
    """Compare row by row and say what came out."""
    missing, surplus = undisturbed - disturbed, disturbed - undisturbed
    print(
        f"(c) {undisturbed.total()} rows undisturbed, {disturbed.total()} disturbed: "
        f"{missing.total()} missing, {surplus.total()} surplus"
    )
    equal = not missing and not surplus and undisturbed.total() > 0
    print("the disturbed run equals the undisturbed one" if equal else "THE TWO RUNS DIFFER")
    return equal


def main() -> int:
    pages = [argument for argument in sys.argv[1:] if argument == "--page"]
    with tempfile.TemporaryDirectory(prefix="pyflinkstate-demo-") as folder:
        home = Path(folder)

        def arguments(name: str, parallelism: int, *more: str) -> list[str]:
            places = [
                "--checkpoint-dir",
                str(home / name / "checkpoints"),
                "--output",
                str(home / name / "output"),
            ]
            return [*places, "--parallelism", str(parallelism), *more, *pages]

        print("(a) undisturbed")
        undisturbed = Run(*arguments("a", 2))
        failed = undisturbed.wait() != 0
        print("(b) disturbed: a state slot and then the driver are killed")
        disturbed = Run(
            *arguments("b", 2), at={KILL_SLOT_AT: Run.kill_slot, KILL_DRIVER_AFTER: Run.kill_driver_soon}
        )
        failed |= disturbed.wait() != -signal.SIGKILL
        restored = Run(*arguments("b", 3, "--restore", "latest"))
        failed |= restored.wait() != 0
        equal = compare(rows_of(home / "a" / "output"), rows_of(home / "b" / "output"))
        left = still_running(undisturbed.processes | disturbed.processes | restored.processes)
        print(f"{len(left)} processes left behind" + (f": {left}" if left else ""))
        return 0 if equal and not failed and not left else 1


if __name__ == "__main__":
    sys.exit(main())
