"""Runs in Flink that several tests compare with: each is made once."""

from __future__ import annotations

import functools
from pathlib import Path

from flink_runs import Backend, Program, Run, run_in_flink
from interop_input import BEGIN_MS, CONTINUED_MS, generated


class Jobs:
    """The program on one input, stopped after the first half and continued with the second.

    Args:
        keys: how many keys the input has.
        folder: where the savepoints go.
    """

    def __init__(self, keys: int, folder: Path) -> None:
        self.keys = keys
        self.given = generated(keys)
        self._folder = folder
        self.stopped = functools.cache(self._stopped)
        self.continued = functools.cache(self._continued)

    def _stopped(self, program: Program) -> Run:
        """Return the run of the first half, which ends with a savepoint in the canonical format."""
        folder = self._folder / program
        return run_in_flink(program, self.given.first, savepoint_to=folder, clock_ms=BEGIN_MS)

    def _continued(self, program: Program, savepoint: Path, backend: Backend) -> Run:
        """Return the run of the second half from a savepoint, whoever wrote it."""
        return run_in_flink(
            program,
            self.given.second,
            restore_from=savepoint,
            backend=backend,
            clock_ms=CONTINUED_MS,
            first_written=self.given.due_timers,
        )
