"""What a Python worker has, asked where it runs; it is sent by value, as the worker may lack this package.

So nothing here refers to anything but Python itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class WorkerReport(NamedTuple):
    """The Python and the packages of one worker.

    Attributes:
        host: the name of its host.
        python: the path of its Python.
        version: the version of this package there; empty if it has none.
        place: the folder or the zip file that it would be imported from.
        missing: what this package needs and the worker lacks.
    """

    host: str
    python: str
    version: str
    place: str
    missing: tuple[str, ...]


def reported(_partition: int, _items: Iterable[int]) -> Iterator[tuple[str, str, str, str, tuple[str, ...]]]:
    """Yield the fields of the :class:`WorkerReport` of the worker that this runs in."""
    import importlib
    import importlib.util
    import os
    import socket
    import sys

    importlib.invalidate_caches()  # a package may have come since the last time
    needed = ("attrs", "cloudpickle", "numpy", "pyarrow")
    missing = tuple(name for name in needed if importlib.util.find_spec(name) is None)
    version = place = ""
    if importlib.util.find_spec("pyflinkstate") is not None:
        package = importlib.import_module("pyflinkstate")
        place = os.path.dirname(os.path.dirname(str(package.__file__)))
        version = str(package.__version__)
    yield socket.gethostname(), sys.executable, version, place, missing
