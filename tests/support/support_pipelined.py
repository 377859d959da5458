"""The pipelined engine without Spark: its source tasks are threads of this process, its slots are real."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from support_job import Hook, LocalRunner

from pyflinkstate.errors import PyFlinkStateError, SparkJobError
from pyflinkstate.runtime.engine import EpochEnded, EpochRequest, SlotsRequest, Task
from pyflinkstate.runtime.pipelined.runner import PipelinedRunner
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.tasks import StartSlotsTask


class LocalTasks:
    """Does what ``SparkRunner`` does for the engine: it starts slots, and runs tasks."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.starts: Callable[[SlotsRequest], None] = self.start_each

    def start_each(self, request: SlotsRequest) -> None:
        """Start the slots of a request, one after the other."""
        for number, slot in enumerate(request.slots):
            list(StartSlotsTask(request.link)(number, [slot]))

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        """See ``SparkRunner``."""
        self._begin([lambda: self.starts(request)], done)

    def start_tasks(
        self, task: Task, number: int, description: str, done: Callable[[EpochEnded], None]
    ) -> None:
        """See ``SparkRunner``."""
        self._begin([lambda n=n: list(task(n, [])) for n in range(number)], done)  # type: ignore[misc]

    def _begin(self, works: list[Callable[[], object]], done: Callable[[EpochEnded], None]) -> None:
        errors: list[PyFlinkStateError] = []

        def run(work: Callable[[], object]) -> None:
            try:
                work()
            except PyFlinkStateError as error:
                errors.append(error)

        tasks = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]

        def wait() -> None:
            for thread in tasks:
                thread.join()
            done(EpochEnded(None if errors else [], errors[0] if errors else None))

        self._threads = [*tasks, threading.Thread(target=wait, daemon=True)]
        for thread in self._threads:
            thread.start()

    def await_end(self, timeout_s: float) -> bool:
        """See ``SparkRunner``."""
        for thread in self._threads:
            thread.join(timeout_s)
        return not any(thread.is_alive() for thread in self._threads)

    def lost(self) -> PyFlinkStateError | None:
        """See ``SparkRunner``."""
        return None if any(t.is_alive() for t in self._threads) else SparkJobError("its threads have ended")

    def gone(self, at_once: bool = False) -> PyFlinkStateError | None:
        """See ``SparkRunner``."""
        return None

    def cancel(self) -> None:
        """See ``SparkRunner``: what does not end by itself goes on."""

    def close(self) -> None:
        """See ``SparkRunner``."""


class LocalPipelinedRunner(PipelinedRunner):
    """The engine, with the hooks of :class:`LocalRunner`; ``before`` and ``after`` see each request."""

    def __init__(self, tasks: int = 2) -> None:
        self.local: Any = LocalTasks()
        super().__init__(self.local, Endpoint(), tasks)
        self.requests: list[EpochRequest] = []
        self.started: list[SlotsRequest] = []
        self.cancelled = 0
        self.before: Hook = lambda request: None
        self.after: Hook = lambda request: None

    def start(self, request: EpochRequest, done: Callable[[EpochEnded], None]) -> None:
        self.requests.append(request)

        def run() -> None:
            try:
                self.before(request)
            except PyFlinkStateError as error:
                done(EpochEnded(None, error))
                return
            PipelinedRunner.start(self, request, ended)

        def ended(event: EpochEnded) -> None:
            try:
                self.after(request)
            except PyFlinkStateError as error:
                event = EpochEnded(None, error)
            done(event)

        run()

    def start_slots(self, request: SlotsRequest, done: Callable[[EpochEnded], None]) -> None:
        self.started.append(request)
        super().start_slots(request, done)

    def cancel(self) -> None:
        self.cancelled += 1
        super().cancel()


__all__ = ["LocalPipelinedRunner", "LocalRunner", "LocalTasks"]
