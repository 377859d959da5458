"""Processes that are stopped and go on, again and again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress

import psutil


class Slower:
    """Stops one process after the other for a moment, as a machine that is busy with other things does."""

    def __init__(self, rng: random.Random, processes: Callable[[], list[psutil.Process]]) -> None:
        self._rng = rng
        self._processes = processes
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: Who is frozen stays so. The lock keeps the two from crossing.
        self.frozen: set[psutil.Process] = set()
        self.lock = threading.Lock()
        self.stops = 0

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self._ends.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        """Look every few stops who there is: that takes a while."""
        while not self._ends.is_set():
            able = [process for process in self._processes() if process not in self.frozen]
            for process in self._rng.choices(able, k=5) if able else [None]:
                if self._ends.wait(self._rng.uniform(0, 0.2)):
                    return
                if process is not None and process not in self.frozen:
                    self._stop(process)

    def _stop(self, process: psutil.Process) -> None:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
            self.stops += 1
            self._ends.wait(self._rng.uniform(0.02, 0.4))
            with self.lock:
                if process not in self.frozen:
                    process.resume()
