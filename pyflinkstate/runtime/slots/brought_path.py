"""The part of ``sys.path`` that a program's files and requirements are on, in a worker and in its slots.

Those folders come before all others, as they do in Flink. The packages that this package needs are imported
before: a module of the same name among the files must not replace one of them, or the slot would not start.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

#: Where a worker leaves the folders for the slots that it starts.
_VARIABLE = "PYFLINKSTATE_PATH"
#: The modules of other packages that this package imports, some of them only when they are used.
NEEDED = ("attrs", "cloudpickle", "numpy", "pyarrow")


def put_on_path(folders: Sequence[str]) -> None:
    """Put folders first on the path of this process, and of the slots that it starts."""
    if not folders or _brought() == [*folders]:
        return
    for name in NEEDED:
        import_module(name)
    sys.path[:] = [*folders, *(folder for folder in sys.path if folder not in folders)]
    os.environ[_VARIABLE] = os.pathsep.join(folders)


def path_without_brought() -> list[str]:
    """Return the path on which a slot finds this package and what it needs."""
    brought = _brought()
    return [folder for folder in sys.path if folder and folder not in brought]


def put_on_path_of_slot() -> None:
    """Put the folders that the worker has left first on the path of this slot, and of its own children."""
    folders = _brought()
    if folders:
        del os.environ[_VARIABLE]
        put_on_path(folders)
        os.environ["PYTHONPATH"] = os.pathsep.join([*folders, os.environ["PYTHONPATH"]])


def _brought() -> list[str]:
    return list(filter(None, os.environ.get(_VARIABLE, "").split(os.pathsep)))
