"""Faults put into the package on purpose, one at a time: does the simulation of the runtime catch each?

    python tests/soak/soak_mutations.py [--histories 400] [--only NAME]

For each mutation the package is copied, one line of the copy is changed, and histories of the simulation run
on the copy until one goes wrong. A table tells which history that was. The program ends with 1 if a mutation
was not caught, or if a mutation no longer fits the package.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import attrs
from checkout_copy import ROOT, copy_package

SIMULATION = ROOT / "tests" / "soak" / "soak_simulation.py"


@attrs.frozen
class Mutation:
    """One fault: ``old`` stands once in ``file`` and is replaced by ``new``."""

    name: str
    file: str
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Put the fault into a copy of the package; raises ``ValueError`` where it does not fit."""
        path = package / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.file}")
        path.write_text(text.replace(self.old, self.new))


MUTATIONS = (
    Mutation(
        "a checkpoint completes with an acknowledgement missing",
        "runtime/master/coordinator.py",
        "if pending.missing or pending.aligned_ms is None or",
        "if len(pending.missing) > 1 or pending.aligned_ms is None or",
    ),
    Mutation(
        "a checkpoint completes before its barrier is aligned",
        "runtime/master/coordinator.py",
        "if pending.missing or pending.aligned_ms is None or",
        "if pending.missing or",
    ),
    Mutation(
        "the newest checkpoints are subsumed",
        "runtime/master/coordinator.py",
        """surplus = self._completed[: -self._settings.num_retained]
        self._completed = self._completed[-self._settings.num_retained :]""",
        """surplus = self._completed[self._settings.num_retained :]
        self._completed = self._completed[: self._settings.num_retained]""",
    ),
    Mutation(
        "a savepoint completes without the commit of its companion",
        "runtime/master/coordinator.py",
        "if not is_alone and pending.epoch > self._committed_epoch:",
        "if False:",
    ),
    Mutation(
        "sinks are not rewound on a restart",
        "runtime/master/actions.py",
        "        sink.sink.rewind(epoch)",
        "        pass",
    ),
    Mutation(
        "slots restore after the take-over",
        "runtime/master/machine.py",
        "if claim.restores:",
        "if False:",
    ),
    Mutation(
        "a checkpoint has the position of the newest epoch",
        "runtime/master/checkpoints.py",
        "source_position=begun.epoch.step.end,",
        "source_position=max(self._begun.items())[1].epoch.step.end,",
    ),
    Mutation(
        "shared files that are still needed are deleted",
        "runtime/master/checkpoint_files.py",
        "return candidates - needed",
        "return candidates",
    ),
    Mutation(
        "a driver does not look for a newer run",
        "runtime/master/checkpoint_files.py",
        "self._successor = newest if newest != self.run else None",
        "self._successor = None",
    ),
    Mutation(
        "a checkpoint of a run that was superseded counts as the latest",
        "runtime/storage/runs.py",
        "return shared is None or epoch <= shared",
        "return True",
    ),
    Mutation(
        "a sink makes files of tasks visible that did not count",
        "runtime/sinks/file_sink.py",
        "for name in results:",
        "for name in self._area.names_in(pending):",
    ),
    Mutation(
        "a sink commits one epoch too many",
        "runtime/sinks/two_phase_files.py",
        "if number <= epoch:",
        "if number <= epoch + 1:",
    ),
    Mutation(
        "what was moved aside is not brought back",
        "runtime/sinks/two_phase_files.py",
        "self._area.bring_back(change, {epoch for epoch, _ in self._visible()}, self._bring_back)",
        "pass",
    ),
    Mutation(
        "a sink takes the folder from a newer run",
        "runtime/sinks/run_area.py",
        "if found is not None and found.is_newer_than(wanted):",
        "if False:",
    ),
    Mutation(
        "a checkpoint is deleted with _metadata last",
        "runtime/storage/checkpoints.py",
        """                file_system.delete_file(f"{folder}/{METADATA}")""",
        "                pass",
    ),
    Mutation(
        "files are renamed before they are flushed",
        "runtime/storage/file_systems.py",
        """        flush_file(file_system, unfinished)
        file_system.move(unfinished, path)""",
        "        file_system.move(unfinished, path)",
    ),
    Mutation(
        "the folder of a completed checkpoint is not flushed",
        "runtime/storage/checkpoints.py",
        """METADATA}", data)
            flush_folder(file_system, folder)""",
        'METADATA}", data)',
    ),
)


def caught_at(mutation: Mutation, histories: int) -> str | None:
    """Return which history went wrong with the fault in place; None if all went well."""
    with tempfile.TemporaryDirectory() as folder:
        mutation.apply(copy_package(Path(folder)))
        environment = {**os.environ, "PYTHONPATH": folder}
        done = subprocess.run(
            [sys.executable, str(SIMULATION), "--first", "0", "--histories", str(histories)],
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
    parser.add_argument("--histories", type=int, default=400)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    missed = 0
    for mutation in MUTATIONS:
        if args.only in mutation.name:
            found = caught_at(mutation, args.histories)
            missed += found is None
            print(f"{mutation.file:32} {mutation.name:60} {found or 'NOT CAUGHT'}", flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
