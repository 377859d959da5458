"""What mypyc compiles where the package is built with a C compiler; ``setup.py`` reads this.

Nothing is imported here: a build has none of the package's dependencies.
"""

from __future__ import annotations

import importlib

#: The modules on the way of every access to state, and of every value that is handed over.
COMPILED_MODULES = (
    "heap.copy_on_write_state_map",
    "heap.heap_state",
    "heap.key_context",
    "heap.map_state",
    "heap.nested_state_map",
    "heap.record_loop",
    "heap.state_map",
    "heap.states",
    "values.isolation",
    "values.list_iterator",
)


def is_compiled() -> bool:
    """Return whether the core runs compiled."""
    module = importlib.import_module("pyflinkstate.backends.heap.copy_on_write_state_map")
    return not str(module.__file__).endswith(".py")
