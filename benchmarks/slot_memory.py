"""What the processes of a job take in memory before they have any state: docs/operating.md.

    python benchmarks/slot_memory.py [--json] [--slots N] [--engine STAGES|PIPELINED]

A job counts a few records a second. When some epochs have run, each process is measured; for each kind the
figures are means, in MiB:

* ``..._resident_mib``: what ``ps`` and the metric ``pyflinkstate_slot_memory_bytes`` show.
* ``..._own_mib``: what would be free without the process.
* ``..._share_mib``: that, and its share of the pages that several processes have.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from statistics import mean
from typing import Any

import psutil
from local_session import local_session, tell

from pyflinkstate import (
    Configuration,
    JobListener,
    KeyedProcessFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

#: Epochs after which the processes have loaded what they need.
WARM_UP_EPOCHS = 10
PATIENCE_S = 120


class Count(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        self.count.update((self.count.value() or 0) + 1)
        yield self.count.value()


class Epochs(JobListener):
    """Counts the epochs that have run."""

    done = 0

    def on_epoch(self, stats: Any) -> None:
        self.done += 1


def figures(kind: str, processes: Iterable[psutil.Process]) -> dict[str, float]:
    """Return the figures of processes of a kind."""
    found = [process.memory_full_info() for process in processes]
    if not found:
        return {}
    values = {"resident": "rss", "own": "uss", "share": "pss"}
    return {
        f"{kind}_{name}_mib": round(mean(getattr(info, field) for info in found) / 2**20, 1)
        for name, field in values.items()
    }


def measured(slots: int, engine: str) -> dict[str, float]:
    """Run the job, and return the figures of its processes."""
    session = local_session(slots)
    config = Configuration().set_string("pyflinkstate.engine", engine)
    env = StreamExecutionEnvironment.get_execution_environment(config).set_parallelism(slots)
    heard = Epochs()
    env.add_listener(heard)
    with tempfile.TemporaryDirectory() as folder:
        env.enable_checkpointing(100, f"{folder}/checkpoints")
        numbers = env.from_rate(1000).map(lambda row: row["value"])
        counted = numbers.key_by(lambda n: n % 100, Types.LONG()).process(Count()).uid("count")
        counted.filter(lambda n: n < 0).print()
        client = env.execute_async("slot memory")
        end_s = time.monotonic() + PATIENCE_S
        while heard.done < WARM_UP_EPOCHS and time.monotonic() < end_s:
            time.sleep(0.1)
        of_slots = set(client.slot_pids().values())
        others = [one for one in psutil.Process().children(recursive=True) if one.pid not in of_slots]
        made = {
            **figures("slot", map(psutil.Process, of_slots)),
            **figures("driver", [psutil.Process(os.getpid())]),
            **figures("jvm", [one for one in others if one.name() == "java"]),
            **figures("worker", [one for one in others if one.name().startswith("python")]),
        }
        client.cancel().result(PATIENCE_S)
    session.stop()
    return made


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--engine", choices=("STAGES", "PIPELINED"), default="STAGES")
    args = parser.parse_args()
    tell(measured(args.slots, args.engine), args.json)


if __name__ == "__main__":
    main()
