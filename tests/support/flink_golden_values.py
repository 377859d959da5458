"""What the savepoints in ``tests/flink_format/golden`` hold, by program, operator, state and key.

``tests/flink_format/programs`` has the programs: ``Golden.java`` (``all`` has all operators, ``small``
those in ``SMALL``) and ``golden_pyflink.py`` (``process``, ``thread``). Their input is ``LINES``, and the
clock stands at ``CLOCK_MS``, which is the timestamp of each value with time to live. Of a value with a time
to live, that timestamp is left out here. States of PyFlink's process mode have the prefix
``python-state-``.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

#: The input: the timestamp and the key of each record.
LINES = [(1000, 1), (2000, 2), (3000, 3), (4000, 1)]
CLOCK_MS = 1700000000000
#: Timers of processing time are so long after the timestamp of the record that sets them.
PROCESSING_MS = 4102444800000

#: The operators of ``Golden.java`` in each of its savepoints.
SMALL = {"kinds", "tumbling-reduce", "sessions-process", "broadcast", "operator-state"}

_TIMES = {1: [1000, 4000], 2: [2000], 3: [3000]}
_SUMS = {key: sum(times) for key, times in _TIMES.items()}
_LAST = {key: times[-1] for key, times in _TIMES.items()}
_MEANS = {key: (sum(times), len(times)) for key, times in _TIMES.items()}


def _twice(states: dict[str, dict[int, Any]], prefix: str = "") -> dict[str, dict[int, Any]]:
    """Return the states without time to live and with it, which have the same values."""
    return {f"{prefix}{name}{suffix}": values for name, values in states.items() for suffix in ("", "_ttl")}


#: The operator ``kinds`` of Java: the five kinds of state.
JAVA_KINDS = _twice(
    {
        "value": _LAST,
        "list": {key: [f"at {time}" for time in times] for key, times in _TIMES.items()},
        "map": {key: {"at": str(time), "none": None} for key, time in _LAST.items()},
        "reducing": _SUMS,
        "aggregating": _MEANS,
    }
)
_PYTHON_KINDS = {
    "value": _LAST,
    "list": _TIMES,
    "map": {key: {"a": time} for key, time in _LAST.items()},
    "reducing": _SUMS,
    "aggregating": _MEANS,
}
#: The operator ``kinds`` of PyFlink, with declared types and with pickled ones. In the native savepoint of
#: process mode, the maps without time to live also have ``"none": None``.
PYTHON_KINDS = _twice(_PYTHON_KINDS) | _twice(_PYTHON_KINDS, "pickled_")

#: The timers of the operator ``kinds``, as (key, timestamp).
EVENT_TIMERS = [(key, time + 10) for time, key in LINES]
PROCESSING_TIMERS = [(key, time + PROCESSING_MS) for time, key in LINES]

#: The windows in flight, as (key, start, end): those of ``tumbling-*``, and those of ``sessions-*``, of
#: which the second is the window whose state a merged one has.
TUMBLING = [(1, 0, 10000), (2, 0, 10000), (3, 0, 10000)]
SESSIONS = [(1, (1000, 9000), (1000, 6000)), (2, (2000, 7000), (2000, 7000)), (3, (3000, 8000), (3000, 8000))]
#: The records in each key's window: of ``*-process`` the list, of ``*-reduce`` in Java the joined lines.
JAVA_WINDOW_LIST = {1: ["1000,1", "4000,1"], 2: ["2000,2"], 3: ["3000,3"]}
JAVA_WINDOW_REDUCED = {1: "1000,14000,1", 2: "2000,2", 3: "3000,3"}
PYTHON_WINDOW_LIST = {1: [(1000, 1), (4000, 1)], 2: [(2000, 2)], 3: [(3000, 3)]}
PYTHON_WINDOW_REDUCED = {1: (5000, 1), 2: (2000, 2), 3: (3000, 3)}
#: What the trigger of the operator ``count-process`` of Java has counted.
JAVA_COUNTS = {1: 2, 2: 1, 3: 1}

#: The state ``latest`` of the operators ``by-string``, ``by-tuple`` and ``by-row``; PyFlink also has
#: ``by-pickled``, whose key is the number.
LATEST = {
    "by-string": {f"key {key}": time for key, time in _LAST.items()},
    "by-tuple": {(key, "a"): time for key, time in _LAST.items()},
    "by-row": {(key, "a"): time for key, time in _LAST.items()},
}

#: The state ``rules`` of the operator ``broadcast`` (in process mode also of ``broadcast-without-key``).
JAVA_RULES = {f"rule {key}": time for key, time in _LAST.items()}
PYTHON_RULES = {str(key): time for key, time in _LAST.items()}

#: The operator ``operator-state`` of Java: of all subtasks, in any order; ``union`` sums up to the number
#: of lines.
SPLIT = ["1000,1", "2000,2", "3000,3", "4000,1"]
UNION_SUM = 4

#: The operator ``values`` of Java: the value for key 1, and for the keys 2 and 3. Rows and POJOs are tuples
#: here. In UTC; what is finer than a microsecond is cut off, as Python has no nanoseconds. The states
#: ``local_date`` (for key 1 2024-02-29, else in the year -1) and ``kryo`` (an object) are left out.
JAVA_VALUES: dict[str, tuple[Any, Any]] = {
    "boolean": (True, False),
    "byte": (127, -128),
    "short": (32767, -32768),
    "int": (2**31 - 1, -(2**31)),
    "long": (2**63 - 1, -(2**63)),
    "float": (1.5, float("nan")),
    "double": (1e300, float("-inf")),
    "char": ("\u20ac", "a"),
    "string": ("na\u00efve \u20ac \U0001f600", ""),
    "long_string": ("a" * 126, "b" * 127),
    "big_int": (2**70, 0),
    "big_int_small": (10, -1),
    "big_dec": (Decimal("12345.6789"), Decimal("-1E+5")),
    "big_dec_small": (Decimal(0), Decimal(10)),
    "date": (
        datetime.datetime(2023, 11, 14, 22, 13, 20, 123000),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ),
    "sql_date": (datetime.date(2024, 2, 29), datetime.date(1970, 1, 1)),
    "sql_time": (datetime.time(23, 59, 59), datetime.time(0, 0)),
    "sql_timestamp": (
        datetime.datetime(2024, 2, 29, 12, 30, 0, 123456),
        datetime.datetime(1969, 12, 31, 23, 59, 59, 999000),
    ),
    "local_time": (datetime.time(23, 59, 59, 999999), datetime.time(0, 0)),
    "local_date_time": (datetime.datetime(2024, 2, 29, 12, 30), datetime.datetime(1969, 12, 31, 23, 59, 59)),
    "instant": ((1700000000, 5), (-1, 999000000)),  # seconds, nanoseconds
    "booleans": ([True, False], []),
    "bytes": (b"\x00\xff", b""),
    "shorts": ([1, -1], []),
    "ints": ([1, -1], []),
    "longs": ([1, -1], []),
    "floats": ([1.5], []),
    "doubles": ([1.5], []),
    "chars": (["a", "\u20ac"], []),
    "strings": (["a", None, ""], []),
    "boxed": ([1, None], []),
    "string_array": (["a", None, ""], []),
    "list": ([1, 2], []),
    "map": ({"a": 1}, {"none": None}),
    "tuple": ((1, "a"), (-1, None)),
    "row": ((1, None), (None, "a")),
    "row_named": ((1, None), (None, "a")),
    "row_wide": ((0, 1, 2, 3, 4, 5, 6, 7), (None,) * 8),
    "nested": (((1, "a"), [(2, "b"), (3, None)]), (None, [])),
    "enum": (0, 2),  # ordinals
    "pojo": ((1, "a", 1.5, ["x", "y"]), (-1, None, None, None)),  # id, name, score, tags
}

#: The operator ``values`` of PyFlink in process mode, as above.
PROCESS_VALUES: dict[str, tuple[Any, Any]] = {
    **{name: JAVA_VALUES[name] for name in ("boolean", "byte", "short", "int", "long", "char", "string")},
    "float": (1.5, -0.25),
    "double": (1e300, -0.1),
    "big_int": (2**62, -1),
    "big_dec": (Decimal("12345.678900000000000000"), Decimal("-0.000000000000000001")),
    "date": (datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)),
    "time": (datetime.time(23, 59, 59, 999000), datetime.time(0, 0)),
    "timestamp": (datetime.datetime(2024, 2, 29, 12, 30, 0, 123000), datetime.datetime(1970, 1, 1)),
    "instant": ((1700000000, 5), (-1, 999999999)),
    "bytes": (b"\x00\xff", b""),
    "longs": ([1, -1], []),
    "strings": (["a", "", "\u20ac"], []),
    "list": ([1, 2], []),
    "map": ({"a": 1}, {}),
    "tuple": ((1, "a"), (-1, "")),
    "row": ((1, None), (None, "a")),
    "row_named": ((1, None), (None, "a")),
    "pickled": ({"a": [1, None, 2.5]}, (1, "b")),
}
#: Types whose values Flink cannot write in thread mode.
_NOT_IN_THREAD_MODE = {"big_int", "date", "time", "timestamp", "instant", "bytes", "longs", "strings", "list"}
#: The operator ``values`` of PyFlink in thread mode. There the whole numbers are LONG, FLOAT is DOUBLE,
#: CHAR is STRING, and rows and tuples are pickled.
THREAD_VALUES = {name: values for name, values in PROCESS_VALUES.items() if name not in _NOT_IN_THREAD_MODE}
