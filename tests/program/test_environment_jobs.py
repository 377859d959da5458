"""How an environment makes jobs of what was built, and when that is used up."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from local_environment import local_environment
from operators import RunningSum
from support_job import Heard
from support_runtime import PATIENCE_S

from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.time import TimestampAssigner, WatermarkStrategy
from pyflinkstate.api.window_assigners import TumblingEventTimeWindows
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    ParallelismError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.program.data_stream import DataStream
from pyflinkstate.runtime.program.environment import StreamExecutionEnvironment
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointingMode
from pyflinkstate.runtime.settings.restart import JobStatus
from pyflinkstate.runtime.sinks.file_sink import FileSink
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources import NumberSequenceSource

pytestmark = pytest.mark.usefixtures("forked_slots")

PAIRS = [("a", 1), ("b", 5), ("a", 2)]
SUMS = [("a", 1), ("b", 5), ("a", 3)]


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    return local_environment(monkeypatch)


@attrs.define
class Program:
    """Running sums, and what their sink has been given."""

    env: StreamExecutionEnvironment
    sums: DataStream
    seen: list[Any] = attrs.Factory(list)


def built(env: StreamExecutionEnvironment) -> Program:
    keyed = env.from_collection(PAIRS, records_per_epoch=1).key_by(itemgetter(0))
    program = Program(env, keyed.process(RunningSum()).uid("sums"))
    program.sums.sink_to(DriverSink(lambda _, values: program.seen.extend(values)))
    return program


def executed(program: Program, name: str) -> list[Any]:
    program.env.execute(name)
    return program.seen


def executed_async(program: Program, name: str) -> list[Any]:
    program.env.execute_async(name).get_job_execution_result().result(PATIENCE_S)
    return program.seen


def collected(program: Program, name: str) -> list[Any]:
    return list(program.sums.execute_and_collect(name))


#: Each starts the job of a program, and returns what came out of it.
Start = Callable[[Program, str], list[Any]]


def keep_no_changes(program: Program) -> None:
    program.env.set_state_backend(HashMapStateBackend(async_snapshots=False))
    program.env.get_checkpoint_config().enable_incremental_checkpoints(True)


def write_all(program: Program) -> None:
    program.env.get_checkpoint_config().enable_incremental_checkpoints(False)


#: What spoils a program, what mends it, and the error in between.
SPOILT: dict[str, tuple[Callable[[Program], Any], Callable[[Program], Any], type[PyFlinkStateError], str]] = {
    "a plan that cannot be made": (
        lambda program: program.sums.set_parallelism(5).set_max_parallelism(4),
        lambda program: program.sums.set_parallelism(1),
        ParallelismError,
        "parallelism not within bounds: 5",
    ),
    "settings that do not go together": (
        keep_no_changes,
        write_all,
        ConfigurationError,
        "incremental checkpoints need asynchronous snapshots",
    ),
    "no checkpoints to restore with": (
        lambda program: program.env.restore_from("/nowhere/chk-1"),
        lambda program: program.env.restore_from(None),
        ConfigurationError,
        r"restore_from\(\) .* need enable_checkpointing\(\)",
    ),
}


@pytest.mark.parametrize("start", [executed, executed_async, collected])
class TestAJobThatCannotBeStarted:
    @pytest.mark.parametrize("spoilt", SPOILT)
    def test_leaves_the_sinks_to_the_next_one(
        self, env: StreamExecutionEnvironment, start: Start, spoilt: str
    ) -> None:
        spoil, mend, error, match = SPOILT[spoilt]
        program = built(env)
        spoil(program)
        with pytest.raises(error, match=match):
            start(program, "sums")
        mend(program)
        assert start(program, "sums") == program.seen == SUMS

    def test_leaves_what_is_to_be_restored_to_the_next_one(
        self, env: StreamExecutionEnvironment, start: Start, tmp_path: Path
    ) -> None:
        env.enable_checkpointing(0, str(tmp_path))
        built(env)
        env.execute("sums")
        program = built(env)
        env.restore_from("latest")
        with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'another'"):
            start(program, "another")
        assert start(program, "sums") == []  # its input had been read

    def test_and_what_was_restored_is_restored_once(
        self, env: StreamExecutionEnvironment, start: Start, tmp_path: Path
    ) -> None:
        env.enable_checkpointing(0, str(tmp_path))
        built(env)
        env.execute("sums")
        env.restore_from("latest")
        assert start(built(env), "sums") == []
        assert start(built(env), "sums") == SUMS


def test_each_sink_belongs_to_one_job(env: StreamExecutionEnvironment) -> None:
    program = built(env)
    env.execute()
    with pytest.raises(ConfigurationError, match="nothing to execute: what was built has been executed"):
        env.execute()
    assert program.seen == SUMS


class TestCollecting:
    def test_the_other_sinks_run_in_the_same_job_and_are_used_up(
        self, env: StreamExecutionEnvironment
    ) -> None:
        heard = Heard()
        program = built(env.add_listener(heard))
        totals = program.sums.map(itemgetter(1))
        assert list(totals.execute_and_collect()) == [1, 5, 3]
        assert program.seen == SUMS
        assert heard.ended == [JobStatus.FINISHED]
        with pytest.raises(ConfigurationError, match="nothing to execute"):
            env.execute()

    def test_a_record_appears_when_the_other_sinks_have_it(self, env: StreamExecutionEnvironment) -> None:
        env.enable_checkpointing(0)
        program = built(env)
        with program.sums.execute_and_collect() as records:
            for number, record in enumerate(records):
                assert record == program.seen[number]
        assert len(program.seen) == len(SUMS)

    @pytest.mark.parametrize("limit", [1, 2])
    def test_with_a_limit_the_job_is_cancelled_and_its_committed_output_stays(
        self, env: StreamExecutionEnvironment, tmp_path: Path, limit: int
    ) -> None:
        heard, output, numbers = Heard(), tmp_path / "output", list(range(20))
        env.enable_checkpointing(0, str(tmp_path / "checkpoints")).add_listener(heard)

        def program() -> DataStream:
            stream = env.from_collection(numbers, records_per_epoch=1)
            stream.sink_to(FileSink(str(output)))
            return stream

        def written() -> list[int]:
            files = output.glob("epoch=*/*.jsonl")
            return sorted(json.loads(line) for file in files for line in file.read_text().splitlines())

        assert program().execute_and_collect("numbers", limit) == numbers[:limit]
        assert heard.ended == [JobStatus.CANCELED]
        before = written()
        assert limit <= len(before) < len(numbers)
        assert before == numbers[: len(before)]
        program()
        env.restore_from("latest").execute("numbers")
        assert written() == numbers

    def test_what_cannot_be_collected_is_no_sink_of_the_next_job(
        self, env: StreamExecutionEnvironment
    ) -> None:
        env.restore_from("/nowhere/chk-1")
        numbers = env.from_collection([1, 2])
        with pytest.raises(ConfigurationError, match="need enable_checkpointing"):
            numbers.execute_and_collect()
        with pytest.raises(ConfigurationError, match="the job has no sink"):
            env.execute()


class TestEnableCheckpointing:
    @pytest.mark.parametrize("mode", [None, CheckpointingMode.EXACTLY_ONCE])
    def test_a_storage_beside_a_mode(self, env: StreamExecutionEnvironment, mode: Any) -> None:
        env.enable_checkpointing(1000, mode, storage="/checkpoints")
        assert path_of(env) == "/checkpoints"
        assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE

    def test_a_storage_in_the_place_of_the_mode(self, env: StreamExecutionEnvironment) -> None:
        env.enable_checkpointing(1000, "/checkpoints")
        assert path_of(env) == "/checkpoints"

    @pytest.mark.parametrize("mode", ["EXACTLY_ONCE", "exactly-once", "At_Least_Once"])
    def test_the_name_of_a_mode_is_no_directory(self, env: StreamExecutionEnvironment, mode: str) -> None:
        name = mode.upper().replace("-", "_")
        with pytest.raises(ConfigurationError, match=f"{mode!r} is a mode: write CheckpointingMode.{name}"):
            env.enable_checkpointing(1000, mode)
        assert path_of(env) is None
        env.enable_checkpointing(1000, storage=f"/{mode}")
        assert path_of(env) == f"/{mode}"

    def test_none_for_the_mode_leaves_it_as_it_is(self, env: StreamExecutionEnvironment) -> None:
        env.enable_checkpointing(1000, CheckpointingMode.AT_LEAST_ONCE).enable_checkpointing(2000)
        assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
        assert env.get_checkpoint_interval() == 2000

    def test_two_storages_are_refused_and_nothing_is_changed(self, env: StreamExecutionEnvironment) -> None:
        with pytest.raises(ConfigurationError, match=r"two storages, '/a' .* storage='/b'.* leave the other"):
            env.enable_checkpointing(1000, "/a", storage="/b")
        assert (env.get_checkpoint_interval(), env.get_checkpoint_config().get_checkpoint_storage()) == (
            -1,
            None,
        )


def path_of(env: StreamExecutionEnvironment) -> str | None:
    storage = env.get_checkpoint_config().get_checkpoint_storage()
    return None if storage is None else storage.get_checkpoint_path()


#: What is no DataFrame to read at once, and what to do.
NO_FRAMES = [
    (pd.DataFrame({"a": [1]}), r"DataFrame; from a pandas one: spark.createDataFrame\(pdf\)"),
    ([1, 2], r"list; from a list of records: from_collection\(\)"),
    (None, "NoneType"),
    (SimpleNamespace(isStreaming=True), r"a streaming one: use from_streaming\(\)"),
]


@pytest.mark.parametrize(("frame", "says"), NO_FRAMES, ids=["pandas", "list", "None", "streaming"])
def test_what_is_no_batch_dataframe_is_refused(
    env: StreamExecutionEnvironment, frame: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"from_dataframe\(\) takes a .*{says}"):
        env.from_dataframe(frame)


def test_a_batch_dataframe_is_no_stream(env: StreamExecutionEnvironment) -> None:
    frame: Any = SimpleNamespace(isStreaming=False)
    with pytest.raises(ConfigurationError, match=r"this is a batch one: use from_dataframe\(\)"):
        env.from_streaming(frame)
    with pytest.raises(ConfigurationError, match=r"from_streaming\(\) takes a Spark DataFrame, not a .*list"):
        env.from_streaming([])  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [None, 3, b"module.py"])
def test_what_is_brought_along_has_a_path(env: StreamExecutionEnvironment, path: Any) -> None:
    for bring in (env.add_python_file, env.add_python_archive, env.set_python_requirements):
        with pytest.raises(ConfigurationError, match=r"a path must be a string or a pathlib.Path, not "):
            bring(path)


@pytest.mark.parametrize("listener", [Heard, print, None])
def test_a_listener_is_an_object_of_its_class(env: StreamExecutionEnvironment, listener: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"add_listener\(\) takes an object of a JobListener, not "):
        env.add_listener(listener)


def test_a_streaming_query_without_a_place_for_its_checkpoints_is_refused(
    env: StreamExecutionEnvironment,
) -> None:
    frame: Any = SimpleNamespace(isStreaming=True, sparkSession=None)
    env.enable_checkpointing(0).from_streaming(frame).print()
    with pytest.raises(ConfigurationError, match=r"pass a directory to enable_checkpointing\(\), or a check"):
        env.execute()


@pytest.mark.parametrize("has_interval", [True, False], ids=["an interval", "no interval"])
def test_a_directory_without_an_interval_is_worth_a_word(
    env: StreamExecutionEnvironment, tmp_path: Path, has_interval: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env.get_checkpoint_config().set_checkpoint_storage(str(tmp_path))
    if has_interval:
        env.enable_checkpointing(0)
    assert executed(built(env), "sums") == SUMS
    assert ("no interval: no checkpoints are taken" in caplog.text) == (not has_interval)


@pytest.mark.parametrize("name", [20240501, 0, b"job"], ids=repr)
def test_the_name_of_a_job_is_a_text(env: StreamExecutionEnvironment, name: Any) -> None:
    """Checkpoints with another name would count as damaged."""
    built(env)
    for give in (env.set_default_job_name, env.execute, env.execute_async, env.jobs.preview):
        with pytest.raises(ConfigurationError, match=f"the name of a job must be a string, not {name!r}"):
            give(name)


def test_the_names_of_sources_and_sinks_are_texts(env: StreamExecutionEnvironment) -> None:
    with pytest.raises(ConfigurationError, match="the name of a sink must be a string, not 7"):
        env.from_collection([1]).print().name(7)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="source_name must be a string, not 7"):
        env.from_source(NumberSequenceSource(1, 2), source_name=7)  # type: ignore[arg-type]


class Table:
    """As Spark's, it gives its columns by their numbers."""

    def __getitem__(self, index: int) -> str:
        return ("a", "b")[index]


SPARKS = type("DataFrame", (Table,), {"__module__": "pyspark.sql.classic.dataframe"})
POLARS = type("DataFrame", (Table,), {"__module__": "polars.dataframe.frame"})
ARROW = pa.table({"a": [1]})
#: What is no list of records, though it can be iterated over, and what to do.
NO_COLLECTIONS = [
    ("abc", r"not 'abc': give \['abc'\] if that is one record"),
    (b"abc", r"give \[b'abc'\]"),
    ({"a": 1}, r"give \[\{'a': 1\}\]"),
    (pd.DataFrame({"a": [1]}), r'not a DataFrame of pandas: give df.to_dict\("records"\)'),
    (SPARKS(), r"not a DataFrame of pyspark: call from_dataframe\(df\)"),
    (POLARS(), r"not a DataFrame of polars: give df.to_dicts\(\)"),
    (ARROW, r"not a Table of pyarrow: give table.to_pylist\(\)"),
    (ARROW.to_batches()[0], r"not a RecordBatch of pyarrow: give table.to_pylist\(\)"),
]


@pytest.mark.parametrize(("collection", "says"), NO_COLLECTIONS)
def test_what_is_no_list_of_records_is_refused(
    env: StreamExecutionEnvironment, collection: Any, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=rf"from_collection\(\) takes a list of records, .*{says}"):
        env.from_collection(collection)


@pytest.mark.parametrize("collection", [(1, 2), range(1, 3), pd.Series([1, 2]), iter([1, 2])])
def test_what_gives_records_is_a_collection(env: StreamExecutionEnvironment, collection: Any) -> None:
    assert list(env.from_collection(collection).execute_and_collect()) == [1, 2]


@pytest.mark.parametrize("number", [0, -1, 1.5, "3"])
def test_as_many_files_and_records_are_read_as_a_whole_number_says(
    env: StreamExecutionEnvironment, tmp_path: Path, number: Any
) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    with pytest.raises(ConfigurationError, match="max_files must be a whole number, at least 1"):
        env.from_files(str(tmp_path), max_files=number)
    with pytest.raises(ConfigurationError, match="max_records_per_epoch must be a whole number, at least 1"):
        env.from_batch_reader(lambda start, end: None, max_records_per_epoch=number)  # type: ignore[arg-type, return-value]


def test_counts_may_be_numpys(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    one: Any = np.int8(1)
    files: Any = env.from_files(str(tmp_path), max_files=one, files_per_epoch=one).node
    assert (type(files.source.max_files), type(files.source.files_per_epoch)) == (int, int)
    numbers: Any = env.from_collection(range(300), records_per_epoch=np.int8(100)).node  # type: ignore[arg-type]
    assert type(numbers.source.records_per_epoch) is int
    env.set_slot_memory_limit(np.int64(2**30))  # type: ignore[arg-type]


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


@pytest.mark.parametrize(("setting", "late"), [({}, []), ({"records_per_epoch": 2}, [("a", 2)])])
def test_a_size_of_epochs_makes_watermarks_advance_without_checkpoints(
    env: StreamExecutionEnvironment, setting: dict[str, int], late: list[Any]
) -> None:
    """So late records can be shown with a small collection."""
    aside, seen = OutputTag("late"), []
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ByValue())
    records = env.from_collection([("a", 1), ("a", 20), ("a", 2)], **setting)
    timed = records.assign_timestamps_and_watermarks(strategy).key_by(itemgetter(0))
    windows = timed.window(TumblingEventTimeWindows.of(10)).side_output_late_data(aside)
    made = windows.reduce(lambda a, b: a).get_side_output(aside)
    made.sink_to(DriverSink(lambda _, values: seen.extend(values)))
    assert env.execute().epochs == (2 if setting else 1)
    assert seen == late
