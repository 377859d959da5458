"""Checkpoints on a real S3 server: one of moto's on this host, spoken to by slots and driver alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from operators import Failing, RunningSum, rows_in, running_sums
from processes import slot_pids
from test_recovery import Recorder, kill_one

from pyflinkstate import (
    CheckpointStats,
    DataStream,
    FileSink,
    FileSystemCheckpointStorage,
    JobExecutionResult,
    RestartStrategies,
    StreamExecutionEnvironment,
    errors,
)
from pyflinkstate.runtime.master.checkpoint_files import shared_files
from pyflinkstate.runtime.storage import child_uri, load_checkpoint
from pyflinkstate.state_access import open_checkpoint
from pyflinkstate.state_access.spark import register

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from s3_server import CREDENTIALS, Bucket, Server

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_slot_left", "credentials"),
]

RECORDS = [(f"key-{n % 90}", n) for n in range(400)]
EPOCHS = 4
EXPECTED = Counter(f'["{key}",{total}]' for key, total in running_sums(RECORDS))


@pytest.fixture
def credentials(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's come from its environment; Spark hands those of its context on to new workers."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)


@pytest.fixture(scope="module")
def running_server() -> Iterator[Server]:
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def server(running_server: Server) -> Iterator[Server]:
    yield running_server
    running_server.denied = lambda method, path: False


@pytest.fixture
def bucket(server: Server, tmp_path: Path) -> Bucket:
    return Bucket(server.port, "b" + "".join(filter(str.isalnum, tmp_path.name.lower()))).create()


class Listener(Recorder):
    """Hears of failed checkpoints too, and does something ``beyond`` a checkpoint."""

    def __init__(
        self,
        after: dict[int, Callable[[], None]] | None = None,
        beyond: dict[int, Callable[[], None]] | None = None,
    ) -> None:
        super().__init__(after)
        self.beyond = beyond or {}
        self.failed: list[CheckpointStats] = []

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        super().on_checkpoint(stats)
        self.beyond.pop(stats.checkpoint_id, lambda: None)()

    def on_checkpoint_failed(self, stats: CheckpointStats) -> None:
        self.failed.append(stats)


@attrs.define
class Runs:
    """Runs the running sums with their checkpoints in a bucket, all state in files, and their output here."""

    spark: Any
    bucket: Bucket
    output: Path
    incremental: bool = False
    tolerable: int = 0
    restarts: int = 1
    num_retained: int = 1

    def run(
        self,
        after: dict[int, Callable[[], None]] | None = None,
        *,
        beyond: dict[int, Callable[[], None]] | None = None,
        restore: str | None = None,
        function: Any = None,
        parallelism: int = 2,
    ) -> tuple[JobExecutionResult, Listener]:
        env = StreamExecutionEnvironment(self.spark).set_parallelism(parallelism)
        storage = FileSystemCheckpointStorage(self.bucket.uri("chk"), file_state_size_threshold=0)
        env.enable_checkpointing(
            0, storage, num_retained=self.num_retained, tolerable_failures=self.tolerable
        )
        config = env.get_checkpoint_config()
        config.enable_incremental_checkpoints(self.incremental, materialization_interval=2)
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(self.restarts, 0))
        listener = Listener(after, beyond)
        env.add_listener(listener)
        env.restore_from(restore)
        source = env.from_collection(RECORDS, records_per_epoch=len(RECORDS) // EPOCHS)
        stream = source.key_by(lambda record: record[0]).process(function or RunningSum()).uid("sums")
        stream.sink_to(FileSink(str(self.output)))
        return env.execute("sums"), listener

    def rows(self) -> Counter[str]:
        return rows_in(self.output)

    def check_what_is_left(self, result: JobExecutionResult) -> None:
        """Assert that the bucket holds the retained checkpoints and no object more."""
        job = f"chk/{result.job_id}"
        expected = {"chk/", f"{job}/", f"{job}/checkpoints.json"}
        if self.incremental:
            expected.add(f"{job}/shared/")
        for stats in result.checkpoints[-self.num_retained :]:
            metadata, _ = load_checkpoint(stats.uri)
            folder = f"{job}/chk-{metadata.checkpoint_id}"
            expected |= {f"{folder}/", f"{folder}/_metadata"}
            expected |= {f"{job}/runs/", f"{job}/runs/{metadata.runs[-1][0]}"}
            subtasks = [subtask for operator in metadata.operators for subtask in operator.subtasks]
            files = [file.path for subtask in subtasks for file in subtask.managed_keyed.files()]
            assert files, "the state is in files, not in _metadata"
            assert not self.incremental or set(files) == shared_files(subtasks)
            expected |= {f"{folder}/{file}".replace(f"{folder}/../", f"{job}/") for file in files}
        assert self.bucket.objects() == expected


@pytest.fixture
def runs(spark: Any, bucket: Bucket, tmp_path: Path) -> Runs:
    return Runs(spark, bucket, tmp_path / "output")


class TestExactlyOnce:
    @pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
    def test_a_slot_that_is_killed(self, runs: Runs, incremental: bool) -> None:
        runs.incremental, runs.num_retained = incremental, 2
        result, listener = runs.run({2: kill_one(slot_pids)})
        assert runs.rows() == EXPECTED
        assert result.restarts == 1
        assert isinstance(listener.restarts[0], errors.SlotLostError)
        assert any(stats.is_incremental for stats in result.checkpoints) == incremental
        runs.check_what_is_left(result)

    def test_a_job_restored_from_a_folder(self, runs: Runs) -> None:
        runs.incremental, runs.restarts = True, 0
        with pytest.raises(errors.UserFunctionError):
            runs.run(function=Failing(320, runs.output))
        (metadata,) = (key for key in runs.bucket.objects() if key.endswith("/_metadata"))
        folder = metadata.removesuffix("/_metadata")
        result, _ = runs.run(restore=runs.bucket.uri(folder), parallelism=3)
        assert runs.rows() == EXPECTED
        assert f"chk/{result.job_id}" == folder.rpartition("/")[0], "it goes on under its id"
        runs.check_what_is_left(result)

    def test_a_savepoint_in_another_bucket(self, runs: Runs, spark: Any) -> None:
        other = attrs.evolve(runs.bucket, name=f"{runs.bucket.name}other").create()

        def sums(env: StreamExecutionEnvironment, folder: str) -> DataStream:
            env.set_parallelism(2).enable_checkpointing(10**6, runs.bucket.uri(folder))
            source = env.from_rate(1000).map(lambda record: ("all", record["value"]))
            return source.key_by(lambda record: record[0]).process(RunningSum()).uid("sums")

        env = StreamExecutionEnvironment(spark)
        sums(env, "first").print()
        client = env.execute_async("sums")
        savepoint = client.stop_with_savepoint(savepoint_directory=other.uri("sp")).result(60)
        client.get_job_execution_result().result(60)
        metadata, uri = load_checkpoint(savepoint)
        assert uri == savepoint
        name = savepoint.partition("?")[0].rpartition("/")[2]
        assert savepoint == child_uri(other.uri("sp"), name)
        assert other.objects() == {"sp/", f"sp/{name}/", f"sp/{name}/_metadata"}
        env = StreamExecutionEnvironment(spark).restore_from(savepoint)
        (first,) = sums(env, "second").execute_and_collect("sums", limit=1)
        assert first == ("all", sum(range(metadata.source_position["index"] + 1)))

    def test_executors_read_its_state(self, runs: Runs, spark: Any) -> None:
        result, _ = runs.run()
        uri = result.checkpoints[-1].uri
        last = dict(running_sums(RECORDS))
        frame = open_checkpoint(uri).keyed("sums", allow_pickle=True).to_spark(spark, 3)
        assert dict(map(tuple, frame.collect())) == last
        register(spark)
        source = spark.read.format("pyflinkstate").option("uid", "sums").option("allow_pickle", True)
        found = source.load(uri).where("key = 'key-7'")
        assert list(map(tuple, found.collect())) == [("key-7", last["key-7"])]

    def test_where_epochs_end_is_noted_there_while_it_may_matter(self, runs: Runs, spark: Any) -> None:
        written: list[tuple[int, int]] = []
        listener = Listener()

        def run(fails: bool) -> JobExecutionResult:
            def write(df: Any, epoch: int) -> None:
                written.append((epoch, df.count()))
                if fails and epoch == EPOCHS:
                    raise OSError("the table is locked")

            env = StreamExecutionEnvironment(spark).set_parallelism(2)
            env.enable_checkpointing(0, runs.bucket.uri("chk"))
            env.set_restart_strategy(RestartStrategies.no_restart())
            if fails:
                env.add_listener(listener)
            else:
                env.restore_from("latest")
            source = env.from_collection(RECORDS, records_per_epoch=len(RECORDS) // EPOCHS)
            sums = source.key_by(lambda record: record[0]).process(RunningSum()).uid("sums")
            sums.foreach_epoch(write, "key string, total long")
            return env.execute("sums")

        with pytest.raises(errors.UserFunctionError):
            run(fails=True)
        assert any(key.endswith(f"/offsets/{EPOCHS}") for key in runs.bucket.objects())
        result = run(fails=False)
        again = range(listener.checkpoints[-1].epoch + 1, EPOCHS + 1)
        assert written == [(epoch, len(RECORDS) // EPOCHS) for epoch in (*range(1, EPOCHS + 1), *again)]
        left = {key.removeprefix(f"chk/{result.job_id}/offsets/") for key in runs.bucket.objects()}
        assert not {key for key in left if "/" not in key} - {""}


def writes(*endings: str) -> Callable[[str, str], bool]:
    """Return what is true of requests that write an object with such a path."""
    return lambda method, path: method in {"PUT", "POST"} and path.endswith(endings)


class TestAServerThatAnswersErrors:
    def test_within_the_tolerable_number_the_job_goes_on(self, runs: Runs, server: Server) -> None:
        runs.tolerable, runs.incremental = 2, True
        server.denied = writes("/chk-2/_metadata", "/chk-3/_metadata")
        result, listener = runs.run()
        assert runs.rows() == EXPECTED
        assert result.restarts == 0
        assert [stats.checkpoint_id for stats in result.failed_checkpoints] == [2, 3]
        assert list(result.failed_checkpoints) == listener.failed
        for stats in listener.failed:
            assert stats.failure is not None
            assert "checkpoint storage: cannot complete" in stats.failure
            assert "ACCESS_DENIED" in stats.failure
        runs.check_what_is_left(result)

    def test_a_bucket_that_is_gone(self, runs: Runs, bucket: Bucket) -> None:
        runs.restarts = 1
        with pytest.raises(errors.JobFailedError) as caught:
            runs.run(beyond={1: bucket.delete})
        assert "NoSuchBucket" in str(caught.value) or "not found" in str(caught.value)
        assert isinstance(caught.value.__cause__, errors.CheckpointError)
        assert sum(runs.rows().values()) == len(RECORDS) // EPOCHS, "committed is what was covered"

    def test_no_bucket_is_found_before_any_record(self, runs: Runs) -> None:
        runs.bucket = attrs.evolve(runs.bucket, name="nowhere")
        with pytest.raises(errors.CheckpointStorageError, match="nowhere"):
            runs.run()
        assert not runs.output.exists()
