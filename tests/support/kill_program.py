"""The program that kill rounds kill: running sums and histories over some hundred records.

    python kill_program.py DIRECTORY [--master M] [--parallelism N] [--restore latest|PATH] [...]

It says ``epoch <n>`` whenever an epoch has run, and ``savepoint <path>`` when one is complete. Output is in
``out``, checkpoints are in ``checkpoints``, and ``children`` has a file for each process that was forked.

With ``--target`` the output goes into a connector's target instead, see ``killed_connectors``.

With ``--dataframe`` the records are the files of a streaming DataFrame, which ``keyed_process`` reads one
file a batch after the rows of ``initial_state``. Checkpoints and output are then below ``state``.

``SIGUSR1`` makes it write to standard error where each thread is, and ``SIGUSR2`` stops its SparkContext
inside the JVM, which goes on.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

import killed_connectors
import pyarrow.parquet
from injections import LINES, Injection
from processes import QUICK
from pyspark.sql import SparkSession

from pyflinkstate import (
    Available,
    Configuration,
    EpochStats,
    FileSink,
    FileSystemCheckpointStorage,
    JobClient,
    JobListener,
    KeyedProcessFunction,
    KeyedStep,
    ListStateDescriptor,
    MapStateDescriptor,
    RestartStrategies,
    RuntimeContext,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    keyed_process,
    keyed_process_queries,
)
from pyflinkstate.runtime.sources import ReadTime

EPOCHS = 10
RECORDS_PER_EPOCH = 40
#: How many records of a source that is read live come at a time.
PART = 8
KEYS = 37
MAX_HISTORY = 5
#: A hundred restarts must last until a server that was killed is there again, or a disk has room.
DELAY_MS = 300

RECORDS = [(number * 7919 % KEYS, number) for number in range(EPOCHS * RECORDS_PER_EPOCH)]
#: The rows of a DataFrame. Files that follow each other have no key in common: a query that was killed may
#: read two files in one batch, and Spark does not say in which order.
ROWS = [(number * 7919 % 8 * 5 + number // RECORDS_PER_EPOCH % 5, number) for _, number in RECORDS]
#: The rows of ``initial_state``. Some keys have several, and the last ones do not occur in ``ROWS``.
INITIAL = [(number * 7 % 45, 1000 + number) for number in range(60)]
RECORD_SCHEMA = "key long, number long"
ROW_SCHEMA = "key long, number long, total long, last array<long>, same long"

Row = tuple[int, int, int, list[int], int]


def forked_pool(children: Path) -> Pool:
    """Fork a process that lives on when this one is killed, as those of a pool do that are at work."""
    children.mkdir(exist_ok=True)
    pool = multiprocessing.get_context("fork").Pool(1, _enter, (children,))
    pool.apply_async(signal.pause)
    return pool


def _enter(children: Path) -> None:
    (children / str(os.getpid())).touch()


class Remember(KeyedProcessFunction):
    """Emits key, number, sum so far, the last few numbers, and how many of them were of the same parity.

    Args:
        children: where to say what it has forked; None if it shall not fork.
    """

    def __init__(self, children: Path | None) -> None:
        self.children = children
        self.pool: Pool | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))
        self.last = runtime_context.get_list_state(ListStateDescriptor("last", Types.LONG()))
        self.parities = runtime_context.get_map_state(
            MapStateDescriptor("parities", Types.LONG(), Types.LONG())
        )

    def process_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Row]:
        if self.children is not None and self.pool is None:
            self.pool = forked_pool(self.children)
        key, number = value
        total = (self.sum.value() or 0) + number
        self.sum.update(total)
        last = [*self.last, number][-MAX_HISTORY:]
        self.last.update(last)
        same = (self.parities.get(number % 2) or 0) + 1
        self.parities.put(number % 2, same)
        yield key, number, total, last, same


class RememberRows(Remember):
    """The same for Spark rows. Those of ``initial_state`` are records that come first and emit nothing."""

    def handle_initial_state(self, value: Any, ctx: Any) -> None:
        for _ in self.process_element(value, ctx):
            pass

    def process_element(self, value: Any, ctx: Any) -> Iterator[Row]:
        yield from super().process_element((value.key, value.number), ctx)


def expected(of_dataframe: bool = False) -> list[Row]:
    """Return the rows by a plain loop, sorted."""
    before, records = (INITIAL, ROWS) if of_dataframe else ([], RECORDS)
    sums: dict[int, int] = {}
    last: dict[int, list[int]] = {}
    parities: dict[tuple[int, int], int] = {}
    rows = []
    for key, number in [*before, *records]:
        sums[key] = sums.get(key, 0) + number
        last[key] = [*last.get(key, []), number][-MAX_HISTORY:]
        parity = (key, number % 2)
        parities[parity] = parities.get(parity, 0) + 1
        rows.append((key, number, sums[key], last[key], parities[parity]))
    return sorted(rows[len(before) :])


def output_of(directory: Path, target: str | None = None, address: str = "") -> list[list[Any]]:
    """Return the rows that the program has committed, or those that its target has.

    Args:
        address: of the target's server, if it has one.
    """
    if target is not None:
        return killed_connectors.rows_of(target, killed_connectors.Place(directory, address))
    lines = [path.read_text().splitlines() for path in (directory / "out").glob("epoch=*/part-*")]
    tables = [
        pyarrow.parquet.read_table(path).to_pylist()
        for path in (directory / "state").glob("*-output/epoch=*/part-*")
    ]
    rows = [json.loads(line) for each in lines for line in each]
    return rows + [list(row.values()) for table in tables for row in table]


class Teller(JobListener):
    """Says what happens, and does what is to be done after an epoch."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._epochs = 0
        self._pool: Pool | None = None
        self.client: Future[JobClient] = Future()

    def on_epoch(self, stats: EpochStats) -> None:
        self._epochs += 1
        if self._epochs == 1 and "driver" in self._args.forks:
            self._pool = forked_pool(Path(self._args.directory, "children"))
        say(f"epoch {stats.epoch}")
        if self._epochs == self._args.savepoint_after:
            savepoint = self.client.result().trigger_savepoint(f"{self._args.directory}/savepoints")
            savepoint.add_done_callback(lambda done: done.exception() or say(f"savepoint {done.result()}"))

    def on_restart(self, attempt: int, error: Exception) -> None:
        say(f"restart {attempt}: {type(error).__name__}: {error}".splitlines()[0])


def watch_for_stop(stop: Callable[[], None]) -> None:
    """Call ``stop`` at ``SIGUSR2``, on a thread of its own: a handler may run in the middle of a call."""
    asked = threading.Event()

    def wait() -> None:
        asked.wait()
        say("stopping the context")
        stop()

    threading.Thread(target=wait, daemon=True).start()
    signal.signal(signal.SIGUSR2, lambda *_: asked.set())


def say(line: str) -> None:
    print(line, flush=True)


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--parallelism", type=int, default=2)
    parser.add_argument("--restore")
    parser.add_argument("--savepoint-after", type=int, metavar="EPOCHS")
    parser.add_argument("--forks", action="append", default=[], choices=["driver", "slot"])
    parser.add_argument("--inject", type=int, nargs=2, metavar=("LINE", "PASSAGES"))
    parser.add_argument("--heartbeat-timeout-ms", type=int, default=50_000)
    parser.add_argument("--files", action="store_true", help="keep state in files, however little it is")
    parser.add_argument("--dataframe", action="store_true", help="run keyed_process with initial_state")
    parser.add_argument("--engine", default="STAGES")
    parser.add_argument("--backend", default="hashmap")
    parser.add_argument("--target", choices=killed_connectors.TARGETS)
    parser.add_argument("--server", default="", help="the address of the target's server")
    parser.add_argument("--kill-publishing", nargs=2, metavar=("before|after", "PASSAGES"))
    parser.add_argument("--java-options", default=QUICK)
    return parser.parse_args(arguments)


def session_of(master: str, java_options: str) -> SparkSession:
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.driver.defaultJavaOptions", java_options)
    builder = builder.config("spark.executor.defaultJavaOptions", java_options)
    for variable in ("PYTHONPATH", "PYSPARK_PYTHON", "KILL_ROUND"):
        if variable in os.environ:
            builder = builder.config(f"spark.executorEnv.{variable}", os.environ[variable])
    session = builder.config("spark.task.maxFailures", "4").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def build(env: StreamExecutionEnvironment, args: argparse.Namespace) -> None:
    env.set_parallelism(args.parallelism).set_max_parallelism(16)
    settings = {
        "pyflinkstate.engine": args.engine,
        "state.backend.type": args.backend,
        "state.backend.rocksdb.localdir": f"{args.directory}/scratch",
        "state.backend.rocksdb.memory.fixed-per-slot": "20 kb",
    }
    env.configure(Configuration.from_dict(settings))
    env.enable_checkpointing(0, f"{args.directory}/checkpoints", incremental=True, num_retained=2)
    if args.files:
        storage = FileSystemCheckpointStorage(f"{args.directory}/checkpoints", 0)
        env.get_checkpoint_config().set_checkpoint_storage(storage)
    env.get_checkpoint_config().enable_incremental_checkpoints(materialization_interval=4)
    delay_ms = DELAY_MS if args.server or args.backend == "rocksdb" else 0
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(100, delay_ms))
    env.set_heartbeat(args.heartbeat_timeout_ms // 5, args.heartbeat_timeout_ms)
    if args.restore:
        env.restore_from(args.restore)
    if args.engine == "STAGES":
        records = env.from_collection(RECORDS, records_per_epoch=RECORDS_PER_EPOCH)
    else:
        records = env.from_source(Feed(), source_name="feed")
    remember = Remember(Path(args.directory, "children") if "slot" in args.forks else None)
    kept = records.key_by(lambda record: record[0], Types.LONG()).process(remember).uid("remember")
    # A second keyed operator, by another key: rows pass through it unchanged.
    again = kept.key_by(lambda row: row[1] % 5, Types.LONG()).process(Passing()).uid("passing")
    if args.target is None:
        again.sink_to(FileSink(f"{args.directory}/out"))
        return
    kill = (args.kill_publishing[0], int(args.kill_publishing[1])) if args.kill_publishing else None
    place = killed_connectors.Place(Path(args.directory), args.server)
    sink = killed_connectors.sink_of(args.target, place, kill, say)
    again.map(killed_connectors.flattened).sink_to(sink)


class Feed(Source):
    """The records, read live but for the last ones."""

    is_bounded = True

    def initial_offset(self) -> int:
        return 0

    def live(self, start: Any) -> SplitEpoch | None:
        is_near = start + RECORDS_PER_EPOCH >= len(RECORDS)
        return None if is_near else SplitEpoch([start], self._read_live, is_live=True)

    def _read_live(self, begin: int, _: object, time: ReadTime) -> Generator[list[Any], None, int]:
        for at in range(begin, begin + RECORDS_PER_EPOCH, PART):
            yield RECORDS[at : at + PART]
            if not time.left_ms():
                break
            time.wait(2)
        return at + PART

    def reached(self, start: Any, positions: list[Any]) -> Any:
        return positions[0]

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(len(RECORDS), is_last=True)

    def plan(self, start: Any, end: Any) -> SplitEpoch:
        return SplitEpoch([(start, end)], lambda split, _: RECORDS[slice(*split)])


def write_input(directory: Path) -> None:
    """Write a file for each epoch, unless an earlier program has. All are there at once."""
    folder, unfinished = directory / "input", directory / "unfinished-input"
    if folder.exists():
        return
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    for epoch in range(EPOCHS):
        records = ROWS[epoch * RECORDS_PER_EPOCH :][:RECORDS_PER_EPOCH]
        path = unfinished / f"{epoch}.json"
        path.write_text("".join(json.dumps({"key": key, "number": n}) + "\n" for key, n in records))
        os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))  # Spark reads the oldest first
    unfinished.rename(folder)


def start_dataframe(session: SparkSession, args: argparse.Namespace, teller: Teller) -> JobClient:
    """Start ``keyed_process``, which goes on by itself from what is below its checkpoint directory."""
    directory = Path(args.directory)
    write_input(directory)
    reader = session.readStream.schema(RECORD_SCHEMA).option("maxFilesPerTrigger", 1)
    keyed_process(
        reader.json(str(directory / "input")),
        key="key",
        function=RememberRows(directory / "children" if "slot" in args.forks else None),
        schema=ROW_SCHEMA,
        key_type=Types.LONG(),
        parallelism=args.parallelism,
        initial_state=session.createDataFrame(INITIAL, RECORD_SCHEMA).coalesce(1),
        then=[KeyedStep(key=lambda row: row[1] % 5, function=Passing(), schema=ROW_SCHEMA)],
        checkpoint_directory=directory / "state",
        on_failure=RestartStrategies.fixed_delay_restart(100, 0),
        listener=teller,
        trigger={"availableNow": True},
        job_name="kill round",
    )
    return keyed_process_queries()[-1].client


def start(session: SparkSession, args: argparse.Namespace, teller: Teller) -> JobClient:
    """Start the job."""
    if args.dataframe:
        return start_dataframe(session, args, teller)
    env = StreamExecutionEnvironment(session)
    env.add_listener(teller)
    build(env, args)
    return env.execute_async("kill round")


def main() -> None:
    faulthandler.register(signal.SIGUSR1)
    args = parsed()
    session = session_of(args.master, args.java_options)
    watch_for_stop(session.sparkContext._jsc.sc().stop)
    say("session")
    if args.inject:
        line, passages = args.inject
        Injection(*LINES[line % len(LINES)], passages, say).install()
    client = start(session, args, teller := Teller(args))
    teller.client.set_result(client)
    client.get_job_execution_result().result()
    session.stop()


class Passing(KeyedProcessFunction):
    """Counts, and emits what came."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Row, ctx: Any) -> Iterator[Row]:
        self.count.update((self.count.value() or 0) + 1)
        yield value


if __name__ == "__main__":
    main()
