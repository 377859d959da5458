"""The last task of a stage, as it is sent to a Python worker and runs there.

Where a worker has another version of this package, the task fails at once, and says why. Otherwise it would
fail somewhere in the middle, or not at all.

At the end of a task, a worker keeps what it has loaded out of its garbage collections: PySpark's daemon runs
a full collection after each task, before the worker can take the next one. With the modules that a task needs
that takes tens of milliseconds, as long as all else that a small epoch does in a worker, and the second stage
of the epoch waits for the collection after the first one.

A task that has failed has told the driver, which cancels the epoch. So it waits for that instead of raising
its error: Spark logs an error of a task twice, with the frames of the JVM, and the end of a cancelled task in
one line.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterable, Iterator

import attrs
from pyspark import TaskContext

from pyflinkstate.api import Record, Reduced
from pyflinkstate.errors import PackageMismatchError, PyFlinkStateError
from pyflinkstate.runtime.engine import Task
from pyflinkstate.version import VERSION

#: Number of modules that were loaded when the objects of this process were frozen; 0 if they were not.
_frozen_modules = 0
#: The property of Spark jobs whose failed tasks are not ended by the driver, as the epoch does them again.
IS_AHEAD = "pyflinkstate.is_ahead"
#: How long a task that has failed waits for its end, and the one that has waited last.
_END_TIMEOUT_S = 5
_waited: int | None = None


@attrs.frozen
class WorkerTask:
    """The last task of a stage, where it was sent."""

    task: Task

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        try:
            yield from self.task(partition, items)
        except PyFlinkStateError:  # the driver was told of it
            await_end()
            raise
        freeze_what_is_loaded()


def await_end() -> None:
    """Wait, once in a task, until Spark ends this process because the driver has cancelled the epoch."""
    global _waited
    context = TaskContext.get()
    if context is None or context.getLocalProperty(IS_AHEAD) or context.taskAttemptId() == _waited:
        return
    _waited = context.taskAttemptId()
    time.sleep(_END_TIMEOUT_S)


def freeze_what_is_loaded() -> None:
    """Freeze all objects if modules were loaded since the last time.

    What is frozen is still freed when nothing refers to it, only not as a part of a cycle. So this is done
    once for each set of modules, and not after each task.
    """
    global _frozen_modules
    if len(sys.modules) > _frozen_modules:
        gc.collect()
        gc.freeze()
        _frozen_modules = len(sys.modules)


@attrs.frozen
class OfThisVersion:
    """A task whose pickle can only be loaded by the same version of this package; loaded, it is the task."""

    task: Task

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        return self.task(partition, items)

    def __reduce__(self) -> Reduced:
        return _loaded, (_Version(), self.task)  # what comes first in a pickle is loaded first


class _Version:
    def __reduce__(self) -> Reduced:
        return _checked, (VERSION,)


def _checked(version: str) -> str:
    if version != VERSION:
        raise PackageMismatchError(
            f"this worker has pyflinkstate {VERSION}, and the program has {version}: install the same "
            f"version on driver and executors",
            version=VERSION,
        )
    return version


def _loaded(_version: str, task: Task) -> Task:
    return task
