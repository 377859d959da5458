"""The heap backend: keyed state in copy-on-write maps, snapshots without stopping."""

from __future__ import annotations

import importlib

#: What mypyc compiles where the package is built with a C compiler; ``setup.py`` reads this.
COMPILED_MODULES = (
    "copy_on_write_state_map",
    "heap_state",
    "isolation",
    "key_context",
    "list_iterator",
    "map_state",
    "nested_state_map",
    "record_loop",
    "state_map",
    "states",
)


def is_compiled() -> bool:
    """Return whether the core runs compiled."""
    module = importlib.import_module(f"{__name__}.copy_on_write_state_map")
    return not str(module.__file__).endswith(".py")
