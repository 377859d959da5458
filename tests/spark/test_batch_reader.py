"""Spark's batch reader between offsets as a source, with a stand-in for Kafka's."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from operators import PATIENCE_S, RunningSum, rows_in, running_sums
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from test_recovery import Recorder

from pyflinkstate import (
    CheckpointStats,
    EpochStats,
    FileSink,
    JobClient,
    JobExecutionResult,
    RestartStrategies,
    StreamExecutionEnvironment,
    errors,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_slot_left", "topics"),
]

#: What Kafka's reader takes in the place of an offset.
LATEST, EARLIEST = -1, -2


class Range(InputPartition):
    """What one Spark task reads."""

    def __init__(self, topic: str, partition: int, begin: int, end: int) -> None:
        self.topic, self.partition, self.begin, self.end = topic, partition, begin, end


class TopicReader(DataSourceReader):
    """Reads what lies between two offsets, and is as strict about them as Kafka's reader."""

    def __init__(self, options: Any) -> None:
        self.folder = Path(options["path"])
        self.begins = options["startingoffsets"]
        self.ends = options["endingoffsets"]

    def partitions(self) -> list[InputPartition]:
        begins, ends = self._resolve(self.begins), self._resolve(self.ends)
        return [Range(*name, begins[name], ends[name]) for name in begins]

    def _resolve(self, option: str) -> dict[tuple[str, int], int]:
        words = {"latest": LATEST, "earliest": EARLIEST}
        existing = {name: (first, first + count) for name, (first, count) in _extents(self.folder).items()}
        if option in words:
            asked = dict.fromkeys(existing, words[option])
        else:
            topics = json.loads(option).items()
            asked = {(topic, int(part)): offset for topic, parts in topics for part, offset in parts.items()}
        assert asked.keys() == existing.keys(), (
            f"If startingOffsets contains specific offsets, you must specify all TopicPartitions. "
            f"Specified: {sorted(asked)} Assigned: {sorted(existing)}"
        )
        known = {EARLIEST: 0, LATEST: 1}
        return {
            name: existing[name][known[offset]] if offset in known else offset
            for name, offset in asked.items()
        }

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        part: Range = partition
        assert part.begin <= part.end, (
            f"Beginning offset {part.begin} is after the ending offset {part.end} for topic {part.topic} "
            f"partition {part.partition}"
        )
        log = json.loads((self.folder / f"{part.topic}-{part.partition}.json").read_text())
        for offset in range(part.begin, part.end):
            key, number = log["records"][offset - log["first"]]
            yield part.topic, part.partition, offset, key, number


class TopicSource(DataSource):
    """The format ``topics``: a folder with a file for each partition of each topic."""

    @classmethod
    def name(cls) -> str:
        return "topics"

    def schema(self) -> str:
        return "topic string, partition int, offset long, key string, number long"

    def reader(self, schema: Any) -> DataSourceReader:
        return TopicReader(self.options)


def _extents(folder: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the first offset of each partition, and how many records it has."""
    found = {}
    for path in sorted(folder.glob("[!.]*.json")):
        log = json.loads(path.read_text())
        topic, _, partition = path.stem.rpartition("-")
        found[topic, int(partition)] = (log["first"], len(log["records"]))
    return found


class Topics:
    """A broker's end of it: partitions that grow while a job reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.records: list[tuple[str, int]] = []

    def append(self, partition: int, count: int, *, first: int = 0) -> None:
        """Append records with keys that are this partition's own. ``first`` is a new one's first offset."""
        path = self.folder / f"orders-{partition}.json"
        log = json.loads(path.read_text()) if path.exists() else {"first": first, "records": []}
        numbers = range(len(log["records"]), len(log["records"]) + count)
        added = [(f"p{partition}-{number % 3}", number) for number in numbers]
        unfinished = self.folder / f".orders-{partition}.json"
        unfinished.write_text(json.dumps({**log, "records": [*log["records"], *added]}))
        unfinished.rename(path)
        self.records += added

    def end_offsets(self, start: Any) -> Any:
        """Return what a Kafka client's ``end_offsets`` gives, as the reader wants it."""
        extents = _extents(self.folder).items()
        return {"orders": {str(partition): first + count for (_, partition), (first, count) in extents}}


class Program:
    """Running sums of all topics, stopped with a savepoint when everything is committed."""

    def __init__(self, spark: Any, topics: Topics, folder: Path) -> None:
        self.spark = spark
        self.topics = topics
        self.folder = folder
        self.loaded: list[tuple[str, str]] = []
        #: Where to begin with partitions that an offset does not name.
        self.unnamed: dict[str, int] = {}

    def load(self, start: str, end: str) -> Any:
        self.loaded.append((start, end))
        if start != "earliest" and self.unnamed:
            start = json.dumps({"orders": {**self.unnamed, **json.loads(start)["orders"]}})
        reader = self.spark.read.format("topics").option("startingOffsets", start)
        return reader.option("endingOffsets", end).load(str(self.topics.folder))

    def run(
        self,
        listener: Until,
        restore: str | None = None,
        latest: Callable[[Any], Any] | None = None,
        max_records_per_epoch: int | None = None,
        function: RunningSum | None = None,
    ) -> tuple[JobExecutionResult, str]:
        env = StreamExecutionEnvironment(self.spark).set_parallelism(2)
        env.enable_checkpointing(0, str(self.folder / "checkpoints"))
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1, 0))
        env.set_default_savepoint_directory(str(self.folder / "savepoints"))
        env.add_listener(listener)
        env.restore_from(restore)
        source = env.from_batch_reader(
            self.load, latest=latest, max_records_per_epoch=max_records_per_epoch
        ).map(lambda row: (row.key, row.number))
        sums = source.key_by(lambda record: record[0]).process(function or RunningSum()).uid("sums")
        sums.sink_to(FileSink(str(self.folder / "output")))
        listener.whole = lambda: sum(self.rows().values()) >= len(self.topics.records)
        client = env.execute_async("sums")
        savepoint = listener.stop(client)
        return client.get_job_execution_result().result(PATIENCE_S), savepoint

    def rows(self) -> Counter[str]:
        return rows_in(self.folder / "output")

    def expected(self) -> Counter[str]:
        return Counter(f'["{key}",{total}]' for key, total in running_sums(self.topics.records))


class Until(Recorder):
    """Notes how many records each run of an epoch had, and when all of them are committed."""

    def __init__(self, after: dict[int, Callable[[], None]] | None = None) -> None:
        super().__init__(after)
        self.records: dict[int, list[int]] = defaultdict(list)
        self.whole: Callable[[], bool] = lambda: False
        self._done = threading.Event()

    def on_epoch(self, stats: EpochStats) -> None:
        self.records[stats.epoch].append(stats.records)
        super().on_epoch(stats)

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        super().on_checkpoint(stats)
        if not self.after and self.whole():
            self._done.set()

    def stop(self, client: JobClient) -> str:
        """Stop the job when all is there; returns the savepoint. A job that fails raises its error."""
        result = client.get_job_execution_result()
        result.add_done_callback(lambda _: self._done.set())
        assert self._done.wait(PATIENCE_S)
        if result.done():
            result.result()
        return client.stop_with_savepoint().result(PATIENCE_S)


@pytest.fixture
def topics(tmp_path: Path, spark: Any) -> Topics:
    spark.dataSource.register(TopicSource)
    return Topics(tmp_path / "topics")


@pytest.fixture
def program(spark: Any, topics: Topics, tmp_path: Path) -> Program:
    return Program(spark, topics, tmp_path)


class DiesOnce(RunningSum):
    """A running sum whose slot is killed by one record, the first time that it comes."""

    def __init__(self, fatal: int, died: Path) -> None:
        self.fatal = fatal
        self.died = died

    def process_element(self, value: tuple[Any, int], ctx: Any) -> Iterator[tuple[Any, int]]:
        if value[1] == self.fatal and not self.died.exists():
            self.died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        yield from super().process_element(value, ctx)


def test_an_epoch_that_is_run_again_has_the_same_records(
    program: Program, topics: Topics, tmp_path: Path
) -> None:
    """The slot dies in the second read. When it runs again there is more, which is left for the third."""
    topics.append(0, 12)

    class MoreAfterRestart(Until):
        def on_checkpoint(self, stats: CheckpointStats) -> None:
            # Only now: a slot that died before this checkpoint was complete would read the first epoch again.
            if not self.checkpoints:
                topics.append(0, 8)
            super().on_checkpoint(stats)

        def on_restart(self, attempt: int, error: Exception) -> None:
            super().on_restart(attempt, error)
            topics.append(0, 9)

    listener = MoreAfterRestart()
    result, _ = program.run(listener, function=DiesOnce(15, tmp_path / "died"))
    assert result.restarts == 1
    assert program.rows() == program.expected()
    counts = [count for runs in listener.records.values() for count in runs if count]
    assert counts == [12, 8, 9]
    second = ('{"orders": {"0": 12}}', '{"orders": {"0": 20}}')
    assert program.loaded.count(second) == 2, "read once, and again after the restart"


def test_an_epoch_has_no_more_records_than_it_may(program: Program, topics: Topics) -> None:
    topics.append(0, 5)
    topics.append(1, 11)
    listener = Until()
    program.run(listener, max_records_per_epoch=8)
    assert program.rows() == program.expected()
    counts = [count for epoch in listener.records.values() for count in epoch if count]
    assert max(counts) <= 8
    assert counts[:2] == [8, 5], "four of each partition, then what is left of one and four of the other"


def test_the_newest_offsets_can_be_told(program: Program, topics: Topics) -> None:
    topics.append(0, 9)
    ends = iter([4, 4, 9])
    asked: list[Any] = []

    def latest(start: Any) -> Any:
        asked.append(start)
        return {"orders": {"0": next(ends, 9)}}

    listener = Until()
    program.run(listener, latest=latest)
    assert asked[:3] == ["earliest", {"orders": {"0": 4}}, {"orders": {"0": 4}}]
    assert [count for epoch in listener.records.values() for count in epoch][:2] == [4, 5]
    assert program.loaded[0] == ("earliest", '{"orders": {"0": 4}}'), "nothing is read to find the end"
    assert program.rows() == program.expected()


class TestLikeKafka:
    """Kafka's reader wants every partition named, and no end before its beginning."""

    def test_a_partition_that_is_empty_as_yet(self, program: Program, topics: Topics) -> None:
        topics.append(0, 4)
        topics.append(1, 0)
        program.run(Until({1: lambda: topics.append(1, 3)}), latest=topics.end_offsets)
        assert program.rows() == program.expected()

    def test_a_partition_that_is_added(self, program: Program, topics: Topics) -> None:
        """It is an error until ``load`` names it; then the job goes on where it was."""
        topics.append(0, 4)
        _, savepoint = program.run(Until(), latest=topics.end_offsets)
        topics.append(1, 3)
        with pytest.raises(errors.JobFailedError, match="you must specify all TopicPartitions"):
            program.run(Until(), restore=savepoint, latest=topics.end_offsets)
        program.unnamed = {"0": EARLIEST, "1": EARLIEST}
        program.run(Until(), restore=savepoint, latest=topics.end_offsets)
        assert program.rows() == program.expected()

    def test_what_is_oldest_was_deleted_long_ago(self, program: Program, topics: Topics) -> None:
        topics.append(0, 6, first=1000)
        listener = Until()
        program.run(listener, max_records_per_epoch=4)
        assert program.rows() == program.expected()
        assert [count for epoch in listener.records.values() for count in epoch if count] == [4, 2]
