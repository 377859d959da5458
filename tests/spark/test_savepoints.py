"""Jobs that run beside the program: savepoints, settings of checkpoints, what a job tells, side by side."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from operators import PATIENCE_S, RunningSum, rows_in, running_sums
from test_recovery import Recorder

from pyflinkstate import (
    Available,
    CheckpointStats,
    EpochStats,
    FileSink,
    FileSystemCheckpointStorage,
    JobClient,
    JobStatus,
    RestartStrategies,
    RuntimeContext,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    Types,
    errors,
)
from pyflinkstate.runtime.wire import SlotId

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

Records = list[tuple[str, int]]


def records(begin: int, end: int) -> Records:
    return [(f"key-{n % 17}", n) for n in range(begin, end)]


class Given(Source):
    """What a test gives while the job runs. All that is there is one epoch."""

    def __init__(self, *given: tuple[str, int]) -> None:
        self.records: Records = list(given)
        self._wake_up: Callable[[], None] = lambda: None
        self._is_over = False

    def give(self, more: Records) -> None:
        self.records = [*self.records, *more]
        self._wake_up()

    def finish(self) -> None:
        self._is_over = True
        self._wake_up()

    def open(self, wake_up: Callable[[], None]) -> None:
        self._wake_up = wake_up

    def initial_offset(self) -> Any:
        return 0

    def latest_offset(self, start: Any, whole: bool) -> Available:
        is_over, end = self._is_over, len(self.records)
        return Available(end, is_over)

    def plan(self, start: Any, end: Any) -> SplitEpoch:
        return SplitEpoch([self.records[start:end]], lambda split, _: split)


def by_key(record: tuple[str, int]) -> str:
    return record[0]


class Watch(Recorder):
    """Notes what happens; a test may wait for something to be true of it."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: list[EpochStats] = []
        self.ended: list[JobStatus] = []
        self._changed = threading.Condition()

    def on_epoch(self, stats: EpochStats) -> None:
        self._note(lambda: self.epochs.append(stats))

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        self._note(lambda: self.checkpoints.append(stats))

    def on_end(self, status: JobStatus) -> None:
        self._note(lambda: self.ended.append(status))

    def _note(self, note: Callable[[], None]) -> None:
        with self._changed:
            note()
            self._changed.notify_all()

    def until(self, reached: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: reached() or bool(self.ended), PATIENCE_S)
        assert reached(), f"the job has ended: {self.ended}"


@attrs.define
class Program:
    """Environments on one folder, and what came of their jobs."""

    spark: Any
    folder: Path
    clients: list[JobClient] = attrs.Factory(list)

    def start(self, env: StreamExecutionEnvironment, name: str = "sums") -> JobClient:
        self.clients.append(env.execute_async(name))
        return self.clients[-1]

    def environment(self, interval: int = 0, parallelism: int = 2) -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment(self.spark).set_parallelism(parallelism)
        env.enable_checkpointing(interval, str(self.folder / "checkpoints"))
        env.set_default_savepoint_directory(str(self.folder / "savepoints"))
        return env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))

    def sums(self, env: StreamExecutionEnvironment, source: Source, function: Any = None) -> None:
        """Have running sums written into files."""
        keyed = env.from_source(source).key_by(by_key, Types.STRING())
        keyed.process(function or RunningSum()).uid("sums").sink_to(FileSink(str(self.folder / "sums")))

    def rows(self, name: str = "sums") -> Counter[str]:
        return rows_in(self.folder / name)

    def is_whole(self, source: Given) -> Callable[[], bool]:
        """Return what is true when all that was given is committed."""
        return lambda: sum(self.rows().values()) >= len(source.records)


def as_rows(pairs: Iterable[tuple[Any, int]]) -> Counter[str]:
    return Counter(f'["{key}",{number}]' for key, number in pairs)


@pytest.fixture
def program(spark: Any, tmp_path: Path) -> Iterator[Program]:
    made = Program(spark, tmp_path)
    yield made
    for client in made.clients:
        client.cancel().result(PATIENCE_S)


class TestCheckpointConfig:
    @pytest.mark.parametrize("damaged", ["_metadata", "a state file"])
    def test_back_to_the_one_before_a_damaged_one(self, program: Program, damaged: str) -> None:
        source, watch = Given(*records(0, 20)), Watch()

        def environment(fall_back: bool) -> StreamExecutionEnvironment:
            env = program.environment()
            storage = FileSystemCheckpointStorage(str(program.folder / "checkpoints"), 0)
            env.enable_checkpointing(0, storage, num_retained=3)
            env.get_checkpoint_config().enable_fall_back(fall_back)
            program.sums(env, source)
            return env

        client = program.start(environment(fall_back=False).add_listener(watch))
        watch.until(program.is_whole(source))
        source.give(records(20, 40))
        watch.until(program.is_whole(source))
        client.cancel().result(PATIENCE_S)
        uri = watch.checkpoints[-1].uri
        assert uri is not None
        names = sorted(os.listdir(uri), key=lambda name: (name == "_metadata") != (damaged == "_metadata"))
        path = Path(uri, names[0])
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        source.give(records(40, 60))
        source.finish()
        with pytest.raises(errors.CorruptCheckpointError, match=path.name):
            environment(fall_back=False).restore_from("latest").execute("sums")
        result = environment(fall_back=True).restore_from("latest").execute("sums")
        assert result.restarts == (0 if damaged == "_metadata" else 1)
        assert result.get_accumulator_result("source.records_out") == 60
        assert program.rows() == as_rows(running_sums(source.records))


class TestForeachEpoch:
    def test_records_are_computed_once_however_many_actions(self, program: Program) -> None:
        seen: list[tuple[int, int, int, list[Any]]] = []
        env = program.environment()
        source = env.from_collection(records(0, 40), records_per_epoch=20)
        keyed = source.map(Marks(program.folder / "marks")).key_by(by_key)

        def look(df: Any, epoch: int) -> None:
            df.write.mode("overwrite").parquet(str(program.folder / "table" / f"epoch={epoch}"))
            seen.append((epoch, df.count(), df.where("n % 2 = 0").count(), df.columns))

        keyed.map(Marks(program.folder / "more")).foreach_epoch(look, "key string, n long")
        env.execute()
        assert seen == [(1, 20, 10, ["key", "n"]), (2, 20, 10, ["key", "n"])]
        table = program.spark.read.parquet(str(program.folder / "table"))
        assert Counter(map(tuple, table.select("key", "n").collect())) == Counter(records(0, 40))
        for marks in ("marks", "more"):
            lines = (program.folder / marks).read_text().splitlines()
            assert sorted(map(int, lines)) == list(range(40))


class Marks:
    """A map function that leaves a line in a file for each record it sees."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __call__(self, record: tuple[str, int]) -> tuple[str, int]:
        with self.path.open("a") as file:
            file.write(f"{record[1]}\n")
        return record


class TestFileSinks:
    @pytest.mark.parametrize("format", ["parquet", "csv"])
    def test_spark_reads_what_was_written(self, program: Program, format: str) -> None:
        env, folder = program.environment(), str(program.folder / "out")
        source = env.from_collection(records(0, 60), records_per_epoch=20)
        sums = source.key_by(by_key).process(RunningSum()).uid("sums")
        sums.sink_to(FileSink(folder, format, ["key", "total"]))
        env.execute()
        reader = program.spark.read.option("header", True).schema("key string, total long, epoch int")
        frame = reader.format(format).load(folder)
        expected = running_sums(records(0, 60))
        assert Counter(map(tuple, frame.select("key", "total").collect())) == Counter(expected)
        by_epoch = frame.groupBy("epoch").count().collect()
        assert {row["epoch"]: row["count"] for row in by_epoch} == {1: 20, 2: 20, 3: 20}


class TestSideBySide:
    def test_two_jobs_one_of_which_loses_a_slot(self, program: Program) -> None:
        others = Program(program.spark, program.folder / "others")
        sources = [Given(*records(0, 40)), Given(*records(500, 540))]
        clients = []
        watches = [Watch(), Watch()]
        for room, source, watch in zip([program, others], sources, watches, strict=True):
            env = room.environment().add_listener(watch)
            room.sums(env, source)
            clients.append(program.start(env))
        for watch in watches:
            watch.until(lambda watch=watch: bool(watch.checkpoints))  # type: ignore[misc]
        pids = clients[0].slot_pids()
        assert set(pids) == {SlotId("sums", 0), SlotId("sums", 1)}
        assert not set(pids.values()) & set(clients[1].slot_pids().values())
        os.kill(pids[SlotId("sums", 0)], signal.SIGKILL)
        for source in sources:
            source.give(records(900, 930))
            source.finish()
        results = [client.get_job_execution_result().result(PATIENCE_S) for client in clients]
        assert [result.restarts for result in results] == [1, 0], [watch.restarts for watch in watches]
        for room, source in zip([program, others], sources, strict=True):
            assert room.rows() == as_rows(running_sums(source.records))


class Talks(RunningSum):
    """Prints, logs, and counts what it sees."""

    def open(self, runtime_context: RuntimeContext) -> None:
        super().open(runtime_context)
        group = runtime_context.get_metrics_group().add_group("numbers")
        self.even = group.counter("even")
        self.sizes = group.distribution("sizes")

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] % 2 == 0:
            self.even.inc()
        self.sizes.update(value[1])
        if value[1] == 7:
            print("seven is here")
            logging.getLogger("shop").warning("seven of %d", 20)
        yield from super().process_element(value, ctx)


class TestWhatAJobTells:
    def test_prints_logs_and_metrics(self, program: Program, caplog: pytest.LogCaptureFixture) -> None:
        env = program.environment()
        source = env.from_collection(records(0, 20), records_per_epoch=10)
        source.key_by(by_key).process(Talks()).name("talks").uid("sums").print()
        with caplog.at_level(logging.INFO, "pyflinkstate.slots"):
            result = env.execute("sums")
        told = [record for record in caplog.records if record.name == "pyflinkstate.slots"]
        lines = [(record.levelno, record.getMessage().partition(": ")[2]) for record in told]
        assert (logging.INFO, "seven is here") in lines
        assert (logging.WARNING, "shop: seven of 20") in lines
        assert all(record.getMessage().startswith("sums[") for record in told)
        assert result.metrics["talks.numbers.even"].count == 10
        sizes = result.metrics["talks.numbers.sizes"]
        assert (sizes.count, sizes.total, sizes.minimum, sizes.maximum) == (20, 190, 0, 19)
