"""Keeps what a Python worker has loaded out of its garbage collections.

PySpark's daemon runs a full collection after each task, before the worker can take the next one. With the
modules that a task needs that takes tens of milliseconds, as long as all else that a small epoch does in a
worker, and the second stage of the epoch waits for the collection after the first one.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Iterator

import attrs

from pyflinkstate.api.values import Record
from pyflinkstate.runtime.engine import Task

#: How many modules were loaded when the objects of this process were frozen; 0 if they were not.
_frozen_modules = 0


@attrs.frozen
class WorkerTask:
    """The last task of a stage, where it was sent."""

    task: Task

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        yield from self.task(partition, items)
        freeze_what_is_loaded()


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
