"""Read-modify-write on the heap state, against a plain dict in the same kind of loop.

    python benchmarks/state_map.py [--json] [--entries N] [--rounds N]

A million str keys with int values in 64 key groups. Every round visits all keys in random order; the key
of a visit equals the stored one and is another object, as the key of a record is. Rounds of all
contenders are interleaved; ratios are medians of the rounds' ratios.

    rmw_value_state_ratio   select the key, ``value()``, ``update()``, compiled / dict
    rmw_map_ratio           ``get`` and ``put`` of the bare map, compiled / dict
    rmw_map_pure_ratio      the same, interpreted / dict
    gc_full_ms              a full garbage collection with just the state alive
    bytes_per_entry         allocated for an entry beyond its key and value
"""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

from heap_state import (
    COUNT,
    KEY_GROUPS,
    arguments,
    fill,
    interpreted,
    make_keys,
    map_indexes,
    need_compiled,
    new_backend,
    report,
    shuffled_copies,
)

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap

Loop = Callable[[Sequence[str], Sequence[int]], None]


def dict_loop(keys: Sequence[str]) -> Loop:
    table = dict.fromkeys(keys, 0)

    def loop(visited: Sequence[str], indexes: Sequence[int]) -> None:
        for key, _ in zip(visited, indexes, strict=True):
            table[key] = table.get(key, 0) + 1

    return loop


def map_loop(keys: Sequence[str], indexes: Sequence[int], state_map: Any) -> Loop:
    maps = [state_map(None) for _ in range(KEY_GROUPS)]
    for key, index in zip(keys, indexes, strict=True):
        maps[index].put(key, 0)

    def loop(visited: Sequence[str], indexes: Sequence[int]) -> None:
        for key, index in zip(visited, indexes, strict=True):
            one = maps[index]
            one.put(key, (one.get(key) or 0) + 1)

    return loop


def value_state_loop(keys: Sequence[str], indexes: Sequence[int]) -> Loop:
    backend = new_backend()
    fill(backend, keys, indexes)
    state, select = backend.get_partitioned_state(COUNT), backend.key_context.select

    def loop(visited: Sequence[str], indexes: Sequence[int]) -> None:
        value, update = state.value, state.update
        for key, index in zip(visited, indexes, strict=True):
            select(key, index)
            update((value() or 0) + 1)

    return loop


def ratios(entries: int, rounds: int) -> dict[str, float]:
    """Return the three ratios."""
    keys = make_keys(entries)
    indexes = map_indexes(keys)
    pure = interpreted("pyflinkstate.backends.heap.copy_on_write_state_map").CopyOnWriteStateMap
    contenders = {
        "dict": dict_loop(keys),
        "rmw_value_state_ratio": value_state_loop(keys, indexes),
        "rmw_map_ratio": map_loop(keys, indexes, CopyOnWriteStateMap),
        "rmw_map_pure_ratio": map_loop(keys, indexes, pure),
    }
    gc.collect()
    gc.freeze()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        visited = shuffled_copies(keys, number)
        visited_indexes = map_indexes(visited)
        for key in visited:
            hash(key)  # who comes first shall not pay for all
        for name, loop in contenders.items():
            started = time.perf_counter()
            loop(visited, visited_indexes)
            seconds[name].append(time.perf_counter() - started)
    gc.unfreeze()
    return {
        name: round(statistics.median(map(float.__truediv__, times, seconds["dict"])), 3)
        for name, times in seconds.items()
        if name != "dict"
    }


def gc_full_ms(entries: int, rounds: int) -> float:
    """Return how long a full collection takes."""
    backend = new_backend()
    keys = make_keys(entries)
    fill(backend, keys, map_indexes(keys))
    del keys
    gc.collect()
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        gc.collect()
        times.append((time.perf_counter() - started) * 1000)
    assert backend.num_key_value_state_entries() == entries
    return round(statistics.median(times), 1)


def bytes_per_entry(entries: int) -> float:
    """Return what the state allocates while keys and values are there already."""
    keys = make_keys(entries)
    indexes, values = map_indexes(keys), list(range(entries))
    backend = new_backend()
    state, select = backend.get_partitioned_state(COUNT), backend.key_context.select
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for key, index, value in zip(keys, indexes, values, strict=True):
        select(key, index)
        state.update(value)
    allocated = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return round(allocated / entries, 1)


def main() -> None:
    options = arguments(__doc__ or "", 1_000_000)
    need_compiled()
    figures = {
        "gc_full_ms": gc_full_ms(options.entries, options.rounds),
        "bytes_per_entry": bytes_per_entry(options.entries),
        **ratios(options.entries, options.rounds),
    }
    report(figures, options.json)


if __name__ == "__main__":
    main()
