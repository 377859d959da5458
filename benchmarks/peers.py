"""The same work and answer by this library, PyFlink, Spark's transformWithState, bytewax, and plain dicts.

    python benchmarks/peers.py [--json] [--rounds N] [--records N] [--environments DIR]
                               [--workload NAME ...] [--engine NAME ...]

``engines/workload.py`` says what is computed, and each program beside it is one engine, which runs in an
environment of its own: the peers' are made below ``build/peers`` at the first run (pip needs a registry).
First each engine's results are compared with what plain loops compute. Then the engines run in turns. A rate
is that of the difference between two sizes, so that the start of an engine does not count; a slow engine gets
fewer records. The figures are medians.

* ``<workload>_<engine>_records_per_s``
* ``<workload>_times_<engine>``: our rate over that of the engine, each of the same round.
* ``engines``, ``machine``: the versions, and what they ran on.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
from engines import owned
from engines.workload import WORKLOADS, Outcome, expected

HERE = Path(__file__).parent
ENGINES = HERE / "engines"

OURS = "pyflinkstate"
#: A little more than two minutes of event time, so that keys come back.
CHECKED_RECORDS = 125_000
#: A count has a result for each record, and PyFlink hands each to Python by a call of its own.
CHECKED_COUNTS = 25_000
#: Work on large state has so many times the records of the others, or it would not be large.
LARGE_TIMES = 5


@attrs.frozen
class Engine:
    """One engine.

    Attributes:
        program: the file in ``engines/``.
        workloads: what it has means for.
        share: how many records it gets, as a share of what ours gets.
        count_share: the same for a count per key, which some do much faster than all else.
        packages: what its environment has; none for the environment of this program.
        settings: environment variables.
    """

    program: str
    workloads: tuple[str, ...] = WORKLOADS
    share: float = 1.0
    count_share: float | None = None
    packages: tuple[str, ...] = ()
    settings: dict[str, str] = attrs.Factory(dict)

    def records_of(self, workload: str, ours: int) -> int:
        """Return how many records it gets where ours gets so many."""
        share = self.share
        if workload == "keyed_count" and self.count_share is not None:
            share = self.count_share
        return int(ours * share * (LARGE_TIMES if workload == "large_state" else 1))

    def python(self, environments: Path) -> Path:
        """Return the Python of the engine's environment, which is made if it is not there."""
        if not self.packages:
            return Path(sys.executable)
        folder = environments / Path(self.program).stem.removeprefix("run_")
        python = folder / "bin" / "python"
        if not (folder / "ready").exists():
            print(f"installing {', '.join(self.packages)} into {folder}", file=sys.stderr)
            venv.create(folder, clear=True, with_pip=True)
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            subprocess.run([*install, *self.packages], check=True)
            (folder / "ready").touch()
        return python


PYFLINK = ("apache-flink==2.3.*", "setuptools<81")  # it imports pkg_resources
ENGINE_BY_NAME = {
    OURS: Engine("run_pyflinkstate.py"),
    "dict": Engine("run_plain_dict.py", ("keyed_count", "timers", "tumbling", "session")),
    "bytewax": Engine(
        "run_bytewax.py", ("keyed_count", "tumbling", "session"), 0.1, 1.0, ("bytewax==0.21.*",)
    ),
    "pyflink_process": Engine(
        "run_pyflink.py", share=0.02, packages=PYFLINK, settings={"FLINK_PYTHON_MODE": "process"}
    ),
    "pyflink_thread": Engine(
        "run_pyflink.py", share=0.05, packages=PYFLINK, settings={"FLINK_PYTHON_MODE": "thread"}
    ),
    "transform_with_state": Engine(
        "run_transform_with_state.py", ("keyed_count", "timers", "large_state"), 0.05, 0.3
    ),
    # Results about every two seconds, instead of all at the end.
    "transform_with_state_batches": Engine(
        "run_transform_with_state.py", ("keyed_count",), 0.03, settings={"TWS_BATCH_RECORDS": "20000"}
    ),
}


def outcome_of(name: str, workload: str, records: int, environments: Path, check: bool = False) -> Outcome:
    """Run an engine's program; what it prints is shown if it fails."""
    engine = ENGINE_BY_NAME[name]
    command = [engine.python(environments), ENGINES / engine.program, workload, str(records)]
    environment = os.environ | engine.settings | {"PYTHONPATH": str(ENGINES)}  # for the workers
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
    ran = owned.run(
        [*map(str, command), *(["--check"] if check else [])],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if ran.returncode:
        raise SystemExit(
            f"{name}, {workload}, {records} records: exit {ran.returncode}\n{ran.stdout[-4000:]}"
        )
    return Outcome(**json.loads(ran.stdout.splitlines()[-1]))


def check_answers(workload: str, names: list[str], environments: Path) -> dict[str, str]:
    """Compare each engine's results with plain loops; return the engines' names and versions."""
    records = CHECKED_COUNTS if workload in ("keyed_count", "large_state") else CHECKED_RECORDS
    wanted = expected(workload, records)
    versions = {}
    for name in names:
        outcome = outcome_of(name, workload, records, environments, check=True)
        if (outcome.digest, outcome.results) != wanted:
            raise SystemExit(f"{name}, {workload}: {outcome} came out instead of {wanted}")
        versions[name] = outcome.engine
    return versions


def rate_of(name: str, workload: str, records: int, environments: Path) -> float:
    """Return the records/s between a small and a large run."""
    count = ENGINE_BY_NAME[name].records_of(workload, records)
    small, large = (
        outcome_of(name, workload, size, environments).seconds for size in (count // 5, count // 5 + count)
    )
    return count / (large - small)


def measure(
    workload: str,
    names: list[str],
    rounds: int,
    records: int,
    environments: Path,
    tell: Callable[[str], None],
) -> dict[str, float]:
    """Run the engines in turns; return their rates and the ratios."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            rates[name].append(rate_of(name, workload, records, environments))
        tell(f"{workload}, round {number + 1}: " + ", ".join(f"{n} {r[-1]:,.0f}" for n, r in rates.items()))
    figures: dict[str, float] = {
        f"{workload}_{name}_records_per_s": round(statistics.median(seen)) for name, seen in rates.items()
    }
    for name in names:
        if name != OURS and OURS in rates:
            times = [ours / peer for ours, peer in zip(rates[OURS], rates[name], strict=True)]
            figures[f"{workload}_times_{name}"] = round(statistics.median(times), 2)
    return figures


def machine() -> str:
    """Return what the figures were seen on."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--workload", nargs="+", choices=WORKLOADS, default=WORKLOADS, metavar="NAME")
    parser.add_argument("--engine", nargs="+", choices=sorted(ENGINE_BY_NAME), metavar="NAME")
    parser.add_argument("--environments", type=Path, default=HERE.parent / "build" / "peers")
    args = parser.parse_args()

    def tell(line: str) -> None:
        print(line, file=sys.stderr if args.json else sys.stdout, flush=True)

    figures: dict[str, Any] = {"machine": machine(), "engines": {}}
    for workload in args.workload:
        names = [
            name
            for name, engine in ENGINE_BY_NAME.items()
            if workload in engine.workloads and (not args.engine or name in args.engine)
        ]
        figures["engines"] |= check_answers(workload, names, args.environments)
        tell(f"{workload}: {', '.join(names)} gave the right answer")
        figures |= measure(workload, names, args.rounds, args.records, args.environments, tell)
    print(json.dumps(figures) if args.json else "\n".join(f"{key}: {v}" for key, v in figures.items()))


if __name__ == "__main__":
    main()
