"""The sink of Parquet files in a folder, on local disks and on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyarrow import fs
from support_sinks import JOB, history, run_id
from table_sinks import SCHEMA, prepare, run
from tiers import cases

from pyflinkstate import FileSink, ParquetSink, RunHistory, StagedFile
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    JobSupersededError,
    SinkError,
    SinkStorageError,
)
from pyflinkstate.runtime.sinks import check_sinks, parquet_sink
from pyflinkstate.runtime.sinks.staging import StagingArea
from pyflinkstate.runtime.storage import child_uri
from pyflinkstate.runtime.storage.file_systems import OwnFolders
from pyflinkstate.testing import check_sink


class Folder:
    """A folder at a path or URI, and the sinks of drivers that write into it."""

    def __init__(self, uri: str, staging: str) -> None:
        self.uri = uri
        self.staging = staging

    def files(self) -> list[str]:
        """The paths below the folder of the files that readers see."""
        file_system, root = fs.FileSystem.from_uri(self.uri)
        selector = fs.FileSelector(root, recursive=True, allow_not_found=True)
        found = (info.path.removeprefix(f"{root}/") for info in file_system.get_file_info(selector))
        return sorted(path for path in found if path.endswith(".parquet"))

    def sizes(self) -> list[int]:
        return [Path(self.uri.removeprefix("file://"), path).stat().st_size for path in self.files()]

    def rows(self, schema: pa.Schema = SCHEMA) -> list[tuple[Any, ...]]:
        partitioning = ds.partitioning(flavor="hive", schema=schema)
        dataset = ds.dataset(self.uri, schema, format="parquet", partitioning=partitioning)
        return sorted((tuple(row.values()) for row in dataset.to_table().to_pylist()), key=str)

    def amounts(self) -> list[int]:
        return sorted(row[-1] for row in self.rows())

    def sink(self, schema: pa.Schema = SCHEMA, **options: Any) -> ParquetSink:
        return ParquetSink(self.uri, schema, **{"staging": self.staging, **options})

    def opened(
        self, run: int = 1, restored: int | None = None, runs: RunHistory | None = None, **options: Any
    ) -> ParquetSink:
        """Return the sink of a driver whose run has a number."""
        sink = self.sink(**options)
        sink.open_run(JOB, history((run, restored or 0)) if runs is None else runs, restored)
        return sink


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(f"file://{tmp_path}/out", str(tmp_path / "staging"))


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"partition_by": ["text"]}], ids=str)
def test_contract(tmp_path: Path, options: dict[str, Any]) -> None:
    check_contract(lambda name: str(tmp_path / name), options)


def check_contract(uri: Callable[[str], str], options: dict[str, Any]) -> None:
    schema = pa.schema([("text", pa.string()), ("n", pa.int64())])

    def read(name: str) -> list[str]:
        rows = Folder(uri(name) if ":" in uri(name) else f"file://{uri(name)}", "").rows(schema)
        return [text for text, _ in rows]

    check_sink(lambda name: ParquetSink(uri(name), schema, **options), read, lambda text: (text, 1))


# --- what readers see ------------------------------------------------------------------------------


def test_pyarrow_and_duckdb_read_what_is_committed(folder: Folder) -> None:
    sink = folder.opened(partition_by=["day"])
    run(sink, 1, 1, 2)
    prepare(sink, 2, [("day5", 5)])
    assert folder.rows() == [("day0", 2), ("day1", 1)]
    path = folder.uri.removeprefix("file://")
    found = f"read_parquet('{path}/**/*.parquet', hive_partitioning = true)"
    assert duckdb.sql(f"SELECT day, amount FROM {found} ORDER BY day").fetchall() == [
        ("day0", 2),
        ("day1", 1),
    ]
    sink.commit(2)
    assert folder.rows() == [("day0", 2), ("day1", 1), ("day5", 5)]


def test_names_have_the_sink_the_epoch_and_the_run(folder: Folder) -> None:
    sink = folder.opened(partition_by=["day"])
    run(sink, 7, 1)
    (path,) = folder.files()
    assert path.startswith("day=day1/part-")
    assert f"-7-{run_id(1)}-00000-" in path
    assert pq.read_schema(f"{folder.uri.removeprefix('file://')}/{path}").names == ["amount"]


def test_nothing_staged_is_left_after_a_commit(folder: Folder, tmp_path: Path) -> None:
    sink = folder.opened(partition_by=["day"], join_files=True)
    writer = sink.writer(1)
    list(writer.write(0, iter([("failed", 1)])))
    run(sink, 1, 1, 2)
    assert list(tmp_path.rglob("*.staged")) == []
    assert [path.name for path in tmp_path.rglob("epoch=*")] == []


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a b", "ü%41=x/y:z", "'\"#*?{[]^\\", "+", None, "\x01\x7f", ".."]),
        (pa.int32(), [-5, None, 7]),
        (pa.bool_(), [True, False, None]),
        (pa.date32(), [date(2020, 1, 2), None]),
    ],
    ids=str,
)
def test_values_of_partition_columns_come_back(folder: Folder, kind: pa.DataType, values: list[Any]) -> None:
    schema = pa.schema([("a=b", kind), ("n", pa.int64())])
    sink = folder.opened(schema=schema, partition_by=["a=b"])
    rows = [(value, number) for number, value in enumerate(values)]
    prepare(sink, 1, rows, rows)
    sink.commit(1)
    assert folder.rows(schema) == sorted(rows * 2, key=str)
    assert len({path.partition("/")[0] for path in folder.files()}) == len(values)


def test_names_of_folders_are_those_of_spark(folder: Folder) -> None:
    sink = folder.opened(partition_by=["day"])
    prepare(sink, 1, [(None, 1), ("", 2), ("a/b:c%ü x", 3)])
    sink.commit(1)
    folders = {path.partition("/")[0] for path in folder.files()}
    assert folders == {"day=__HIVE_DEFAULT_PARTITION__", "day=a%2Fb%3Ac%25ü x"}


def test_a_task_begins_a_new_file_when_one_is_large_enough(folder: Folder) -> None:
    sink = folder.opened(file_bytes=60_000)
    prepare(sink, 1, [("x", number) for number in range(20_000)])
    sink.commit(1)
    sizes = folder.sizes()
    assert len(sizes) > 1
    assert len([size for size in sizes if size < 60_000]) <= 1, "the last one"
    assert max(sizes) < 120_000
    assert folder.amounts() == list(range(20_000))


def test_small_files_of_a_folder_are_joined_before_they_are_seen(folder: Folder) -> None:
    sink = folder.opened(partition_by=["day"], join_files=True)
    parts = [[(f"day{number % 2}", 10 * part + number) for number in range(10)] for part in range(4)]
    prepare(sink, 1, *parts, [("day7", 40)])
    sink.commit(1)
    assert [path.partition("/")[0] for path in folder.files()] == ["day=day0", "day=day1", "day=day7"]
    assert folder.amounts() == list(range(41))
    path = Path(folder.uri.removeprefix("file://"), folder.files()[0])
    assert pq.read_table(path)["amount"].to_pylist() == [
        a for part in parts for day, a in part if day == "day0"
    ]


def test_joined_files_end_at_the_size_that_was_set(folder: Folder) -> None:
    parts = [[("x", 1000 * part + number) for number in range(1000)] for part in range(6)]
    sink = folder.opened(join_files=True, file_bytes=20_000)
    prepare(sink, 1, *parts)
    sink.commit(1)
    assert 1 < len(folder.sizes()) < 6
    assert max(folder.sizes()) < 40_000
    assert folder.amounts() == list(range(6000))


def test_files_of_others_are_left_alone(folder: Folder) -> None:
    sink = folder.opened()
    other = folder.sink(name="other")
    other.open_run("b" * 32, history((1, 0)), None)
    foreign = Path(folder.uri.removeprefix("file://"), "part-0.parquet")
    pq.write_table(pa.table([["z"], [99]], schema=SCHEMA), foreign)
    run(other, 1, 10)
    run(sink, 1, 1)
    folder.opened(2)
    assert folder.amounts() == [10, 99]


# --- drivers that are killed -----------------------------------------------------------------------


class Killed(BaseException):
    """Ends a driver."""


class Changes:
    """Counts the changes of local files; from one on, the process is dead and changes nothing any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done = 0
        self.last: int | None = None
        for name in ("create_dir", "delete_dir", "delete_file", "move", "open_output_stream"):
            monkeypatch.setattr(OwnFolders, name, self._counted(getattr(OwnFolders, name)))

    def _counted(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(handler: OwnFolders, *arguments: Any) -> Any:
            if self.last is not None and self.done >= self.last:
                raise Killed
            self.done += 1
            return method(handler, *arguments)

        return counted

    def killed(self, at: int, program: Callable[[], object]) -> bool:
        """Run a program up to a change; return whether it got there."""
        self.done, self.last = 0, at
        try:
            program()
        except Killed:
            return True
        else:
            return False
        finally:
            self.last = None


@pytest.fixture
def changes(monkeypatch: pytest.MonkeyPatch) -> Changes:
    monkeypatch.setattr(parquet_sink, "MOST_THREADS", 1)
    return Changes(monkeypatch)


#: The amounts of epochs: in two folders each, but that epoch 2 has none.
AMOUNTS = {1: (1, 2), 2: (), 3: (3, 4)}


def amounts_up_to(epoch: int) -> list[int]:
    return sorted(amount for number in range(1, epoch + 1) for amount in AMOUNTS.get(number, ()))


class Job:
    """A job over a folder of its own, and the last epoch that its checkpoints cover."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = Folder(f"file://{tmp_path}/out", str(tmp_path / "staging"))
        self.covered = 0

    def opened(self, run: int, restored: int) -> ParquetSink:
        runs = history((1, 0), (run, restored)) if restored else history((run, 0))
        options = {"partition_by": ["day"], "join_files": True}
        return self.folder.opened(run, restored or None, runs, **options)

    def run(self) -> None:
        """The first driver."""
        sink = self.opened(1, 0)
        for epoch, amounts in AMOUNTS.items():
            prepare(sink, epoch, *([(f"day{amount % 2}", amount)] for amount in amounts))
            self.covered = epoch
            sink.commit(epoch)

    def goes_on(self, run_number: int, restored: int) -> None:
        """Check that a next driver shows what its checkpoint covers, and goes on."""
        sink = self.opened(run_number, restored)
        assert self.folder.amounts() == amounts_up_to(restored)
        run(sink, restored + 1, 10)
        assert self.folder.amounts() == [*amounts_up_to(restored), 10]


@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("step", cases([1, 7], quick=[7]))
def test_a_driver_that_is_killed_at_any_change(
    tmp_path: Path, changes: Changes, back: int, step: int
) -> None:
    at = 0
    while True:
        job = Job(tmp_path / f"{at}")
        is_killed = changes.killed(at, job.run)
        job.goes_on(2, max(0, job.covered - back))
        if not is_killed:
            break
        at += step
    assert at > 60


@pytest.mark.full
@pytest.mark.parametrize("back", [0, 1, 2])
def test_a_driver_that_is_killed_as_it_starts_after_another(
    tmp_path: Path, changes: Changes, back: int
) -> None:
    """The first driver ends when one of the two files of the last epoch is visible."""
    moves = 0

    def until_the_third_file(job: Job) -> bool:
        return len(job.folder.files()) < 3

    whole = Job(tmp_path / "whole")
    changes.killed(10**6, whole.run)
    for moves in range(changes.done):
        job = Job(tmp_path / f"moves-{moves}")
        changes.killed(moves, job.run)
        if not until_the_third_file(job):
            break
    assert job.folder.amounts() in ([1, 2, 3], [1, 2, 4])
    at, is_killed = 0, True
    while is_killed:
        job = Job(tmp_path / f"{at}")
        changes.killed(moves, job.run)
        is_killed = changes.killed(at, lambda job=job: job.opened(2, 3 - back))
        job.goes_on(3, 3 - back)
        at += 1
    assert at > 10


@pytest.mark.parametrize("restored", [1, 2])
@pytest.mark.parametrize("moves", [0, 1])
def test_a_driver_that_is_frozen_in_a_commit_publishes_nothing_more(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, restored: int, moves: int
) -> None:
    """It has found no newer run, and continues when there is one."""
    monkeypatch.setattr(parquet_sink, "MOST_THREADS", 1)
    old = folder.opened()
    run(old, 1, 1, 2)
    for epoch in (2, 3):
        prepare(old, epoch, [("x", 10 * epoch)], [("y", 10 * epoch + 1)])
    newer: list[ParquetSink] = []
    move, left = OwnFolders.move, [moves]

    def frozen(handler: OwnFolders, source: str, place: str) -> None:
        if source.endswith(".staged") and not newer:
            left[0] -= 1
            if left[0] < 0:
                newer.append(folder.sink())
                newer[0].open_run(JOB, history((1, 0), (2, restored)), restored)
        move(handler, source, place)

    monkeypatch.setattr(OwnFolders, "move", frozen)
    with pytest.raises((JobSupersededError, SinkError)):
        old.commit(3)
    wanted = [1, 2] if restored == 1 else [1, 2, 20, 21]
    assert folder.amounts() == wanted
    run(newer[0], restored + 1, 50)
    assert folder.amounts() == [*wanted, 50]


def test_what_an_older_driver_publishes_while_a_newer_one_begins_is_deleted(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = folder.opened()
    run(old, 1, 1)
    prepare(old, 2, [("x", 20)])
    staged = [StagedFile.of(file) for note in old.area.notes().values() for file in note]
    clear = StagingArea.clear

    def late(area: StagingArea, committed: int) -> None:
        while staged and area.uri.startswith(folder.uri):
            file = staged.pop()
            old._bring((old._own(file.name), old._place_of(file)))
            assert folder.amounts() == [1, 20]
        clear(area, committed)

    monkeypatch.setattr(StagingArea, "clear", late)
    folder.opened(2, 1)
    assert folder.amounts() == [1]


def test_an_epoch_of_which_a_part_is_visible_is_not_left_after_a_fall_back(
    folder: Folder, changes: Changes
) -> None:
    """Within one driver: the commit fails, and the checkpoint of its epoch turns out to be damaged."""
    sink = folder.opened()
    run(sink, 1, 1)
    prepare(sink, 2, [("x", 20)], [("x", 21)])
    for at in range(20):
        if changes.killed(at, lambda: sink.commit(2)) and len(folder.files()) == 2:
            break
    assert len(folder.amounts()) == 2
    sink.rewind(1)
    sink.commit(1)
    assert folder.amounts() == [1]
    run(sink, 2, 30)
    assert folder.amounts() == [1, 30]


def test_an_older_driver_deletes_nothing_of_a_newer_one(folder: Folder) -> None:
    old = folder.opened()
    run(old, 1, 1)
    new = folder.opened(2, 1)
    run(new, 2, 2)
    for call in (old.rewind, old._delete_after, lambda epoch: old.add_files(epoch, [])):
        with pytest.raises(JobSupersededError):
            call(0)
    with pytest.raises(SinkStorageError):
        old.take_back(0)
    assert folder.amounts() == [1, 2]


def test_a_checkpoint_of_another_line_is_refused(folder: Folder) -> None:
    """A job went back and wrote an epoch anew; the checkpoint of the first try does not go with that."""
    first = folder.opened()
    for epoch in (1, 2, 3):
        run(first, epoch, epoch)
    second = folder.opened(runs=history((1, 0), (2, 1)), restored=1)
    run(second, 2, 20)
    with pytest.raises(SinkError, match=r"epoch 2 in .* is not that of the restored checkpoint"):
        folder.opened(runs=history((1, 0), (3, 3)), restored=3)
    assert folder.amounts() == [1, 20]
    folder.opened(runs=history((1, 0), (2, 1), (4, 2)), restored=2)
    assert folder.amounts() == [1, 20]


# --- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partition_by": ["nonesuch"]}, "must be some of the columns"),
        ({"partition_by": ["day", "amount"]}, "must leave columns"),
        ({"partition_by": "day"}, "partition_by"),
        ({"file_bytes": 0}, "file_bytes must be"),
        ({"file_bytes": 5 << 30}, "file_bytes must be at most"),
        ({"schema": ["day"]}, "schema must be a pyarrow.Schema"),
        ({"name": "a/b"}, "a name has letters"),
    ],
    ids=str,
)
def test_arguments_that_do_not_go_together(folder: Folder, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        folder.sink(**options)


@pytest.mark.parametrize(
    ("schema", "options"),
    [
        (SCHEMA.append(pa.field("more", pa.int64())), {}),
        (pa.schema([("day", pa.string()), ("amount", pa.int32())]), {}),
        (SCHEMA, {"partition_by": ["day"]}),
    ],
    ids=["columns", "types", "partitions"],
)
def test_other_columns_than_before_are_refused(
    folder: Folder, schema: pa.Schema, options: dict[str, Any]
) -> None:
    run(folder.opened(), 1, 1)
    with pytest.raises(SinkError, match=r"other columns: day string, amount int64; partitioned by \[\]; not"):
        folder.opened(2, 1, schema=schema, **options)
    assert folder.amounts() == [1]
    folder.opened(2, 1, schema=schema, name="anew", **options)


def test_a_folder_belongs_to_one_sink_of_a_job(tmp_path: Path) -> None:
    place = str(tmp_path / "out")
    sinks = [ParquetSink(place, SCHEMA), ParquetSink(f"file://{place}/", SCHEMA, name="x"), FileSink(place)]
    for first, second in ((0, 1), (1, 2), (2, 0)):
        with pytest.raises(ConfigurationError, match="another sink of the job has the folder"):
            check_sinks([("one", sinks[first]), ("other", sinks[second])])
    check_sinks([("one", sinks[0]), ("other", ParquetSink(tmp_path / "elsewhere", SCHEMA))])


def test_a_name_belongs_to_one_sink_of_a_job(tmp_path: Path) -> None:
    """Two of them would stage in one folder, and each would take the files of the other."""
    one, other = (ParquetSink(tmp_path / folder, SCHEMA, name="orders") for folder in ("one", "other"))
    with pytest.raises(ConfigurationError, match="another sink of the job has the name 'orders'"):
        check_sinks([("one", one), ("other", other)])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (Path.unlink, rf"its marker for job {JOB} was removed"),
        (lambda path: path.write_text("[1,"), r"committed\.json is damaged"),
    ],
)
def test_a_marker_that_is_removed_or_damaged_is_noticed(
    folder: Folder, tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    run(folder.opened(), 1, 1)
    (path,) = tmp_path.rglob("committed.json")
    damage(path)
    with pytest.raises(SinkError, match=message):
        folder.opened(2, 1)


def test_a_staged_file_that_is_deleted_is_noticed(folder: Folder, tmp_path: Path) -> None:
    prepare(folder.opened(), 1, [("x", 1)])
    for path in tmp_path.rglob("*.staged"):
        path.unlink()
    with pytest.raises(SinkError, match="was deleted before it was published, and the checkpoint covers it"):
        folder.opened(2, 1)


def test_a_record_that_does_not_fit_fails_in_its_task(folder: Folder) -> None:
    sink = folder.opened(partition_by=["day"])
    for record in ({"day": "x"}, ("x", "y"), "xy"):
        with pytest.raises(BadRecordError, match="record"):
            prepare(sink, 1, [record])
    with pytest.raises(SinkStorageError, match="name too long"):
        prepare(sink, 1, [("x" * 300, 1)])


def test_a_job_without_checkpoints_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="call enable_checkpointing"):
        ParquetSink(tmp_path / "out", SCHEMA).open_run(JOB, history((1, 0)), None)


def test_the_default_name_does_not_depend_on_options() -> None:
    names = {ParquetSink(f"s3://bucket/a{end}?region=us-east-1", SCHEMA).name for end in ("", "/")}
    names |= {ParquetSink("s3://bucket/a?region=eu-west-1&scheme=http", SCHEMA).name}
    assert len(names) == 1


# --- S3 --------------------------------------------------------------------------------------------


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    from s3_server import CREDENTIALS, Server

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def bucket(server: Any, tmp_path: Path) -> Any:
    from s3_server import Bucket

    return Bucket(server.port, "b" + "".join(filter(str.isalnum, tmp_path.name.lower()))).create()


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, {"partition_by": ["text"], "join_files": True}], ids=str)
def test_contract_on_s3(bucket: Any, options: dict[str, Any]) -> None:
    check_contract(bucket.uri, options)


@pytest.mark.full
def test_s3_copies_files_itself(server: Any, bucket: Any) -> None:
    """No bytes of a file pass through the driver when an epoch is committed."""
    folder = Folder(bucket.uri("out"), bucket.uri("staging"))
    sink = folder.opened(partition_by=["day"])
    prepare(sink, 1, [(f"day{number % 3}", number) for number in range(1000)])
    requests: list[tuple[str, str]] = []

    def seen(method: str, path: str) -> bool:
        requests.append((method, path))
        return False

    server.denied = seen
    sink.commit(1)
    assert not [path for method, path in requests if method == "GET" and "part-" in path]
    assert len([path for method, path in requests if method == "PUT" and "/part-" in path]) == 3
    assert folder.amounts() == list(range(1000))
    left = [key for key in bucket.objects() if key.endswith(".staged")]
    assert left == []


@pytest.mark.full
@pytest.mark.parametrize("restored", [1, 2])
def test_a_driver_that_is_frozen_before_a_copy_on_s3(
    bucket: Any, monkeypatch: pytest.MonkeyPatch, restored: int
) -> None:
    monkeypatch.setattr(parquet_sink, "MOST_THREADS", 1)
    folder = Folder(bucket.uri("out"), bucket.uri("staging"))
    old = folder.opened()
    run(old, 1, 1)
    prepare(old, 2, [("x", 20)], [("y", 21)])
    newer: list[ParquetSink] = []
    bring = old._bring

    def frozen(places: tuple[str, str]) -> None:
        if not newer:
            newer.append(folder.opened(2, restored, history((1, 0), (2, restored))))
        bring(places)

    monkeypatch.setattr(old, "_bring", frozen)
    with suppress(JobSupersededError):  # if the newer one has published the epoch, nothing is left to do
        old.commit(2)
    assert len(newer) == 1
    assert folder.amounts() == ([1] if restored == 1 else [1, 20, 21])


@pytest.mark.full
def test_s3_that_refuses(server: Any, bucket: Any) -> None:
    folder = Folder(bucket.uri("out"), bucket.uri("staging"))
    sink = folder.opened()
    prepare(sink, 1, [("x", 1)], [("x", 2)])
    server.denied = lambda method, path: method == "PUT" and "/out/part-" in path
    with pytest.raises(SinkStorageError, match=r"cannot publish epoch 1 in .*ACCESS_DENIED"):
        sink.commit(1)
    assert folder.files() == []
    server.denied = lambda method, path: False
    sink.rewind(1)
    sink.commit(1)
    assert folder.amounts() == [1, 2]
    sink.rewind(0)
    assert folder.files() == []
    assert child_uri(folder.uri, "x").startswith("s3://")
