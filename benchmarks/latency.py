"""Latency at a steady rate: a count per key, from the time at which a record is due to the sink.

    python benchmarks/latency.py [--json] [--engine stages|pipelined] [--rate N] [--high-rate N] [--keys N]
        [--seconds N] [--warm-up N] [--checkpoint-ms N] [--peers] [--environments DIR]

A source makes ``--rate`` records a second in two subtasks. They are counted by key in a ``ValueState`` and
reach a sink, both with parallelism 2. Measured are those of ``--seconds`` seconds, which begin ``--warm-up``
seconds after the first record has reached the sink. Each run has processes of its own, and the programs in
``paced/`` say what each engine runs.

Latency begins when a record is *due* by the schedule, not when the engine takes it. If an engine stalls for a
second, all records due in that second show it, as they would if their users waited (no *coordinated
omission*). After a run, the log must have every record and every count of a key once.

* ``latency_p50_ms``, ``latency_p99_ms``, ``latency_max_ms``: until the sink's writer has the record, without
  checkpoints.
* ``latency_p99_at_50k_ms``: the same at ``--high-rate`` records a second. Left out if that is 0.
* ``visible_p50_ms``, ``visible_p99_ms``: until the record is in a file that readers can see. Exactly once:
  ``FileSink``, with an incremental checkpoint every ``--checkpoint-ms`` milliseconds. The time is that of the
  rename that publishes the epoch (``st_ctime``), rounded up by the resolution of the kernel's file times.
* ``<peer>_latency_p50_ms`` and so on: with ``--peers``, the first three figures for each of them.
* ``engines``, ``machine``: the versions, and the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import numpy.typing as npt
import peers
from engines import owned
from paced import pace

HERE = Path(__file__).parent
PROGRAMS = HERE / "paced"

#: Rows of ``pace.COLUMNS``.
Log = npt.NDArray[np.int64]
#: One for each record, in ms.
Latencies = npt.NDArray[np.float64]

PEERS = {
    name: attrs.evolve(peers.ENGINE_BY_NAME[name], program=program)
    for name, program in (
        ("transform_with_state_batches", "run_transform_with_state.py"),
        ("pyflink_thread", "run_pyflink.py"),
        ("bytewax", "run_bytewax.py"),
    )
}


class BadLogError(Exception):
    """Records are missing, came twice, or were counted wrongly."""


# --- runs ----------------------------------------------------------------------------------------------


@attrs.frozen
class Runs:
    """Runs programs.

    Attributes:
        keys: the number of keys.
        warm_up_s: see :class:`pace.Pace`.
        seconds: duration of the measurement.
        environments: the folder of the peers' environments.
        engines: filled with the names and versions of the engines.
    """

    keys: int
    warm_up_s: int
    seconds: int
    environments: Path
    engines: dict[str, str] = attrs.Factory(dict)

    def waited_ms(self, name: str, engine: peers.Engine, rate: int) -> Latencies:
        """Run a program; return the latency of each measured record in ms."""
        with tempfile.TemporaryDirectory() as folder:
            run = pace.Pace(Path(folder), rate, self.keys, self.warm_up_s, self.seconds)
            self._run(name, engine, run)
            self.engines[name] = (run.folder / pace.ENGINE).read_text()
            return latencies_of(arrived(run.folder), run, name)

    def _run(self, name: str, engine: peers.Engine, run: pace.Pace) -> None:
        numbers = (getattr(run, field) for field in pace.NUMBERS)
        command = [engine.python(self.environments), PROGRAMS / engine.program, run.folder, *numbers]
        paths = os.pathsep.join(map(str, (PROGRAMS, HERE / "engines")))  # for the workers
        environment = os.environ | engine.settings | {"PYTHONPATH": paths}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
        ran = owned.run(
            [*map(str, command)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        if ran.returncode:
            raise SystemExit(f"{name}: exit {ran.returncode}\n{ran.stdout[-4000:]}")


# --- logs ----------------------------------------------------------------------------------------------


def arrived(folder: Path) -> Log:
    """Return the rows of all logs of a run, in the order of the records' numbers."""
    width = len(pace.COLUMNS)
    logs = [np.fromfile(log, np.int64) for log in folder.glob(pace.LOGS)]
    rows = np.concatenate([log[: len(log) // width * width].reshape(-1, width) for log in logs])
    return rows[np.argsort(rows[:, 0])]


def latencies_of(log: Log, run: pace.Pace, name: str) -> Latencies:
    """Return the latencies of the measured records in ms.

    Raises:
        BadLogError: up to the last one that is measured, a record is missing or came twice, or two records
            of a key have the same count.
    """
    measured = run.measured([*map(int, log[np.argmin(log[:, 3])])])
    log = log[log[:, 0] < measured.stop]
    numbers, counts, due_ns, arrived_ns = log.T
    if not np.array_equal(numbers, np.arange(measured.stop)):
        raise BadLogError(
            f"{name}: {len(numbers)} records arrived, {len(np.unique(numbers))} of them "
            f"different, in place of {measured.stop}"
        )
    of_keys = np.stack([run.key_of(numbers), counts])[:, counts > 0]
    right = np.unique(of_keys, axis=1).shape[1]
    if right < measured.stop:
        raise BadLogError(f"{name}: {measured.stop - right} of {measured.stop} counts are wrong")
    waited_ms: Latencies = (arrived_ns - due_ns)[measured.start :] / 1e6
    return waited_ms


def quantile(waited_ms: Latencies, share: float) -> float:
    """Return the latency that this share of the records does not exceed."""
    return round(float(np.quantile(waited_ms, share, method="higher")), 2)


# --- figures -------------------------------------------------------------------------------------------


def latencies(waited_ms: Latencies, prefix: str = "") -> dict[str, float]:
    """Return the three figures of a run."""
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {f"{prefix}latency_{key}_ms": quantile(waited_ms, share) for key, share in shares.items()}


def main(args: argparse.Namespace) -> None:
    runs = Runs(args.keys, args.warm_up, args.seconds, args.environments)
    figures: dict[str, Any] = {"machine": peers.machine(), "engines": runs.engines}

    def add(found: dict[str, float]) -> None:
        figures.update(found)
        print(", ".join(f"{key} {value}" for key, value in found.items()), file=sys.stderr, flush=True)

    settings = {"PACED_ENGINE": args.engine.upper()}
    ours = peers.Engine("run_pyflinkstate.py", settings=settings)
    with_files = attrs.evolve(ours, settings=settings | {"PACED_CHECKPOINT_MS": str(args.checkpoint_ms)})
    add(latencies(runs.waited_ms(peers.OURS, ours, args.rate)))
    visible_ms = runs.waited_ms(peers.OURS, with_files, args.rate)
    add({f"visible_p{share}_ms": quantile(visible_ms, share / 100) for share in (50, 99)})
    if args.high_rate:
        waited_ms = runs.waited_ms(peers.OURS, ours, args.high_rate)
        add({"latency_p99_at_50k_ms": quantile(waited_ms, 0.99)})
    for name, engine in PEERS.items() if args.peers else ():
        add(latencies(runs.waited_ms(name, engine, args.rate), f"{name}_"))
    if args.json:
        print(json.dumps(figures))


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--engine", choices=["stages", "pipelined"], default="pipelined", type=str.lower)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--high-rate", type=int, default=50_000)
    parser.add_argument("--keys", type=int, default=50_000)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--checkpoint-ms", type=int, default=100)
    parser.add_argument("--peers", action="store_true")
    parser.add_argument("--no-peers", action="store_false", dest="peers")
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "peers")
    return parser.parse_args()


if __name__ == "__main__":
    main(parsed())
