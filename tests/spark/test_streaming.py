"""Structured Streaming as a source: exactly once over kills, and whatever is lost on either side."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from operators import PATIENCE_S, RunningSum, rows_in, running_sums
from test_recovery import Recorder

from pyflinkstate import (
    CheckpointedFunction,
    CheckpointStats,
    FileSink,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    JobClient,
    JobExecutionResult,
    JobListener,
    KeyedProcessFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
    Types,
    ValueStateDescriptor,
    errors,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_slot_left", "no_query_left"),
]

AVAILABLE_NOW = {"availableNow": True}
OFTEN = {"processingTime": "100 milliseconds"}
#: Each batch has its checkpoint, whatever the interval.
RARELY = 10**7


class JsonFolder:
    """A folder that a streaming query reads. Each file has keys that all have, and one of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.path.mkdir()
        self.records: list[tuple[str, int]] = []
        self._files = 0

    def add(self, files: int = 1) -> None:
        """Add files: whole when they are seen, and with times that say their order."""
        for number in range(self._files, self._files + files):
            records = [(f"key-{n % 3}", 1) for n in range(8)] + [(f"only-in-{number}", 1)] * 2
            lines = [json.dumps({"key": key, "n": n}) for key, n in records]
            unfinished = self.path / f".{number}.json"
            unfinished.write_text("\n".join(lines) + "\n")
            os.utime(unfinished, (1_700_000_000 + number, 1_700_000_000 + number))
            unfinished.rename(self.path / f"{number}.json")
            self.records += records
        self._files += files

    def stream(self, spark: Any, files_per_batch: int = 1) -> Any:
        reader = spark.readStream.schema("key string, n long").option("maxFilesPerTrigger", files_per_batch)
        return reader.json(str(self.path))


def by_key(record: tuple[str, int]) -> str:
    return record[0]


class Streaming:
    """A program that is run again and again: running sums of a folder's files, one file a batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.input = JsonFolder(folder / "input")
        self.checkpoints = folder / "checkpoints"
        self.output = folder / "output"

    def start(
        self,
        *,
        restore: str | None = None,
        listener: JobListener | None = None,
        function: KeyedProcessFunction | None = None,
        restarts: int = 0,
        tolerable: int = 0,
        num_retained: int = 1,
        location: Path | None = None,
        files_per_batch: int = 1,
        trigger: dict[str, Any] = AVAILABLE_NOW,
    ) -> StreamExecutionEnvironment:
        """Return an environment that is ready to be executed."""
        env = StreamExecutionEnvironment(self.spark).set_parallelism(2)
        env.enable_checkpointing(
            RARELY,
            str(self.checkpoints),
            incremental=True,
            num_retained=num_retained,
            tolerable_failures=tolerable,
        )
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 0))
        if listener is not None:
            env.add_listener(listener)
        env.restore_from(restore)
        where = None if location is None else str(location)
        stream = self.input.stream(self.spark, files_per_batch)
        source = env.from_streaming(stream, checkpoint_location=where, trigger=trigger)
        sums = (
            source.map(lambda row: (row.key, row.n))
            .key_by(by_key, Types.STRING())
            .process(function or RunningSum())
            .uid("sums")
        )
        sums.sink_to(FileSink(str(self.output)))
        return env

    def run(self, **settings: Any) -> JobExecutionResult:
        return self.start(**settings).execute("sums")

    def stop_with_savepoint(self, directory: Path, **settings: Any) -> str:
        """Run until two epochs have; returns the savepoint."""
        requests: list[Any] = []
        stop = Recorder({2: lambda: requests.append(client.stop_with_savepoint())})
        env = self.start(listener=stop, trigger=OFTEN, **settings)
        client = env.set_default_savepoint_directory(str(directory)).execute_async("sums")
        client.get_job_execution_result().result(PATIENCE_S)
        savepoint: str = requests[0].result(0)
        return savepoint

    def rows(self) -> Counter[str]:
        return rows_in(self.output)

    def expected(self) -> Counter[str]:
        return Counter(f'["{key}",{total}]' for key, total in running_sums(self.input.records))

    def folders(self) -> list[Path]:
        """Return the checkpoints, the oldest first."""
        return sorted(self.checkpoints.glob("*/chk-*"), key=lambda path: int(path.name[4:]))

    def log(self, *names: str, batch: int) -> list[Path]:
        """Return the files of a batch in Spark's logs (``offsets``, ``commits``, ``sources/0``)."""
        logs = [self.checkpoints / "spark-sums" / name for name in names]
        return [file for log in logs for file in (log / str(batch), log / f".{batch}.crc") if file.exists()]

    def forget(self, *names: str, batches: range) -> None:
        for batch in batches:
            files = self.log(*names, batch=batch)
            assert files
            for file in files:
                file.unlink()

    def fails_and_writes_nothing(self, expected: type[Exception], match: str, **settings: Any) -> None:
        before = self.rows(), [path.name for path in self.folders()]
        with pytest.raises(expected, match=match):
            self.run(**settings)
        assert (self.rows(), [path.name for path in self.folders()]) == before


@pytest.fixture
def streaming(spark: Any, tmp_path: Path) -> Streaming:
    return Streaming(spark, tmp_path)


@pytest.fixture
def background() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as executor:
        yield executor


class TestRestarts:
    """Let M be the batch of the newest checkpoint, N the one that Spark goes on with."""

    def test_run_again_it_goes_on_exactly(self, streaming: Streaming) -> None:
        streaming.input.add(2)
        first = streaming.run()
        assert first.epochs == 2, "one batch, one epoch"
        assert streaming.rows() == streaming.expected()
        streaming.input.add(2)
        second = streaming.run()
        assert (second.job_id, second.epochs, second.restarts) == (first.job_id, 4, 0)
        assert second.get_accumulator_result("streaming.records_out") == len(streaming.input.records)
        assert streaming.rows() == streaming.expected()
        third = streaming.run()
        assert (third.job_id, third.epochs) == (first.job_id, 4), "nothing new, nothing done"
        assert streaming.rows() == streaming.expected()

    def test_a_batch_is_done_for_spark_only_when_its_checkpoint_is_complete(
        self, streaming: Streaming
    ) -> None:
        """The first checkpoint fails. The batch is done with the second, at the end of an empty epoch."""
        streaming.input.add(2)
        seen: list[bool] = []
        recorder = Recorder({2: lambda: seen.append(bool(streaming.log("commits", batch=0)))})
        result = streaming.run(listener=recorder, function=Undecided(), tolerable=1)
        assert seen == [False]
        assert [stats.checkpoint_id for stats in result.failed_checkpoints] == [1]
        assert (result.restarts, result.epochs) == (0, 3)
        assert streaming.rows() == streaming.expected()

    @pytest.mark.parametrize(
        ("files", "forgotten", "batches", "files_per_batch", "epochs"),
        [
            pytest.param(2, ["commits"], range(1, 2), 1, 3, id="M is N: durable, and Spark had not heard"),
            # The source's own log stays, so Spark now cuts one batch of what was two.
            pytest.param(4, ["offsets", "commits"], range(2, 4), 1, None, id="M is newer: Spark set back"),
            # By its number alone the batch looks like the newest one; there is more in it now.
            pytest.param(
                2, ["offsets", "commits", "sources/0"], range(1, 2), 2, None, id="M is newer by one"
            ),
        ],
    )
    def test_spark_has_lost_some_of_its_log(
        self,
        streaming: Streaming,
        files: int,
        forgotten: list[str],
        batches: range,
        files_per_batch: int,
        epochs: int | None,
    ) -> None:
        streaming.input.add(files)
        streaming.run(num_retained=10)
        streaming.forget(*forgotten, batches=batches)
        streaming.input.add()
        result = streaming.run(files_per_batch=files_per_batch)
        assert epochs in (None, result.epochs)
        assert streaming.rows() == streaming.expected()

    def test_a_savepoint_is_restored_into_another_checkpoint_directory(
        self, streaming: Streaming, tmp_path: Path
    ) -> None:
        location = tmp_path / "location"
        streaming.input.add(2)
        savepoint = streaming.stop_with_savepoint(tmp_path / "savepoints", location=location)
        streaming.checkpoints = tmp_path / "elsewhere"
        streaming.input.add()
        streaming.run(restore=savepoint, location=location)
        assert streaming.rows() == streaming.expected()

    def test_a_savepoint_that_covers_more_than_the_newest_checkpoint(
        self, streaming: Streaming, tmp_path: Path
    ) -> None:
        streaming.input.add(2)
        savepoint = streaming.stop_with_savepoint(tmp_path / "savepoints", num_retained=3)
        for folder in streaming.folders()[1:]:
            shutil.rmtree(folder)
        streaming.input.add()
        match = r"batch 2, and .* are of batches 0: .* restore_from\(\) that"
        streaming.fails_and_writes_nothing(errors.IncompatibleCheckpointError, match)
        streaming.run(restore=savepoint)
        assert streaming.rows() == streaming.expected()
        streaming.input.add()
        match = "goes on with batch 3, and the retained checkpoints are of batches 1"
        streaming.fails_and_writes_nothing(errors.IncompatibleCheckpointError, match, restore=savepoint)

    def test_a_job_that_could_not_be_started_can_be_started_again(self, streaming: Streaming) -> None:
        streaming.input.add(2)
        env = streaming.start(restore="latest")
        with pytest.raises(errors.CheckpointNotFoundError, match="has no completed checkpoint"):
            env.execute("sums")
        env.restore_from(None).execute("sums")
        assert streaming.rows() == streaming.expected()

    def test_checkpoints_on_s3_need_a_location_for_spark(self, streaming: Streaming) -> None:
        env = streaming.start()
        env.enable_checkpointing(0, "s3://bucket/checkpoints?endpoint_override=127.0.0.1:1")
        with pytest.raises(errors.ConfigurationError, match=r"s3://bucket.* pass a checkpoint_location"):
            env.execute("sums")

    def test_a_location_that_cannot_be_read_ends_the_job_before_it_begins(
        self, streaming: Streaming, spark: Any
    ) -> None:
        env = StreamExecutionEnvironment(spark).enable_checkpointing(0, str(streaming.checkpoints))
        env.from_streaming(streaming.input.stream(spark), checkpoint_location="nosuch://place").print()
        with pytest.raises(errors.SourceError, match=r"checkpoint location nosuch://place: cannot read"):
            env.execute_async("sums")

    def test_no_data_yet_does_not_keep_the_program_waiting(
        self, streaming: Streaming, background: ThreadPoolExecutor, spark: Any
    ) -> None:
        """Who starts a job beside the program can go on at once, watch it and cancel it."""
        env = streaming.start(trigger=OFTEN)
        started = background.submit(env.execute_async, "sums")
        try:
            client: JobClient = started.result(PATIENCE_S)
        finally:
            for query in spark.streams.active:
                query.stop()
        client.cancel().result(PATIENCE_S)


class Raises(RunningSum):
    """Raises at the sight of a key."""

    def process_element(self, value: Any, ctx: Any) -> Any:
        if value[0] == "only-in-1":
            raise LookupError(f"cannot stand {value[0]}")
        yield from super().process_element(value, ctx)


class Chimes(KeyedProcessFunction):
    """Emits nothing when a record comes, and three times when a timer says so."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.left = runtime_context.get_state(ValueStateDescriptor("left", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        if self.left.value() is None:
            self.left.update(3)
            self.set_timer(ctx)

    def set_timer(self, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        left = (self.left.value() or 0) - 1
        self.left.update(left)
        if left:
            self.set_timer(ctx)
        yield ctx.get_current_key(), left


class WaitsToRing(KeyedProcessFunction):
    """Sets a timer with a key's first record, and again with each that fires, until a file is there."""

    def __init__(self, signal_file: Path) -> None:
        self.signal_file = signal_file

    def open(self, runtime_context: RuntimeContext) -> None:
        self.is_set = runtime_context.get_state(ValueStateDescriptor("is set", Types.BOOLEAN()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        if not self.is_set.value():
            self.is_set.update(True)
            self.set_timer(ctx)

    def set_timer(self, ctx: KeyedProcessFunction.Context) -> None:
        timers = ctx.timer_service()
        timers.register_processing_time_timer(timers.current_processing_time() + 50)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        if self.signal_file.exists():
            yield ctx.get_current_key(), "rung"
        else:
            self.set_timer(ctx)


class Undecided(RunningSum, CheckpointedFunction):
    """Declines the first checkpoint."""

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        return

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if context.get_checkpoint_id() == 1:
            raise OSError("not now")


class Notes(Recorder):
    """Notes the queries that run, and stops them once ``until`` is true after a checkpoint."""

    def __init__(self, spark: Any, until: Callable[[], bool] = lambda: False) -> None:
        super().__init__()
        self.queries: list[Any] = []
        self._spark = spark
        self._until = until

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        super().on_checkpoint(stats)
        self.queries = self.queries or self._spark.streams.active
        if self._until():
            for query in self.queries:
                query.stop()


class TestFailures:
    def test_a_function_that_raises_ends_job_and_query(self, streaming: Streaming, spark: Any) -> None:
        streaming.input.add(3)
        notes = Notes(spark)
        with pytest.raises(errors.UserFunctionError, match="cannot stand only-in-1"):
            streaming.run(function=Raises(), listener=notes)
        (query,) = notes.queries
        assert not query.isActive
        assert "cannot stand only-in-1" in str(query.exception()), "the query tells of it, too"
        assert streaming.run(function=RunningSum()).epochs == 3, "the batch was not lost"
        assert streaming.rows() == streaming.expected()

    def test_a_query_that_is_stopped_ends_the_job(self, streaming: Streaming, spark: Any) -> None:
        streaming.input.add(1)
        notes = Notes(spark, until=lambda: True)
        result = streaming.run(listener=notes, trigger=OFTEN)
        assert result.epochs == 1
        assert streaming.rows() == streaming.expected()
        streaming.input.add(1)
        assert streaming.run().epochs == 2
        assert streaming.rows() == streaming.expected()


class TestIdleTimers:
    def test_they_fire_though_no_more_data_comes(self, streaming: Streaming, spark: Any) -> None:
        streaming.input.add(1)
        keys = {key for key, _ in streaming.input.records}
        chimes = Counter(f'["{key}",{left}]' for key in keys for left in range(3))
        notes = Notes(spark, until=lambda: streaming.rows() == chimes)
        result = streaming.run(listener=notes, function=Chimes(), trigger=OFTEN)
        assert result.epochs > 2, "a batch, and what the timers gave without one"
        assert result.get_accumulator_result("streaming.records_out") == len(streaming.input.records)

    def test_restored_ones_fire_though_no_data_comes(
        self, streaming: Streaming, spark: Any, tmp_path: Path
    ) -> None:
        streaming.input.add(1)
        signal_file = tmp_path / "ring now"
        streaming.run(
            listener=Notes(spark, until=lambda: True), function=WaitsToRing(signal_file), trigger=OFTEN
        )
        assert not streaming.rows()
        signal_file.touch()
        rung = Counter(f'["{key}","rung"]' for key in {key for key, _ in streaming.input.records})
        notes = Notes(spark, until=lambda: streaming.rows() == rung)
        result = streaming.run(listener=notes, function=WaitsToRing(signal_file), trigger=OFTEN)
        assert streaming.rows() == rung
        assert result.get_accumulator_result("streaming.records_out") == len(streaming.input.records)
