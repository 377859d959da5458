"""Migration: version 2 of an operator goes on with the state of version 1, from a savepoint.

    python examples/savepoint_migration.py [--input DIR] [--parallelism N] [--checkpoint-dir DIR]
        [--restore PATH]

Version 1 adds up what each customer spends, and waits for more. After two days of invoices it is stopped
with a savepoint. Version 2 begins with that: it goes on with the sums, which expire from now on, and also
keeps the dearest line that it has seen. State is found again by the operator's ``uid`` and the state's name.
With --restore only version 2 runs.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import command_line
from made_up_retail import make_days
from retail import Line, invoice_lines

from pyflinkstate import EpochStats, JobListener, JobStatus
from pyflinkstate.common import Time, Types
from pyflinkstate.datastream import (
    DataStream,
    KeyedProcessFunction,
    KeyedStream,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from pyflinkstate.datastream.state import StateTtlConfig, ValueStateDescriptor


class Spend(NamedTuple):
    version: int
    customer: str
    cents: int
    dearest_cents: int | None = None


#: How many files version 1 gets to see.
DAYS_OF_VERSION_1 = 2


class SpendVersion1(KeyedProcessFunction):
    """Emits what the customer has spent so far."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.cents = runtime_context.get_state(ValueStateDescriptor("cents", Types.LONG()))

    def process_element(self, value: Line, ctx: KeyedProcessFunction.Context) -> Iterator[Spend]:
        cents = (self.cents.value() or 0) + value.cents
        self.cents.update(cents)
        yield Spend(1, value.customer, cents)


class SpendVersion2(KeyedProcessFunction):
    """Goes on with the same state, which now expires, and has a new one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        cents = ValueStateDescriptor("cents", Types.LONG())
        cents.enable_time_to_live(StateTtlConfig.new_builder(Time.days(365)).build())
        self.cents = runtime_context.get_state(cents)
        self.dearest = runtime_context.get_state(ValueStateDescriptor("dearest_cents", Types.LONG()))

    def process_element(self, value: Line, ctx: KeyedProcessFunction.Context) -> Iterator[Spend]:
        cents = (self.cents.value() or 0) + value.cents
        self.cents.update(cents)
        before = self.dearest.value()
        dearest = value.cents if before is None else max(before, value.cents)
        self.dearest.update(dearest)
        yield Spend(2, value.customer, cents, dearest)


def by_customer(lines: DataStream) -> KeyedStream:
    """Return the lines of known customers with their key; both versions must have the same."""
    return lines.filter(lambda line: line.customer != "").key_by(
        lambda line: line.customer, key_type=Types.STRING()
    )


def build_version_1(lines: DataStream) -> DataStream:
    """Return what each customer has spent so far, line by line."""
    return by_customer(lines).process(SpendVersion1()).uid("spend")


def build(lines: DataStream) -> DataStream:
    """Return the same by version 2: with the same ``uid`` it gets the state of version 1."""
    return by_customer(lines).process(SpendVersion2()).uid("spend")


class EpochReached(JobListener):
    """Lets the program wait until the job has done so many epochs, or has ended."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._reached = threading.Event()

    def on_epoch(self, stats: EpochStats) -> None:
        if stats.epoch >= self._epoch:
            self._reached.set()

    def on_end(self, status: JobStatus) -> None:
        self._reached.set()

    def wait(self) -> None:
        self._reached.wait()


def run_until_epoch(env: StreamExecutionEnvironment, epoch: int, savepoint_directory: str) -> str:
    """Run what was built so far, stop it with a savepoint after ``epoch``, and return where that is."""
    reached = EpochReached(epoch)
    client = env.add_listener(reached).execute_async("spend")
    reached.wait()
    savepoint = client.stop_with_savepoint(savepoint_directory=savepoint_directory).result()
    client.get_job_execution_result().result()  # all output before the savepoint is committed
    return savepoint


def main() -> None:
    args = command_line.parse("Change an operator and keep its state.")
    with tempfile.TemporaryDirectory() as folder:
        args.checkpoint_dir = args.checkpoint_dir or f"{folder}/checkpoints"
        if args.input is None:
            args.input = f"{folder}/days"
            make_days(Path(args.input), days=4, lines_a_day=8)
        if args.restore is None:
            env = command_line.environment(args)
            build_version_1(invoice_lines(env, args.input, DAYS_OF_VERSION_1, growing=True)).print()
            args.restore = run_until_epoch(env, DAYS_OF_VERSION_1, f"{args.checkpoint_dir}/savepoints")
            print(f"version 2 goes on from {args.restore}")
        env = command_line.environment(args)
        build(invoice_lines(env, args.input, args.days)).print()
        env.execute("spend")


if __name__ == "__main__":
    main()
