"""A small job for clusters: it says whether its state was right to the end, and where its slots were.

    spark-submit [...] cluster_job.py DIRECTORY [--ship] [--parallelism N] [--executors N] [--until-none]
        [--decommission] [--who] [--files] [--encrypted] [--twice]
        [--conf NAME=VALUE ...]

It imports nothing but the package, so that it runs from a zip file of it. A place is the folder in which the
executor that started a slot runs, with the address of its host.
"""

from __future__ import annotations

import argparse
import os
import pwd
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

import pyflinkstate as ps
from pyflinkstate.common import Configuration
from pyflinkstate.runtime.spark.epoch_rdds import executors_of

KEYS, EPOCHS, RECORDS_PER_EPOCH = 37, 5, 100
RECORDS = [(number * 7919 % KEYS, number) for number in range(EPOCHS * RECORDS_PER_EPOCH)]


class Sums(ps.KeyedProcessFunction):
    """Emits key, number, the sum so far, and where it runs; also as which user and in which Python."""

    def __init__(self, says_who: bool) -> None:
        self.says_who = says_who

    def open(self, runtime_context: ps.RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ps.ValueStateDescriptor("sum", ps.Types.LONG()))
        self.subtask = runtime_context.get_index_of_this_subtask()
        self.place = f"{os.environ.get('SPARK_LOCAL_IP', '')} {Path.cwd().name}"
        if self.says_who:
            self.place += f" {pwd.getpwuid(os.getuid()).pw_name} {sys.executable}"

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[tuple[int, int, int, int, str]]:
        key, number = value
        self.sum.update((self.sum.value() or 0) + number)
        yield key, number, self.sum.value(), self.subtask, self.place


class Teller(ps.JobListener):
    """Says what happens; after the first epoch it may do something, or wait for something."""

    def __init__(self, after_first: Callable[[], None]) -> None:
        self._after_first = after_first

    def on_epoch(self, stats: ps.EpochStats) -> None:
        if stats.epoch == 1:
            self._after_first()
        print(f"epoch {stats.epoch}", flush=True)

    def on_restart(self, attempt: int, error: Exception) -> None:
        print(f"restart {attempt}: {type(error).__name__}: {str(error).splitlines()[0]}", flush=True)


def wait_until_none(context: SparkContext) -> None:
    """Wait until Spark has given all executors up."""
    while executors_of(context):
        time.sleep(0.1)


def decommission_one(context: SparkContext) -> None:
    """Have an executor leave, as one does whose host is to be switched off; return when it has left."""
    before = set(executors_of(context))
    context.parallelize([signal.SIGPWR], 1).foreach(_signal_executor)
    while before <= set(executors_of(context)):
        time.sleep(0.1)
    listed = context._jsc.sc().statusStore().executorList(False)
    reasons = [str(listed.apply(index).removeReason()) for index in range(listed.size())]
    print(f"left: {[reason for reason in reasons if reason != 'None']}", flush=True)


def _signal_executor(number: int) -> None:
    """Send a signal to the executor of this worker: the parent of the process that forks workers."""
    parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
    os.kill(int(parent), number)


def expected() -> list[tuple[int, int, int]]:
    sums: dict[int, int] = {}
    rows = []
    for key, number in RECORDS:
        sums[key] = sums.get(key, 0) + number
        rows.append((key, number, sums[key]))
    return sorted(rows)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--ship", action="store_true")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--executors", type=int, default=1, help="how many there are when the job starts")
    parser.add_argument(
        "--until-none", action="store_true", help="wait after the first epoch until there are none"
    )
    parser.add_argument("--decommission", action="store_true", help="an executor after the first epoch")
    parser.add_argument("--who", action="store_true", help="say as which user and in which Python slots run")
    parser.add_argument("--files", action="store_true", help="keep state in files, however little it is")
    parser.add_argument("--encrypted", action="store_true", help="the connections of the job")
    parser.add_argument("--twice", action="store_true", help="read the results of the operator twice")
    parser.add_argument("--conf", action="append", default=[])
    return parser.parse_args()


def session_of(settings: list[str]) -> SparkSession:
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    for setting in settings:
        name, _, value = setting.partition("=")
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def after_first_epoch(args: argparse.Namespace, context: SparkContext) -> None:
    if args.until_none:
        wait_until_none(context)
    if args.decommission:
        decommission_one(context)


def main() -> None:
    args = parsed()
    session = session_of(args.conf)
    if args.ship:
        print("shipped" if ps.ship(session) else "not shipped")
    while len(executors_of(session.sparkContext)) < args.executors:
        session.sparkContext.parallelize([1]).count()  # takes as long as a task takes
    env = ps.StreamExecutionEnvironment(session).set_parallelism(args.parallelism)
    env.enable_checkpointing(0, f"{args.directory}/checkpoints")
    if args.files:
        storage = ps.FileSystemCheckpointStorage(f"{args.directory}/checkpoints", 0)
        env.get_checkpoint_config().set_checkpoint_storage(storage)
    if args.encrypted:
        env.configure(Configuration().set_boolean("security.ssl.internal.enabled", True))
    env.add_listener(Teller(lambda: after_first_epoch(args, session.sparkContext)))
    records = env.from_collection(RECORDS, records_per_epoch=RECORDS_PER_EPOCH)
    keyed = records.key_by(lambda record: record[0], ps.Types.LONG()).process(Sums(args.who)).uid("sums")
    if args.twice:
        keyed = keyed.filter(lambda row: row[0] % 2 == 0).union(keyed.filter(lambda row: row[0] % 2 == 1))
    with keyed.execute_and_collect("cluster job") as results:
        rows = list(results)
    print("equal" if sorted(row[:3] for row in rows) == expected() else "different")
    places = Counter({row[3:]: 1 for row in rows})
    print(dict(sorted(Counter(place for _, place in places).items())))
    session.stop()


if __name__ == "__main__":
    main()
