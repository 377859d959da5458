"""Rounds of a job whose processes are killed at random; afterwards the output is right and nothing is left.

Each process of a round has a mark in its environment, by which it is found whoever its parent is now.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import attrs
import kill_program

MARK = "KILL_ROUND"
#: So long after the program's end its last process must be gone.
PATIENCE_S = 30
MAX_RUNS = 12

#: What may be killed, by what its command line has in it.
VICTIMS = {
    "slot": "pyflinkstate.runtime.slots.slot",
    "worker": "pyspark.daemon",
    "executor": "CoarseGrainedExecutorBackend",
    "jvm": "org.apache.spark.deploy.SparkSubmit",
    "driver": "kill_program.py",
}


def marked(mark: str) -> dict[int, str]:
    """Return pid and command line of all processes with the mark, but for this one."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or int(folder.name) == os.getpid():
            continue
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    found[int(folder.name)] = command
        except OSError:
            continue  # it has ended meanwhile
    return found


@attrs.define
class KillRound:
    """One job, killed up to ``kills`` times.

    Args:
        seed: decides who is killed and when.
        directory: for output and checkpoints.
        master: as for Spark; a function gives it where it depends on the round.
        kinds: of victims.
    """

    seed: int
    directory: Path
    master: str = "local[2]"
    kinds: tuple[str, ...] = ("slot", "worker", "jvm", "driver")
    kills: int = 3
    log: list[str] = attrs.Factory(list)
    launch: Callable[[list[str]], list[str]] = attrs.field(default=lambda command: command)
    mark: str = attrs.field(factory=lambda: uuid.uuid4().hex)

    def run(self) -> None:
        """Run to the end of the job; raises ``AssertionError`` if anything is not as it must be."""
        rng = random.Random(self.seed)
        for number in range(MAX_RUNS):
            code = self._run_once(rng, restore=number > 0 and self.has_checkpoint())
            if code == 0:
                break
        else:
            raise AssertionError(f"seed {self.seed}: {MAX_RUNS} runs were not enough: {self.log}")
        self.check()

    def check(self) -> None:
        """Compare the output, and look for processes that were left."""
        rows = []
        for path in (self.directory / "out").glob("epoch=*/part-*"):
            rows += [tuple(json.loads(line)) for line in path.read_text().splitlines()]
        assert sorted(rows) == kill_program.expected(), f"seed {self.seed}: {self.log}"
        deadline = time.monotonic() + PATIENCE_S
        while (left := marked(self.mark)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left, f"seed {self.seed}: left behind: {left}"

    def has_checkpoint(self) -> bool:
        return any((self.directory / "checkpoints").glob("*/chk-*/_metadata"))

    def _run_once(self, rng: random.Random, restore: bool) -> int:
        program = self.start(rng.choice([1, 2, 3]) if restore else 2, restore)
        assert program.stdout is not None
        next_kill = rng.randint(1, 4)
        for line in program.stdout:
            self.log.append(line.strip())
            next_kill -= line.startswith("epoch")
            if next_kill == 0 and self.kills > 0:
                time.sleep(rng.uniform(0, 0.4))  # anywhere in what follows
                self._kill(rng)
                next_kill = rng.randint(1, 4)
        return program.wait()

    def start(self, parallelism: int, restore: bool) -> subprocess.Popen[str]:
        """Start the program; what it says comes on its standard output."""
        command = [sys.executable, kill_program.__file__, str(self.directory), "--master", self.master]
        command += ["--parallelism", str(parallelism), *(["--restore"] if restore else [])]
        self.log.append(f"run {'restored ' if restore else ''}at parallelism {parallelism}")
        env = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            **os.environ,
            MARK: self.mark,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])
            ),
        }
        with open(self.directory / "stderr.txt", "ab") as stderr:
            return subprocess.Popen(
                self.launch(command), stdout=subprocess.PIPE, stderr=stderr, text=True, env=env
            )

    def _kill(self, rng: random.Random) -> None:
        kind = rng.choice(self.kinds)
        victims = [pid for pid, command in marked(self.mark).items() if VICTIMS[kind] in command]
        if kind == "driver":
            victims = [pid for pid in victims if "SparkSubmit" not in marked(self.mark).get(pid, "")]
        if not victims:
            return
        victim = rng.choice(sorted(victims))
        self.log.append(f"kill -9 {kind} {victim}")
        self.kills -= 1
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            return
