"""What the benchmarks of the heap backend share: the state, the keys, and the core in both forms."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.machinery
import importlib.util
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pyflinkstate
from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.key_groups import key_groups_of_strings
from pyflinkstate.backends.keys import KeyGroupRange

KEY_GROUPS = 64
COUNT = ValueStateDescriptor("count", Types.LONG())


def arguments(description: str, entries: int) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--entries", type=int, default=entries)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def report(figures: dict[str, Any], as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print(json.dumps(figures))
        return
    for name, value in figures.items():
        print(f"{name:24} {value:,}")


def need_compiled() -> None:
    """End with a message where the core is not compiled: the figures would mean something else."""
    if not pyflinkstate.compiled:
        sys.exit("the core is not compiled: pip install the package with a C compiler at hand, and no PURE")


def make_keys(count: int) -> list[str]:
    """Return ``count`` different keys."""
    return [f"user-{number:09d}" for number in range(count)]


def shuffled_copies(keys: Sequence[str], seed: int) -> list[str]:
    """Return equal keys in random order that are other objects, as the keys of records are."""
    copies = [key.encode().decode() for key in keys]
    random.Random(seed).shuffle(copies)
    return copies


def map_indexes(keys: Sequence[str]) -> list[int]:
    """Return the key group of each key."""
    return key_groups_of_strings(keys, KEY_GROUPS)


def new_backend() -> HeapKeyedStateBackend:
    """Return an empty backend of all key groups."""
    return HeapKeyedStateBackend(Types.STRING(), KeyGroupRange(0, KEY_GROUPS - 1), KEY_GROUPS)


def fill(backend: HeapKeyedStateBackend, keys: Sequence[str], indexes: Sequence[int]) -> None:
    """Put a value under each key, as an operator would."""
    state, select = backend.get_partitioned_state(COUNT), backend.key_context.select
    for value, (key, index) in enumerate(zip(keys, indexes, strict=True)):
        select(key, index)
        state.update(value)


class _SourceFinder:
    """Finds the interpreted form of modules that are there compiled as well."""

    @staticmethod
    def find_spec(name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        for folder in path or ():
            source = Path(folder) / f"{name.rpartition('.')[2]}.py"
            if name.startswith("pyflinkstate.") and source.exists():
                return importlib.util.spec_from_file_location(name, source)
        return None


@contextlib.contextmanager
def _without_the_package() -> Iterator[None]:
    """Forget the package's modules for a while."""
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "pyflinkstate"}
    for name in kept:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "pyflinkstate"]:
            del sys.modules[name]
        sys.modules.update(kept)


def interpreted(module: str) -> ModuleType:
    """Return a module of the package in its interpreted form, beside the compiled one."""
    with _without_the_package():
        sys.meta_path.insert(0, _SourceFinder)  # type: ignore[arg-type]
        try:
            return importlib.import_module(module)
        finally:
            sys.meta_path.remove(_SourceFinder)  # type: ignore[arg-type]
