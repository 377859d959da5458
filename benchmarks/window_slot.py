"""CPU time of window operators in a state slot, per record, without Spark: real frames into a real subtask.

    python benchmarks/window_slot.py [--json] [--records N] [--rounds N] [--against CHECKOUT]

The records are those of ``operators.py``: a record a millisecond, over 10,000 keys of which half are active
in each minute, 12 times. Two partitions advance side by side, and this is one of two subtasks. What is
measured is the subtask: it processes decoded frames and fires timers. Decoding and encoding frames is the
same for all operators.

With ``--against`` each round also runs the package of another checkout, so that both meet the same noise.
Figures are medians of the rounds, in microseconds of CPU time for each record.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counting_functions import Count, CountAggregate, CountElements, CountUntilTimer, CountWithTtl, key_of
from packages import medians

BATCH = 4096
NAMES = ("value", "tumbling", "process_window", "session", "sliding")


def operator_of(name: str) -> Any:
    """Return the operator or function called ``name``."""
    from pyflinkstate import EventTimeSessionWindows, SlidingEventTimeWindows, Time, TumblingEventTimeWindows
    from pyflinkstate.runtime.operators.windows.windowing import window_operator

    minutes = TumblingEventTimeWindows.of(Time.minutes(1))
    sliding = SlidingEventTimeWindows.of(Time.minutes(1), Time.seconds(20))
    sessions = EventTimeSessionWindows.with_gap(Time.seconds(20))
    operators = {
        "value": Count,
        "ttl": CountWithTtl,
        "timers": CountUntilTimer,
        "tumbling": lambda: window_operator(minutes, contents=CountAggregate()),
        "process_window": lambda: window_operator(minutes, function=CountElements()),
        "session": lambda: window_operator(sessions, contents=CountAggregate()),
        "sliding": lambda: window_operator(sliding, contents=CountAggregate()),
    }
    return operators[name]()


def frames_of(records: int, is_timed: bool) -> Iterator[tuple[Any, int]]:
    """Yield the frames of one of two subtasks, each with the watermark that follows it."""
    from pyflinkstate import Types
    from pyflinkstate.runtime.tasks.router import Router

    router = Router("count", key_of, Types.LONG(), 2, 128)
    split = router.splitter(0)
    half = records // 2
    for begin in range(0, half, BATCH):
        for start in (begin, half + begin):
            numbers = list(range(start, min(start + BATCH, half + start - begin)))
            parts = dict(split(numbers, numbers if is_timed else None))
            yield parts[0], min(begin + BATCH, half) - 1


def subtask_of(function: Any) -> Any:
    """Return an open subtask that runs ``function``."""
    import cloudpickle

    from pyflinkstate import Types
    from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
    from pyflinkstate.backends.keys import key_group_range
    from pyflinkstate.runtime.operators.operators import OperatorContext, StreamOperatorState
    from pyflinkstate.runtime.operators.subtask import KeyedSubtask
    from pyflinkstate.runtime.slots import slot
    from pyflinkstate.runtime.wire import SystemClock

    clock = getattr(slot, "wall_clock_ms", SystemClock().now_ms)  # older packages have the other one alone
    backend = HashMapStateBackend()
    keyed = backend.create_keyed_state_backend(Types.LONG(), key_group_range(128, 2, 0), 128, clock)
    state = StreamOperatorState(keyed, backend.create_operator_state_backend(), None)
    context = OperatorContext("windows", 0, 2, 128, 0, keyed)
    subtask = KeyedSubtask(cloudpickle.loads(cloudpickle.dumps(function)), context, state)
    subtask.open()
    return subtask


def microseconds(name: str, records: int) -> float:
    """Return the CPU time for each record."""
    from pyflinkstate.runtime.operators.operators import Output
    from pyflinkstate.runtime.wire import MAX_WATERMARK

    frames = list(frames_of(records, is_timed=name != "value"))
    subtask = subtask_of(operator_of(name))
    number = sum(len(frame.values) for frame, _ in frames)
    emitted = 0
    started = time.process_time()
    for frame, watermark in [*frames, (None, MAX_WATERMARK)]:
        output = Output()
        if frame is not None:
            subtask.process_frame(frame, output)
        if name != "value":
            subtask.advance_watermark(watermark, output)
        emitted += sum(value[1] if type(value) is tuple else value for value in output.values)
    seconds = time.process_time() - started
    expected = number * (3 if name == "sliding" else 1)
    if name != "value" and emitted != expected:
        raise AssertionError(f"{name}: {emitted} came out, not {expected}")
    return seconds / number * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=360_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--against", type=Path)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps({name: microseconds(name, args.records) for name in args.only}))
        return
    options = ["--records", str(args.records), "--only", *args.only]
    figures = {
        f"{name}_us_{where}": round(figure, 2)
        for where, found in medians(__file__, options, args.rounds, args.against).items()
        for name, figure in found.items()
    }
    print(json.dumps(figures) if args.json else "\n".join(f"{key}: {v}" for key, v in figures.items()))


if __name__ == "__main__":
    main()
