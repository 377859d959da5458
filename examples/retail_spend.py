"""The main job: what each customer of a web shop spends, from the stream of its invoice lines.

    python examples/retail_spend.py --input DIR --checkpoint-dir DIR --output DIR
        [--parallelism N] [--restore latest|PATH] [--days N]

DIR holds one CSV file for each trading day (columns InvoiceNo, StockCode, Quantity, UnitPrice,
CustomerID ...); a day is an epoch. Without --input a small stream of the same columns is made. For every
line of a known customer one JSON line goes to the output; it tells where the customer stands.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from made_up_retail import make_days

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    CheckpointStats,
    EpochStats,
    FileSink,
    JobExecutionResult,
    JobListener,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    PyFlinkStateError,
    ReducingStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
)

Row = dict[str, str]


def line_cents(row: Row) -> int:
    """What the line comes to; negative for a return."""
    return round(float(row["UnitPrice"]) * 100) * int(row["Quantity"])


class Mean(AggregateFunction):
    """The mean, rounded down; its accumulator is ``(sum, count)``."""

    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> int:
        return accumulator[0] // accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Spend(KeyedProcessFunction):
    """Keeps five states for each customer."""

    def open(self, runtime_context: RuntimeContext) -> None:
        long = Types.LONG()
        self.spend = runtime_context.get_state(ValueStateDescriptor("spend_cents", long))
        self.orders = runtime_context.get_map_state(
            MapStateDescriptor("orders", Types.STRING(), Types.BOOLEAN())
        )
        self.last = runtime_context.get_list_state(ListStateDescriptor("last_products", Types.STRING()))
        self.largest = runtime_context.get_reducing_state(
            ReducingStateDescriptor("largest_quantity", max, long)
        )
        self.mean = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean_line_cents", Mean(), Types.TUPLE([long, long]))
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[dict[str, Any]]:
        cents = line_cents(value)
        self.spend.update((self.spend.value() or 0) + cents)
        if not value["InvoiceNo"].startswith("C"):
            self.orders[value["InvoiceNo"]] = True
        self.last.update([*self.last, value["StockCode"]][-5:])
        self.largest.add(int(value["Quantity"]))
        self.mean.add(cents)
        yield {
            "customer": ctx.get_current_key(),
            "invoice": value["InvoiceNo"],
            "spend_cents": self.spend.value(),
            "orders": len(list(self.orders.keys())),
            "last_products": list(self.last),
            "largest_quantity": self.largest.get(),
            "mean_line_cents": self.mean.get(),
        }


def has_customer(row: Row) -> bool:
    return row["CustomerID"] != ""


def customer_of(row: Row) -> str:
    """``17850.0`` in the file is customer ``17850``."""
    return row["CustomerID"].removesuffix(".0")


class Progress(JobListener):
    """Prints a line for what happens."""

    def on_epoch(self, stats: EpochStats) -> None:
        rate = stats.records * 1000 // max(stats.duration_ms, 1)
        print(f"epoch {stats.epoch}: {stats.records} records, {rate} records/s", flush=True)

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        print(
            f"checkpoint {stats.checkpoint_id}: after epoch {stats.epoch}, "
            f"synchronous {stats.sync_ms:.2f} ms, asynchronous {stats.async_ms:.1f} ms, "
            f"{stats.size_bytes} bytes",
            flush=True,
        )

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        print(f"restart {attempt} from the last checkpoint: {str(error).splitlines()[0]}", flush=True)


def run(args: argparse.Namespace, input_dir: str) -> JobExecutionResult:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(args.interval_ms, args.checkpoint_dir)
    env.add_listener(Progress())
    if args.page:
        env.enable_web_page()
        print(f"page: {env.get_web_page_address()}", flush=True)
    if args.parallelism is not None:
        env.set_parallelism(args.parallelism)
    if args.restore is not None:
        env.restore_from(args.restore)
    lines = env.from_files(input_dir, "csv", max_files=args.days)
    known = lines.filter(has_customer).name("known customers")
    spend = known.key_by(customer_of, key_type=Types.STRING()).process(Spend()).name("spend").uid("spend")
    spend.sink_to(FileSink(args.output))
    return env.execute("retail spend")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What each customer spends, from a stream of invoice lines.")
    parser.add_argument("--input", help="a directory of CSV files, one a day; without it, made-up days")
    parser.add_argument("--checkpoint-dir", required=True)
    parser.add_argument("--output", required=True, help="an empty directory, or that of the restored run")
    parser.add_argument("--parallelism", type=int)
    parser.add_argument("--restore", metavar="latest|PATH", help="a checkpoint to start from")
    parser.add_argument("--page", action="store_true", help="show the job on a web page")
    parser.add_argument("--days", type=int, help="only the first so many files")
    parser.add_argument("--interval-ms", type=int, default=1000, help="between two checkpoints")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    args = parse(arguments)
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as made_up:
        if args.input is None:
            make_days(Path(made_up))
        try:
            result = run(args, args.input or made_up)
        except PyFlinkStateError as error:
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
            return 1
    seconds = time.monotonic() - started
    read = result.get_accumulator_result("files.records_out")
    dropped = result.get_accumulator_result("known customers.records_dropped")
    print(
        f"{read} lines, {dropped} without a customer dropped, {read - dropped} written to {args.output}; "
        f"{len(result.checkpoints)} checkpoints, {result.restarts} restarts, {seconds:.1f} s"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
