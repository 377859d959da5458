"""The modules that mypyc compiles if a C compiler is there at build time; ``setup.py`` reads this list.

This module imports nothing of the package, as none of its dependencies are installed during a build.
"""

from __future__ import annotations

import importlib

#: The modules that every access to state, and every value passed between operators, goes through.
COMPILED_MODULES = (
    "bound_state",
    "flink_format.cursor",
    "flink_format.entries",
    "flink_format.forms",
    "heap.copy_on_write_state_map",
    "heap.heap_state",
    "heap.map_state",
    "heap.record_loop",
    "heap.states",
    "heap.timer_queue",
    "heap.timer_service",
    "key_groups",
    "rocksdb.cold_bytes",
    "rocksdb.cold_entries",
    "rocksdb.entry_forms",
    "rocksdb.tiered_state_map",
    "rocksdb.tiered_timer_queue",
    "ttl.rules",
    "ttl.states",
    "values.isolation",
    "values.list_iterator",
    "values.nan",
    "wall_clock",
)

#: Modules outside of the backends through which every record of a window goes, from the package on.
COMPILED_ELSEWHERE = (
    "api.interval",
    "runtime.operators.windows.fast_windows",
)

#: All of them, from the package on.
ALL_COMPILED = (*(f"backends.{name}" for name in COMPILED_MODULES), *COMPILED_ELSEWHERE)


def is_compiled() -> bool:
    """Return whether the core runs compiled."""
    module = importlib.import_module("pyflinkstate.backends.heap.copy_on_write_state_map")
    return not str(module.__file__).endswith((".py", ".pyc"))  # byte code alone, from a zip file
