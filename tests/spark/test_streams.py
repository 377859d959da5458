"""Streams on a real local Spark: operators, sources, results."""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from operators import History, RunningSum, running_sums
from pyspark import RDD
from slot_functions import Place
from tiers import cases

from pyflinkstate import (
    DataStream,
    FileSink,
    StreamExecutionEnvironment,
)
from pyflinkstate.errors import CheckpointNotFoundError
from pyflinkstate.runtime.sinks import DriverSink

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

RECORDS = [(f"key-{n * 7 % 11}", n) for n in range(500)]


@pytest.fixture
def env(spark: object) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(spark).set_parallelism(2)  # type: ignore[arg-type]


def by_key(record: tuple[str, int]) -> str:
    return record[0]


@pytest.mark.quick
@pytest.mark.parametrize("parallelism", cases([1, 2, 5], quick=[2]))
def test_results_do_not_depend_on_parallelism(env: StreamExecutionEnvironment, parallelism: int) -> None:
    env.set_parallelism(parallelism)
    with env.from_collection(RECORDS).key_by(by_key).process(RunningSum()).execute_and_collect() as results:
        assert Counter(results) == Counter(running_sums(RECORDS))


def test_each_keys_records_come_in_order_from_several_partitions(env: StreamExecutionEnvironment) -> None:
    rdd = env._context.parallelize(RECORDS, 4)
    results = list(env.from_rdd(rdd).key_by(by_key).process(History()).execute_and_collect())
    assert len(results) == len(RECORDS)
    for key, seen in results:
        expected = [number for name, number in RECORDS if name == key]
        assert list(seen) == expected[: len(seen)]


def test_keyed_stages_can_be_chained(env: StreamExecutionEnvironment) -> None:
    first = env.from_collection(RECORDS).key_by(by_key).process(RunningSum()).name("first")
    second = first.key_by(lambda pair: pair[1] % 3).process(History()).name("second")
    results = list(second.map(lambda pair: (pair[0], pair[1][-1])).execute_and_collect())
    expected = Counter((total % 3, total) for _, total in running_sums(RECORDS))
    assert Counter(results) == expected


def test_results_as_rdd_and_as_dataframe(env: StreamExecutionEnvironment) -> None:
    sums = env.from_collection(RECORDS).key_by(by_key).process(RunningSum())
    rdd = sums.to_rdd()
    assert Counter(rdd.collect()) == Counter(running_sums(RECORDS))
    assert rdd.count() == len(RECORDS), "a second action does not run the job again"
    frame = sums.to_dataframe("name string, total long")
    assert frame.columns == ["name", "total"]
    expected = running_sums(RECORDS)
    assert frame.groupBy().max("total").first()[0] == max(total for _, total in expected)


def test_a_dataframe_as_source(env: StreamExecutionEnvironment, spark: object) -> None:
    frame = spark.createDataFrame(RECORDS, "name string, n long").repartition(3)  # type: ignore[attr-defined]
    stream = env.from_dataframe(frame).map(lambda row: (row.name, row.n)).key_by(by_key)
    results = list(stream.process(RunningSum()).execute_and_collect())
    last = {key: max(total for name, total in results if name == key) for key, _ in RECORDS}
    assert last == {key: sum(n for name, n in RECORDS if name == key) for key, _ in RECORDS}


def test_print_names_the_subtask(env: StreamExecutionEnvironment, capsys: pytest.CaptureFixture[str]) -> None:
    env.from_collection(["a"]).key_by(str).map(str.upper).print("out")
    env.from_collection(["b"]).map(str.upper).print()
    env.from_collection(["c"]).map(str.upper).print().set_parallelism(1)
    env.execute()
    assert sorted(capsys.readouterr().out.splitlines()) == ["1> B", "C", "out:2> A"]


def test_a_limit_ends_the_job_early(env: StreamExecutionEnvironment) -> None:
    stream = env.from_collection(RECORDS).key_by(by_key).process(RunningSum())
    assert len(list(stream.execute_and_collect(limit=3))) == 3


def test_sinks_wait_while_jobs_run_that_are_not_theirs(env: StreamExecutionEnvironment) -> None:
    """Those of ``to_rdd()``, ``to_dataframe()``, and the one that computes a cached stream."""
    seen: list[int] = []
    numbers = env.from_collection([1, 2])
    numbers.sink_to(DriverSink(lambda _, values: seen.extend(values)))
    assert sorted(numbers.to_rdd().collect()) == [1, 2]
    assert numbers.map(lambda n: (n,)).to_dataframe("n long").count() == 2
    cached = numbers.map(lambda n: n * 10).cache()
    assert sorted(cached.to_rdd().collect()) == [10, 20]
    assert seen == []
    assert sorted(cached.execute_and_collect()) == [10, 20]
    assert seen == [1, 2]


def test_a_job_for_spark_that_cannot_be_started_leaves_what_is_to_be_restored(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(0, str(tmp_path))
    schema = "key string, total long"

    def sums() -> DataStream:
        return env.from_collection(RECORDS).key_by(by_key).process(RunningSum()).uid("sums")

    assert sums().to_rdd("sums").count() == len(RECORDS)
    env.restore_from("latest")
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'another'"):
        sums().to_dataframe(schema, "another")
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'another'"):
        sums().to_rdd("another")
    assert sums().to_dataframe(schema, "sums").count() == 0  # its input had been read
    assert sums().to_dataframe(schema, "sums").count() == len(RECORDS)


def test_a_cached_stream_is_computed_anew_and_what_is_to_be_restored_waits_for_its_readers(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    env.enable_checkpointing(0, str(tmp_path))
    cached = env.from_collection([1, 2]).map(lambda n: n * 10).cache()
    assert sorted(cached.to_rdd("tens").collect()) == [10, 20]
    cached.invalidate()
    env.restore_from("latest")
    assert cached.to_rdd("tens").collect() == []  # the job had read it to its end


@pytest.mark.quick
def test_functions_of_an_rdd_run_in_the_worker_that_reads_it(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    """Also in an epoch of some of its partitions, which keep their numbers."""
    rows = of_an_rdd_in_three_epochs(env, tmp_path, env._context.parallelize(range(12), 6))
    assert sorted((partition, n) for partition, n, *_ in rows) == [(n // 2, n) for n in range(12)]
    assert all(made_in == read_in for *_, made_in, read_in in rows)


def test_a_cached_rdd_is_read_from_the_cache(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    made = env._context.accumulator(0)

    def counted(number: int) -> int:
        made.add(1)
        return number

    numbers = env._context.parallelize(range(12), 6).map(counted).cache()
    assert numbers.count() == made.value == 12
    rows = of_an_rdd_in_three_epochs(env, tmp_path, numbers)
    assert sorted((partition, n) for partition, n, *_ in rows) == [(n // 2, n) for n in range(12)]
    assert made.value == 12


def of_an_rdd_in_three_epochs(
    env: StreamExecutionEnvironment, folder: Path, rdd: RDD[int]
) -> list[list[int]]:
    """Return partition, number, process that made the row, and process that read it for the stream."""

    def numbered(partition: int, numbers: Iterable[int]) -> Iterator[tuple[int, int, int]]:
        return ((partition, number, os.getpid()) for number in numbers)

    env.enable_checkpointing(0, str(folder / "checkpoints"))
    stream = env.from_rdd(rdd.mapPartitionsWithIndex(numbered), partitions_per_epoch=2)
    stream.map(lambda row: [*row, os.getpid()]).sink_to(FileSink(str(folder / "output")))
    assert env.execute("numbered").epochs == 3
    files = (folder / "output").glob("epoch=*/*.jsonl")
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def test_records_go_to_the_subtasks_that_partitioners_name(env: StreamExecutionEnvironment) -> None:
    rdd = env._context.parallelize(range(12), 4)
    numbers = env.from_rdd(rdd).map(lambda n: n)
    streams = [
        numbers.partition_custom(lambda key, count: key % count, lambda n: n).map(Place()).set_parallelism(3),
        numbers.broadcast().map(Place()),
        numbers.global_().map(Place()).set_parallelism(3),
        numbers.rebalance().map(Place()).set_parallelism(4),
    ]
    numbered = [
        stream.map(lambda row, number=number: (number, *row)) for number, stream in enumerate(streams)
    ]
    found: dict[int, list[Any]] = defaultdict(list)
    with numbered[0].union(*numbered[1:]).execute_and_collect() as results:
        for number, *row in results:
            found[number].append(tuple(row))
    custom, copied, first, even = (sorted(found[number]) for number in range(4))
    assert custom == [(n, n % 3, 3) for n in range(12)]
    assert copied == [(n, subtask, 2) for n in range(12) for subtask in range(2)]
    assert first == [(n, 0, 3) for n in range(12)]
    assert [value for value, *_ in even] == list(range(12))
    assert Counter(tuple(place) for _, *place in even) == {(subtask, 4): 3 for subtask in range(4)}


@pytest.mark.parametrize(("partitions_per_epoch", "epochs"), [(None, 1), (1, 4), (3, 2)])
def test_partitions_per_epoch_cut_epochs_without_checkpoints_too(
    env: StreamExecutionEnvironment, partitions_per_epoch: int | None, epochs: int
) -> None:
    rdd = env._context.parallelize(range(12), 4)
    for stream in (
        env.from_rdd(rdd, partitions_per_epoch=partitions_per_epoch),
        env.from_dataframe(env._spark.range(0, 12, 1, 4), partitions_per_epoch=partitions_per_epoch),
    ):
        stream.sink_to(DriverSink(lambda _, values: None))
        assert env.execute("epochs").epochs == epochs
