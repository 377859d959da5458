"""Runs the program of these tests in real Flink, from a savepoint and to one.

``make interop`` makes the environment (``make_environment.sh``) and names it in ``FLINK_ENVIRONMENT``.
Each run is a process of its own with a local cluster, whose clock the test sets.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Program = Literal["java", "process", "thread"]
Backend = Literal["hashmap", "rocksdb"]

HERE = Path(__file__).parent
MAX_PARALLELISM = 128
#: The slowest program takes less, on a machine that does other work too.
TIMEOUT_S = 900
JAVA_OPTIONS = [
    *(f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("util", "lang", "time")),
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmx3g",
]


@dataclass(frozen=True)
class Run:
    """What a run in Flink has given."""

    #: The lines written, of all subtasks one after another.
    lines: list[str]
    #: The folder of the savepoint with which the run ended; None if it went on to the end of its input.
    savepoint: Path | None

    def by_key(self) -> dict[str, list[str]]:
        """Return the lines of each name and key, in their order: the order of others is not defined."""
        found: dict[str, list[str]] = {}
        for line in self.lines:
            name, key, _ = line.split(",", 2)
            found.setdefault(f"{name},{key}", []).append(line)
        return found


def run_in_flink(
    program: Program,
    lines: Iterable[str],
    *,
    restore_from: Path | None = None,
    savepoint_to: Path | None = None,
    backend: Backend = "hashmap",
    parallelism: int = 2,
    savepoint_format: Literal["CANONICAL", "NATIVE"] = "CANONICAL",
    clock_ms: int,
    first_written: int = 0,
) -> Run:
    """Run the program in Flink 2.3 and return what it has written.

    Args:
        program: in Java, or in PyFlink's process or thread mode.
        lines: the input, see ``flink/Lines.java``; at least one.
        restore_from: the savepoint to begin from.
        savepoint_to: a folder; the job is stopped with a savepoint there after the last line. If it is None,
            the job goes on to the end of its input, at which all windows and timers of event time fire.
        backend: where Flink keeps the state.
        parallelism: of all but the source.
        savepoint_format: of the savepoint to write.
        clock_ms: the time on Flink's clock when the run begins.
        first_written: how many lines are written before the first is read: what timers of processing time
            write that were due when the job was restored.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # The source has the name of its file in its uid: it does not go on with the position in another file.
        given = folder / f"lines-{time.time_ns()}"
        given.write_text("".join(f"{line}\n" for line in lines))
        if savepoint_to is not None:
            given.with_name(f"{given.name}.held").touch()
        given.with_name(f"{given.name}.first").write_text(f"{first_written}\n")
        output = folder / "output"
        output.mkdir()
        settings = {
            "parallelism.default": str(parallelism),
            "pipeline.max-parallelism": str(MAX_PARALLELISM),
            "state.backend.type": backend,
            "execution.checkpointing.dir": f"file://{folder}/checkpoints",
            "taskmanager.memory.network.min": "64mb",
        }
        if restore_from is not None:
            settings["execution.state-recovery.path"] = f"file://{restore_from}"
            settings["execution.state-recovery.ignore-unclaimed-state"] = "true"
        where = "-" if savepoint_to is None else f"file://{savepoint_to}"
        arguments = [str(given), str(output), where, savepoint_format]
        printed = _run(
            program, [*arguments, *(f"{key}={value}" for key, value in settings.items())], folder, clock_ms
        )
        written = [line for file in sorted(output.iterdir()) for line in file.read_text().splitlines()]
    savepoint = Path(printed.removeprefix("file:")) if savepoint_to is not None else None
    return Run(written, savepoint)


def _run(program: Program, arguments: Sequence[str], folder: Path, clock_ms: int) -> str:
    """Run the program in a process of its own and return the last line that it prints."""
    flink = Path(os.environ["FLINK_ENVIRONMENT"])
    environment = {
        **os.environ,
        "LD_PRELOAD": str(flink / "clock.so"),
        "FLINK_CLOCK_MS": f"{clock_ms - time.time_ns() // 1_000_000:+d}",
        "FLINK_JARS": f"file://{flink / 'interop.jar'}",
    }
    if program == "java":
        (jars,) = (flink / "pyflink" / "lib").glob("python*/site-packages/pyflink/lib")
        command = [
            "java",
            *JAVA_OPTIONS,
            "-cp",
            f"{jars}/*:{flink / 'interop.jar'}",
            "interop.Program",
            *arguments,
        ]
    else:
        source = (HERE / "interop_program.py").read_text()
        (folder / "interop_program.py").write_text(source.replace("pyflinkstate", "pyflink"))
        (folder / "run_pyflink.py").write_text((HERE / "flink" / "run_pyflink.py").read_text())
        python = flink / "pyflink" / "bin" / "python"
        command = [str(python), str(folder / "run_pyflink.py"), program, *arguments]
    job = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = job.communicate(timeout=TIMEOUT_S)
    finally:
        if job.poll() is None:  # with the JVM and the workers of PyFlink
            os.killpg(job.pid, signal.SIGKILL)
            job.communicate()
    assert job.returncode == 0, f"Flink has failed:\n{out[-2000:]}\n{err[-8000:]}"
    return (out.splitlines() or [""])[-1]
