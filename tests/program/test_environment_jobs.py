"""How an environment makes jobs of what was built, and when that is used up."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import attrgetter, itemgetter
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
from support_runtime import PATIENCE_S, metadata

from pyflinkstate.api import OutputTag, TimestampAssigner, TumblingEventTimeWindows, WatermarkStrategy
from pyflinkstate.backends.hash_map_state_backend import HashMapStateBackend
from pyflinkstate.common import Configuration
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    ParallelismError,
    PyFlinkStateError,
)
from pyflinkstate.runtime.pipelined.runner import PipelinedRunner
from pyflinkstate.runtime.plan import SinkNode, make_plan
from pyflinkstate.runtime.program import DataStream, StreamExecutionEnvironment
from pyflinkstate.runtime.program.jobs import restore_streaming
from pyflinkstate.runtime.settings import CheckpointingMode, JobStatus
from pyflinkstate.runtime.sinks import DriverSink, FileSink
from pyflinkstate.runtime.slots import Endpoint
from pyflinkstate.runtime.sources import NumberSequenceSource, StreamingSource
from pyflinkstate.runtime.sources.spark_sources import NextBatch, position_of
from pyflinkstate.runtime.spark import sessions
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage

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


def override_backend(program: Program, uid: str) -> None:
    settings = Configuration().set_string("pyflinkstate.state-backend-overrides", f"{uid}:hashmap")
    program.env.configure(settings)


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
    "a state backend for an operator that is not there": (
        lambda program: override_backend(program, "totals"),
        lambda program: override_backend(program, "sums"),
        ConfigurationError,
        "names 'totals', and no operator with keyed state has this uid: they have 'sums'",
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
        env.enable_checkpointing(1000, "/others")
        assert path_of(env) == "/others", "a storage in the place of the mode"

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


class Table:
    """As Spark's, it gives its columns by their numbers."""

    def __getitem__(self, index: int) -> str:
        return ("a", "b")[index]


SPARKS = type("DataFrame", (Table,), {"__module__": "pyspark.sql.classic.dataframe"})
POLARS = type("DataFrame", (Table,), {"__module__": "polars.dataframe.frame"})
ARROW = pa.table({"a": [1]})
ONE_STREAMING: Any = SimpleNamespace(isStreaming=True)
ONE_BATCH: Any = SimpleNamespace(isStreaming=False)
#: What an environment refuses, and what the error says: what was wrong, and what to do.
REFUSED: list[tuple[Callable[[Any], Any], str]] = [
    *(
        (lambda env, frame=frame: env.from_dataframe(frame), rf"from_dataframe\(\) takes a .*{says}")
        for frame, says in [
            ([1, 2], r"list; from a list of records: from_collection\(\)"),
            (None, "NoneType"),
            (ONE_STREAMING, r"a streaming one: use from_streaming\(\)"),
        ]
    ),
    (lambda env: env.from_streaming(ONE_BATCH), r"this is a batch one: use from_dataframe\(\)"),
    (lambda env: env.from_streaming([]), r"from_streaming\(\) takes a Spark DataFrame, not a .*list"),
    *(
        (
            lambda env, collection=collection: env.from_collection(collection),
            rf"from_collection\(\) takes a list of records, .*{says}",
        )
        for collection, says in [
            ("abc", r"not 'abc': give \['abc'\] if that is one record"),
            (b"abc", r"give \[b'abc'\]"),
            ({"a": 1}, r"give \[\{'a': 1\}\]"),
            (pd.DataFrame({"a": [1]}), r'not a DataFrame of pandas: give df.to_dict\("records"\)'),
            (SPARKS(), r"not a DataFrame of pyspark: call from_dataframe\(df\)"),
            (POLARS(), r"not a DataFrame of polars: give df.to_dicts\(\)"),
            (ARROW, r"not a Table of pyarrow: give table.to_pylist\(\)"),
            (ARROW.to_batches()[0], r"not a RecordBatch of pyarrow: give table.to_pylist\(\)"),
        ]
    ),
    *(
        (
            lambda env, bring=bring, path=path: getattr(env, bring)(path),
            "a path must be a string or a pathlib.Path, not ",
        )
        for bring in ("add_python_file", "add_python_archive", "set_python_requirements")
        for path in (None, 3, b"module.py")
    ),
    *(
        (
            lambda env, listener=listener: env.add_listener(listener),
            r"add_listener\(\) takes an object of a JobListener, not ",
        )
        for listener in (Heard, print, None)
    ),
    (lambda env: env.from_collection([1]).print().name(7), "the name of a sink must be a string, not 7"),
    (
        lambda env: env.from_source(NumberSequenceSource(1, 2), source_name=7),
        "source_name must be a string, not 7",
    ),
    *(
        (
            lambda env, give=give, name=name: attrgetter(give)(env)(name),
            f"the name of a job must be a string, not {name!r}",
        )
        for give in ("set_default_job_name", "execute", "execute_async", "_jobs.preview")
        for name in (20240501, 0, b"job")  # checkpoints with another name would count as damaged
    ),
    *(
        (lambda env, number=number: env.from_files("/", max_files=number), "max_files must be a whole number")
        for number in (0, -1, 1.5, "3")
    ),
    *(
        (
            lambda env, number=number: env.from_batch_reader(print, max_records_per_epoch=number),
            "max_records_per_epoch must be a whole number, at least 1",
        )
        for number in (0, -1, 1.5, "3")
    ),
]


@pytest.mark.parametrize(("call", "says"), REFUSED)
def test_what_an_environment_refuses(
    env: StreamExecutionEnvironment, call: Callable[[Any], Any], says: str
) -> None:
    built(env)
    with pytest.raises(ConfigurationError, match=says):
        call(env)


@pytest.mark.parametrize("collection", [(1, 2), range(1, 3), pd.Series([1, 2]), iter([1, 2])])
def test_what_gives_records_is_a_collection(env: StreamExecutionEnvironment, collection: Any) -> None:
    assert list(env.from_collection(collection).execute_and_collect()) == [1, 2]


def test_counts_may_be_numpys(env: StreamExecutionEnvironment, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n\n1\n")
    one: Any = np.int8(1)
    files: Any = env.from_files(str(tmp_path), max_files=one, files_per_epoch=one)._node
    assert (type(files.source.max_files), type(files.source.files_per_epoch)) == (int, int)
    numbers: Any = env.from_collection(range(300), records_per_epoch=np.int8(100))._node  # type: ignore[arg-type]
    assert type(numbers.source.records_per_epoch) is int
    env.set_slot_memory_limit(np.int64(2**30))  # type: ignore[arg-type]


class ByValue(TimestampAssigner):
    def extract_timestamp(self, value: tuple[str, int], record_timestamp: int) -> int:
        return value[1]


@pytest.mark.parametrize("assigner", [ByValue(), lambda value, before: value[1]])
@pytest.mark.parametrize(("setting", "late"), [({}, []), ({"records_per_epoch": 2}, [("a", 2)])])
def test_a_size_of_epochs_makes_watermarks_advance_without_checkpoints(
    env: StreamExecutionEnvironment, setting: dict[str, int], late: list[Any], assigner: Any
) -> None:
    """So late records can be shown with a small collection."""
    aside, seen = OutputTag("late"), []
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    records = env.from_collection([("a", 1), ("a", 20), ("a", 2)], **setting)
    timed = records.assign_timestamps_and_watermarks(strategy).key_by(itemgetter(0))
    windows = timed.window(TumblingEventTimeWindows.of(10)).side_output_late_data(aside)
    made = windows.reduce(lambda a, b: a).get_side_output(aside)
    made.sink_to(DriverSink(lambda _, values: seen.extend(values)))
    assert env.execute().epochs == (2 if setting else 1)
    assert seen == late


# --- what a streaming job is restored from -----------------------------------------------------------------


JOB, QUERY = "0" * 32, "8b1f"


class Log:
    """The log of a query that goes on with a batch that Spark has not planned yet."""

    def __init__(self, number: int) -> None:
        self.number = number

    def next_batch(self) -> NextBatch:
        return NextBatch(self.number)

    def query_id(self) -> str:
        return QUERY


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointFolders:
    """Storage with checkpoints 1 to 3, of batches 0 to 2."""
    made = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
    for number in (1, 2, 3):
        made.begin(JOB, number)
        position = position_of(number - 1, QUERY, "cut")
        made.complete(metadata(number, JOB, epoch=number, source_position=position))
    return made


def chosen(storage: CheckpointFolders, next_batch: int, path: str | None) -> Any:
    log: Any = Log(next_batch)
    source = StreamingSource(lambda _: None, lambda: log)
    return restore_streaming(source, storage, storage.load(storage.uri_of(JOB, 1)).job_name, path)


@pytest.mark.parametrize("path", [None, "latest"])
def test_an_older_driver_may_complete_a_newer_one_than_the_newest(
    storage: CheckpointFolders, path: str | None
) -> None:
    restore = chosen(storage, 3, path)
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (3, True)


def test_a_query_that_was_set_back_is_restored_from_an_older_one_and_no_other(
    storage: CheckpointFolders,
) -> None:
    restore = chosen(storage, 2, None)
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (2, False)


def test_neither_has_a_savepoint_that_was_named_another_in_its_place(storage: CheckpointFolders) -> None:
    restore = chosen(storage, 3, storage.uri_of(JOB, 3))
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (3, False)


@pytest.mark.parametrize(
    ("engine", "cores", "parallelism", "is_endless", "has_checkpoints", "tasks"),
    [
        ("STAGES", 4, 2, True, True, None),
        ("PIPELINED", 1, 2, False, False, 1),
        ("PIPELINED", 4, 2, False, False, 2),
        ("AUTOMATIC", 4, 2, False, False, None),
        ("AUTOMATIC", 4, 2, True, False, 2),
        ("AUTOMATIC", 4, 2, False, True, 2),
        ("AUTOMATIC", 4, 8, True, False, 3),
        ("AUTOMATIC", 1, 2, True, True, None),
    ],
)
def test_which_engine_runs_a_job(
    monkeypatch: pytest.MonkeyPatch,
    engine: str,
    cores: int,
    parallelism: int,
    is_endless: bool,
    has_checkpoints: bool,
    tasks: int | None,
) -> None:
    env = local_environment(monkeypatch)
    env._jobs._context.defaultParallelism = cores  # type: ignore[misc]
    monkeypatch.setattr(sessions, "driver_endpoint", lambda _: Endpoint())
    env.configure(Configuration().set_string("pyflinkstate.engine", engine)).set_parallelism(parallelism)
    source = env.from_rate(1) if is_endless else env.from_collection([1])
    plan = make_plan([SinkNode(source._node, DriverSink(print), "sink")], parallelism, None)
    runner = env._jobs._runner(plan, has_checkpoints)
    assert (runner._parallelism if isinstance(runner, PipelinedRunner) else None) == tasks
