"""How much memory an entry of state takes, by the types of its key and its value: docs/operating.md.

    python benchmarks/entry_sizes.py [--json | --table] [--entries N]

Each case fills the heap state backend in a process of its own, as an operator would: every key and value is a
new object, as those of records are. A figure is the growth of the process in bytes (its resident memory)
divided by the number of entries, so it has all that Python's allocator adds. ``--table`` prints the table of
the page.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Hashable
from typing import Any

import attrs

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap.backend import HeapKeyedStateBackend
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.common import Row
from pyflinkstate.common.typeinfo import TypeInformation
from pyflinkstate.datastream.window import TumblingEventTimeWindows
from pyflinkstate.runtime.slots.memory import resident_bytes
from pyflinkstate.testing import harness_of

KEY_GROUPS = 128
STRING, LONG, DOUBLE = Types.STRING(), Types.LONG(), Types.DOUBLE()
#: Python keeps one object of each small number, so values begin beyond those.
FIRST = 1_000_000
#: Filled before the measurement, so that what Python loads and caches is not counted.
WARM_UP = 1_000

Fill = Callable[[int, int], None]


def text_key(number: int) -> str:
    """Return a key of 14 letters."""
    return f"user-{number:09d}"


def backend_of(key_type: TypeInformation) -> HeapKeyedStateBackend:
    """Return an empty backend with all key groups."""
    return HeapKeyedStateBackend(key_type, KeyGroupRange(0, KEY_GROUPS - 1), KEY_GROUPS)


def values_of(
    descriptor: ValueStateDescriptor,
    make: Callable[[int], Any],
    key_type: TypeInformation = STRING,
    key: Callable[[int], Hashable] = text_key,
) -> Fill:
    """Return what puts a value under each key."""
    backend = backend_of(key_type)
    state = backend.get_partitioned_state(descriptor)

    def fill(first: int, end: int) -> None:
        for number in range(first, end):
            backend.set_current_key(key(number))
            state.update(make(number))

    return fill


def value(type_info: TypeInformation, make: Callable[[int], Any], **key: Any) -> Fill:
    """Return what fills a ``ValueState`` of a type."""
    return values_of(ValueStateDescriptor("value", type_info), make, **key)


def untyped(make: Callable[[int], Any]) -> Fill:
    """Return what fills a ``ValueState`` without a type."""
    return value(Types.PICKLED_BYTE_ARRAY(), make)


def expiring() -> Fill:
    """Return what fills a ``ValueState`` with time to live."""
    descriptor = ValueStateDescriptor("value", LONG)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
    return values_of(descriptor, lambda n: n)


def lists() -> Fill:
    """Return what fills a ``ListState``: ten numbers for each key."""
    backend = backend_of(STRING)
    state = backend.get_partitioned_state(ListStateDescriptor("list", LONG))

    def fill(first: int, end: int) -> None:
        for number in range(first, end):
            backend.set_current_key(text_key(number))
            for position in range(10):
                state.add(number * 10 + position)

    return fill


def maps() -> Fill:
    """Return what fills a ``MapState``: ten texts with numbers for each key."""
    backend = backend_of(STRING)
    state = backend.get_partitioned_state(MapStateDescriptor("map", STRING, LONG))

    def fill(first: int, end: int) -> None:
        for number in range(first, end):
            backend.set_current_key(text_key(number))
            for position in range(10):
                state.put(f"item-{position:09d}", number * 10 + position)

    return fill


def timers() -> Fill:
    """Return what registers one timer for each key, each with a time of its own."""
    backend = backend_of(STRING)
    queue = backend.create_timer_queue("event_user-timers")

    def fill(first: int, end: int) -> None:
        for number in range(first, end):
            backend.set_current_key(text_key(number))
            context = backend.key_context
            queue.register(number, context.key, (), context.map_index)

    return fill


def windows() -> Fill:
    """Return what puts a record into a window of each key, which is reduced to one tuple."""
    minute = TumblingEventTimeWindows.of(Time.minutes(1))

    def build(stream: Any) -> Any:
        keyed = stream.key_by(lambda record: record[0], key_type=STRING)
        return keyed.window(minute).reduce(lambda a, b: (a[0], a[1] + b[1]))

    harness = harness_of(build)

    def fill(first: int, end: int) -> None:
        for number in range(first, end):
            harness.process_element((text_key(number), number), 1_000)

    return fill


class Plain:
    """An object of a class without slots."""

    def __init__(self, number: int) -> None:
        self.count, self.total, self.last = number, number / 2, number + 1


NAMES = ["count", "total", "last"]
ROW = Types.ROW_NAMED(NAMES, [LONG, DOUBLE, LONG])


@attrs.frozen
class Case:
    """One row of the table.

    Attributes:
        key: its type, as the page shows it.
        value: the same of its value.
        make: returns what fills the state with the entries from one number to another.
    """

    key: str
    value: str
    make: Callable[[], Fill]


_TEXT = "`STRING` of 14 letters"
CASES = [
    Case("`LONG`", "`LONG`", lambda: value(LONG, lambda n: n, key_type=LONG, key=lambda n: n * 7)),
    Case(_TEXT, "`BOOLEAN`, or a `LONG` from -5 to 256", lambda: value(LONG, lambda n: n % 256)),
    Case(_TEXT, "`LONG`", lambda: value(LONG, lambda n: n)),
    Case(_TEXT, "`LONG` with time to live", expiring),
    Case(_TEXT, "`DOUBLE`", lambda: value(DOUBLE, lambda n: n / 3)),
    Case(
        "`TUPLE([STRING, LONG])`",
        "`LONG`",
        lambda: value(
            LONG, lambda n: n, key_type=Types.TUPLE([STRING, LONG]), key=lambda n: (text_key(n), n * 7)
        ),
    ),
    Case(_TEXT, "`STRING` of 14 letters", lambda: value(STRING, lambda n: f"text-{n:09d}")),
    Case(_TEXT, "`STRING` of 100 letters", lambda: value(STRING, lambda n: f"text-{n:095d}")),
    Case(
        _TEXT,
        "`TUPLE([LONG, DOUBLE, LONG])`",
        lambda: value(Types.TUPLE([LONG, DOUBLE, LONG]), lambda n: (n, n / 2, n + 1)),
    ),
    Case(_TEXT, "`ROW_NAMED` of the same", lambda: value(ROW, lambda n: Row(n, n / 2, n + 1))),
    Case(_TEXT, "a dict of the same, no type declared", lambda: untyped(lambda n: Plain(n).__dict__)),
    Case(_TEXT, "an object of the same, no type declared", lambda: untyped(Plain)),
    Case(_TEXT, "`ListState` of ten `LONG`", lists),
    Case(_TEXT, "`MapState` of ten `STRING` of 14 letters with a `LONG`", maps),
    Case(_TEXT, "a timer", timers),
    Case(_TEXT, "a window that keeps a tuple of the key and a number, with its timer", windows),
]


def measured(number: int, entries: int) -> float:
    """Return the bytes of an entry of a case, in this process."""
    fill = CASES[number].make()
    fill(FIRST - WARM_UP, FIRST)
    gc.collect()
    before = resident_bytes()
    fill(FIRST, FIRST + entries)
    gc.collect()
    return (resident_bytes() - before) / entries


def bytes_of(number: int, entries: int) -> int:
    """Return the same, in a new process."""
    command = [sys.executable, __file__, "--case", str(number), "--entries", str(entries)]
    return round(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout))


def table(sizes: list[int]) -> str:
    """Return the table of the page."""
    rows = [f"| {case.key} | {case.value} | {size:,} |" for case, size in zip(CASES, sizes, strict=True)]
    return "\n".join(["| key | value | bytes |", "|---|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--table", action="store_true", help="print the table of the page")
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--case", type=int, help="measure one case in this process")
    options = parser.parse_args()
    if options.case is not None:
        print(measured(options.case, options.entries))
        return
    sizes = [bytes_of(number, options.entries) for number in range(len(CASES))]
    if options.table:
        print(table(sizes), f"\nPython {platform.python_version()}, {options.entries:,} entries")
    else:
        figures = {f"{case.key}: {case.value}": size for case, size in zip(CASES, sizes, strict=True)}
        print(json.dumps(figures, indent=None if options.json else 2))


if __name__ == "__main__":
    main()
