"""Faults put into the package on purpose, one at a time: does the simulation of the runtime catch each?

    python tests/soak/soak_mutations.py [--engine PIPELINED] [--histories 400] [--only NAME]

For each mutation the package is copied, one line of the copy is changed, and histories of the simulation run
on the copy until one goes wrong. With ``--engine PIPELINED`` those are of jobs in tasks that stay, and the
faults are in what only such jobs use. A table tells which history that was. The program ends with 1 if a
mutation was not caught, or if a mutation no longer fits the package.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from checkout_copy import ROOT, copy_package
from mutations import PIPELINED_MUTATIONS, STAGES_MUTATIONS, Mutation

SIMULATION = ROOT / "tests" / "soak" / "soak_simulation.py"
#: The faults by the engine that runs the jobs.
MUTATIONS = {"STAGES": STAGES_MUTATIONS, "PIPELINED": PIPELINED_MUTATIONS}


def caught_at(mutation: Mutation, engine: str, histories: int) -> str | None:
    """Return which history went wrong with the fault in place; None if all went well."""
    with tempfile.TemporaryDirectory() as folder:
        mutation.apply(copy_package(Path(folder)))
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(
            [
                sys.executable,
                str(SIMULATION),
                "--engine",
                engine,
                "--first",
                "0",
                "--histories",
                str(histories),
            ],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    return next((line for line in done.stdout.splitlines() if "goes wrong" in line), "at the start")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", choices=MUTATIONS, default="STAGES", help="what runs the jobs")
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    missed = 0
    for mutation in MUTATIONS[args.engine]:
        if args.only in mutation.name:
            found = caught_at(mutation, args.engine, args.histories)
            missed += found is None
            print(f"{mutation.file:32} {mutation.name:60} {found or 'NOT CAUGHT'}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
