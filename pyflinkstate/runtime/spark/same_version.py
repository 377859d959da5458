"""Tasks that fail at once, and say why, where a worker has another version of this package.

Otherwise they would fail somewhere in the middle, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import attrs

from pyflinkstate.api.values import Record, Reduced
from pyflinkstate.errors import PackageMismatchError
from pyflinkstate.runtime.engine import Task
from pyflinkstate.version import VERSION


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
