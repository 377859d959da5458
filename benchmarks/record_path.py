"""Where the processor time of a record goes, from the source to the sink, in nanoseconds for each record.

    python benchmarks/record_path.py [--json] [--records N] [--rounds N] [--only NAME ...] [--steps]
                                     [--engine pipelined] [--against PACKAGE]

The programs and records are those of ``operators.py``. There are two measurements, both of processor time, so
what else the machine does matters less than to a rate:

* *Steps*: the functions that Spark's tasks and state slots run, one after the other in one process, over real
  frames. ``key``, ``hash`` and ``frame`` are parts of the map side, and ``timestamps`` is what the map side
  takes longer with an assigner. ``call``, ``results`` and ``operator`` are parts of the slot's loop: the loop
  with a function that does nothing, what it takes longer if the function yields a result, and what it takes
  longer with the program's own state, timers and windows.
* *Processes*: a whole job on Spark, the difference of two sizes. ``worker``, ``slot``, ``driver`` and ``jvm``
  are all that these processes used. With less than a few million records the JVM's figure means nothing,
  because its compilers run at their own time. The shuffle, and the way of frames between worker, JVM and
  slot, are what the steps leave of it.

``--steps`` leaves out the processes. With ``--against`` each round also runs the package of another folder,
so that both meet the same noise. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
from counting_functions import (
    MINUTE_MS,
    Millisecond,
    key_of,
)
from packages import HERE, Figures, medians
from pyspark.sql import SparkSession
from window_slot import operator_of, subtask_of

from pyflinkstate import (
    KeyedProcessFunction,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.runtime.operators.operators import Output
from pyflinkstate.runtime.plan.nodes import WATERMARKS, ChainedOperator
from pyflinkstate.runtime.slots.slot import GC_THRESHOLDS
from pyflinkstate.runtime.tasks.router import EventTimeSettings, Router, key_groups_of
from pyflinkstate.runtime.tasks.tasks import ChainTask, RouteTask, SourceTask, TaskLink
from pyflinkstate.runtime.wire import InputFrame, ValuesFrame

NAMES = ("value", "ttl", "timers", "tumbling", "process_window", "session")
UNTIMED = {"value", "ttl"}
BATCH = 4096
POLL_S = 0.02
#: What the command line of a process tells about it, first match first.
ROLES = {"slot": "pyflinkstate.runtime.slots", "worker": "pyspark.daemon", "jvm": "java"}


class Nothing(KeyedProcessFunction):
    """Takes records and does nothing."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> None:
        return None


class Echo(KeyedProcessFunction):
    """Emits what ``Count`` emits, without counting."""

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[int, int]]:
        yield value, 1


# --- steps ------------------------------------------------------------------------------------------------


def timed(work: Callable[[], Any], records: int) -> tuple[float, Any]:
    """Return the nanoseconds of processor time for each record, the less of two runs, and the result."""
    seconds = []
    for _ in range(2):
        result = None  # what the first run made is garbage before the second one
        begun = time.process_time()
        result = work()
        seconds.append(time.process_time() - begun)
    return min(seconds) / records * 1e9, result


def drain(items: Iterable[Any]) -> None:
    deque(items, 0)


def numbers_of(split: tuple[int, int], reject: Any) -> Iterator[int]:
    return iter(range(*split))


def task_link() -> TaskLink:
    """Return the link of a task whose driver ignores what is reported."""
    told: Any = {"attempt": 0, "job_parameters": {}, "keeps_functions": False}
    driver: Any = SimpleNamespace(**told, report=lambda report: None)
    return TaskLink(driver, 1)


def source(split: tuple[int, int]) -> Iterator[int]:
    """Return the records of a split, as a task reads them."""
    return SourceTask(task_link(), "numbers", numbers_of, is_fresh=True)(0, [split])


def map_side(is_timed: bool, split: tuple[int, int]) -> Iterator[tuple[Any, bytes]]:
    """Return the frames that a task makes of a split."""
    settings, assigner = None, ()
    if is_timed:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Millisecond())
        assigner = (ChainedOperator(WATERMARKS, "timestamps", strategy, assigner_id="timestamps"),)
        settings = EventTimeSettings(is_final=True)
    before = ChainTask(task_link(), "numbers", assigner, 2, False, event_time=settings)
    router = Router("count", key_of, Types.LONG(), 2, 128, event_time=settings)
    return RouteTask(before, "count", router)(0, source(split))


def keys_of(records: int) -> list[list[int]]:
    return [
        list(map(key_of, range(start, min(start + BATCH, records)))) for start in range(0, records, BATCH)
    ]


def hashed(batches: list[list[int]]) -> None:
    groups = key_groups_of(Types.LONG(), 128)
    for keys in batches:
        groups.of_batch(keys)


def run_slot(function: Any, frames: list[InputFrame]) -> list[Output]:
    """Feed frames to a subtask; return the output after each."""
    subtask = subtask_of(function)
    outputs = []
    for frame in frames:
        output = Output()
        subtask.process_frame(frame, output)
        if frame.time is not None:
            subtask.advance_watermark(frame.time.watermark, output)
        outputs.append(output)
    return outputs


def counted_by(name: str, outputs: list[Output]) -> int:
    """Return how many records the results tell of: each is one, or has a count of several."""
    results = list(chain.from_iterable(output.values for output in outputs))
    if name in UNTIMED:
        return len(results)
    return sum(result[1] if isinstance(result, tuple) else result for result in results)


def encoded(outputs: list[Output]) -> list[bytes]:
    return [ValuesFrame(output.values).encode() for output in outputs if output.values]


def steps(name: str, records: int) -> Figures:
    """Return what each step of a program costs. One of two subtasks is measured, with half of the records."""
    is_timed, split = name not in UNTIMED, (0, records)
    drain(map_side(is_timed, split))  # the worker remembers the keys' groups from here on
    found: Figures = {}
    found["source"], _ = timed(lambda: drain(source(split)), records)
    found["key"], batches = timed(lambda: keys_of(records), records)
    found["hash"], _ = timed(lambda: hashed(batches), records)
    plain, _ = timed(lambda: list(map_side(False, split)), records)
    whole, frames = timed(lambda: list(map_side(is_timed, split)), records)
    found["frame"] = plain - found["source"] - found["key"] - found["hash"]
    found["timestamps"] = whole - plain if is_timed else 0.0
    own = [data for key, data in sorted(frames) if key[0] == 0]
    number = sum(len(InputFrame.decode(data)) for data in own)
    found["unpickle"], decoded = timed(lambda: [InputFrame.decode(data) for data in own], number)
    found["call"], _ = timed(lambda: run_slot(Nothing(), decoded), number)
    echoed, _ = timed(lambda: run_slot(Echo(), decoded), number)
    found["results"] = echoed - found["call"] if name in UNTIMED else 0.0
    in_slot, outputs = timed(lambda: run_slot(operator_of(name), decoded), number)
    if (counted := counted_by(name, outputs)) != number:
        raise AssertionError(f"{name}: {counted} of {number} records were counted")
    found["operator"] = in_slot - found["call"] - found["results"]
    found["output frame"], sent = timed(lambda: encoded(outputs), number)
    found["decode"], _ = timed(
        lambda: drain(chain.from_iterable(ValuesFrame.decode(data).values for data in sent)), number
    )
    return found


# --- processes --------------------------------------------------------------------------------------------


class ProcessTimes:
    """Notes the processor time of this process and all below it, by what they are.

    As a context it looks often, as what ends takes its figures along.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, tuple[str, float]] = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> ProcessTimes:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Note what all have used so far."""
        own = psutil.Process()
        for process in [own, *own.children(recursive=True)]:
            try:
                times = process.cpu_times()
                role = self._seconds.get(process.pid, (None, 0))[0] or role_of(process, own.pid)
            except psutil.Error:
                continue  # it has just ended
            self._seconds[process.pid] = role, times.user + times.system

    def by_role(self) -> Counter[str]:
        """Return the seconds of each kind of process."""
        found: Counter[str] = Counter()
        for role, seconds in self._seconds.values():
            found[role] += seconds  # type: ignore[assignment]
        return found


def role_of(process: psutil.Process, own: int) -> str:
    if process.pid == own:
        return "driver"
    line = " ".join(process.cmdline())
    return next((role for role, text in ROLES.items() if text in line), "worker")


def seconds_by_role(spark: SparkSession, engine: str, name: str, records: int) -> Counter[str]:
    import operators

    with ProcessTimes() as times:
        operators.seconds_of(spark, engine, name, records)
        return times.by_role()


def processes(spark: SparkSession, engine: str, name: str, records: int) -> Figures:
    """Return the processor time of each kind of process for a record."""
    small = records // 6
    before = measured = Counter[str]()
    for size in (small, small + records):
        begun = seconds_of_now()
        ran = seconds_by_role(spark, engine, name, size)
        ran.subtract(begun)
        before, measured = measured, ran
    roles = (*ROLES, "driver")
    return {f"{role} process": (measured[role] - before[role]) / records * 1e9 for role in roles}


def seconds_of_now() -> Counter[str]:
    """Return what the processes that live now have used so far."""
    times = ProcessTimes()
    times.look()
    return times.by_role()


# --- the program ------------------------------------------------------------------------------------------


def figures(names: list[str], records: int, engine: str | None) -> Figures:
    """Measure each program once: the steps with an eighth of the records, processes with an engine."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    found = {f"{name}: {step}": cost for name in names for step, cost in steps(name, records // 8).items()}
    if engine is not None:
        import operators
        from local_session import local_session

        path = os.pathsep.join(filter(None, sys.path))
        spark = local_session(operators.PARTITIONS, {"spark.executorEnv.PYTHONPATH": path})
        for name in names:
            operators.seconds_of(spark, engine, name, max(records // 6, MINUTE_MS))
            found |= {
                f"{name}: {role}": cost for role, cost in processes(spark, engine, name, records).items()
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--records", type=int, default=2_400_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    parser.add_argument("--engine", choices=["stages", "pipelined"], default="stages")
    parser.add_argument("--steps", action="store_true", help="leave out the processes")
    parser.add_argument("--against", type=Path, metavar="PACKAGE")
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.once:
        print(json.dumps(figures(args.only, args.records, None if args.steps else args.engine)))
        return
    options = ["--records", str(args.records), "--only", *args.only, "--engine", args.engine]
    options += ["--steps"] if args.steps else []
    found = {
        where: {step: round(cost) for step, cost in costs.items()}
        for where, costs in medians(__file__, options, args.rounds, args.against).items()
    }
    print(json.dumps(found) if args.json else table(found))


def table(found: dict[str, dict[str, int]]) -> str:
    """Return a line for each step, with a column for each package."""
    width = max(map(len, found[HERE]))
    lines = [f"{'':{width}} " + " ".join(f"{where:>7}" for where in found)]
    for key in found[HERE]:
        lines.append(f"{key:{width}} " + " ".join(f"{figures[key]:7,}" for figures in found.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
