"""Checkpoint storage: folders, streams, and the history of runs."""

from __future__ import annotations

import json
import logging
import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from golden_metadata import GOLDEN, METADATA
from hypothesis import example, given, strategies as st
from support_runtime import metadata, tree

from pyflinkstate.backends.format import ByteStreamStateHandle, CheckpointMetadata, FileStateHandle
from pyflinkstate.backends.format.framing import encode_head
from pyflinkstate.backends.format.metadata import MAGIC, READABLE_VERSIONS, VERSION
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
)
from pyflinkstate.runtime.storage import (
    CheckpointFolder,
    CheckpointFolders,
    FileSystemCheckpointStorage,
    RunHistory,
    TakenOver,
    load_checkpoint,
    newest_run,
    open_file_system,
    open_folder,
    run_id_after,
)
from pyflinkstate.runtime.storage.checkpoints import LOOKS
from pyflinkstate.runtime.storage.runs import sorted_runs
from pyflinkstate.runtime.storage.streams import MAX_INLINE_THRESHOLD_BYTES, FsCheckpointStateOutputStream

JOB = "0" * 32
#: The name of a folder that no job has made.
NOT_UTF_8 = os.fsdecode(b"chk-\xe9")


def publish(storage: CheckpointFolders, made: CheckpointMetadata) -> Path:
    """Write a completed checkpoint and return its folder."""
    path = storage.begin(made.job_id, made.checkpoint_id)
    storage.complete(made)
    return Path(path)


# --- completed checkpoints -------------------------------------------------------------------------


def test_a_checkpoint_exists_from_the_moment_its_metadata_does(storage: CheckpointFolders) -> None:
    path = storage.begin(JOB, 1)
    assert storage.checkpoint_ids(JOB) == [1]
    assert storage.completed(JOB) == []
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint"):
        storage.load(path)
    storage.complete(metadata())
    assert storage.completed(JOB) == [1]
    assert storage.load(path) == metadata()
    assert [entry.name for entry in Path(path).iterdir()] == ["_metadata"]


class TearingMetadata(CheckpointMetadata):
    """The process dies, in effect, before the metadata is written."""

    def encode(self) -> bytes:
        raise MemoryError


def test_a_publication_that_is_interrupted_leaves_no_completed_checkpoint(storage: CheckpointFolders) -> None:
    path = storage.begin(JOB, 1)
    with pytest.raises(MemoryError):
        storage.complete(TearingMetadata(**attrs.asdict(metadata(), recurse=False)))
    assert storage.completed(JOB) == []
    assert not (Path(path) / "_metadata").exists()
    storage.complete(metadata())
    assert storage.completed(JOB) == [1]


def test_a_checkpoint_is_completed_once(storage: CheckpointFolders) -> None:
    path = publish(storage, metadata())
    before = tree(path)
    with pytest.raises(CheckpointStorageError, match="already exists"):
        storage.complete(metadata(counters={}))
    assert tree(path) == before


def test_a_checkpoint_without_a_folder_cannot_be_completed(blocked: str) -> None:
    with pytest.raises(CheckpointStorageError, match="cannot complete"):
        CheckpointFolders(blocked).complete(metadata())


def test_a_discarded_checkpoint_is_gone_with_all_its_files(storage: CheckpointFolders) -> None:
    path = publish(storage, metadata())
    (path / "state").write_bytes(b"state")
    publish(storage, metadata(2))
    storage.discard(storage.uri_of(JOB, 1))
    assert not path.exists()
    assert storage.completed(JOB) == [2]


def test_discarding_what_is_not_there_or_unfinished(storage: CheckpointFolders) -> None:
    for begin in (storage.uri_of, storage.begin):
        storage.discard(begin(JOB, 1))
    assert storage.checkpoint_ids(JOB) == []


def test_ids_are_numbers_in_order_and_other_names_are_passed_over(storage: CheckpointFolders) -> None:
    for number in (10, 9, 100):
        storage.begin(JOB, number)
    for name in ("chk-", "chk-x", "chk-7.tmp", "shared", "old-chk-3", NOT_UTF_8):
        Path(storage.uri_of(JOB, 1)).with_name(name).mkdir()
    Path(storage.uri_of(JOB, 8)).write_text("a file, no folder")
    assert storage.checkpoint_ids(JOB) == [9, 10, 100]
    assert storage.checkpoint_ids("unknown") == []
    (Path(storage.uri_of(JOB, 1)).parents[1] / NOT_UTF_8).mkdir()
    assert storage.job_ids() == [JOB]


# --- the newest --------------------------------------------------------------------------------------


def test_the_newest_checkpoint_of_a_name_is_found_over_all_jobs(storage: CheckpointFolders) -> None:
    publish(storage, metadata(9, "a" * 32, timestamp_ms=900))
    publish(storage, metadata(2, "b" * 32, timestamp_ms=2_000))
    publish(storage, metadata(3, "b" * 32, timestamp_ms=3_000))
    publish(storage, metadata(1, "c" * 32, timestamp_ms=1_000))
    publish(storage, metadata(5, "d" * 32, job_name="other", timestamp_ms=9_000))
    storage.begin("b" * 32, 4)
    assert storage.load_latest("orders")[0] == metadata(3, "b" * 32, timestamp_ms=3_000)
    assert storage.load_latest("other")[0].job_id == "d" * 32


@pytest.mark.parametrize(
    "prepare",
    [
        lambda storage: None,
        lambda storage: storage.begin(JOB, 1),
        lambda storage: publish(storage, metadata(1, job_name="other")),
    ],
    ids=["none", "one unfinished", "one of another name"],
)
def test_no_completed_checkpoint_of_that_name(
    storage: CheckpointFolders, prepare: Callable[[CheckpointFolders], object]
) -> None:
    prepare(storage)
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'orders'"):
        storage.load_latest("orders")


def test_a_damaged_newest_checkpoint_is_passed_over_only_if_that_is_wanted(
    storage: CheckpointFolders,
) -> None:
    for number in (1, 2):
        publish(storage, metadata(number))
    (Path(storage.uri_of(JOB, 2)) / "_metadata").write_bytes(b"")
    with pytest.raises(CorruptCheckpointError, match=r"chk-2/_metadata is damaged"):
        storage.load_latest("orders")
    assert storage.load_latest("orders", fall_back=True)[0] == metadata(1)
    (Path(storage.uri_of(JOB, 1)) / "_metadata").write_bytes(b"")
    with pytest.raises(CheckpointNotFoundError):
        storage.load_latest("orders", fall_back=True)


def test_a_version_that_is_damage_is_passed_over_with_a_warning(
    storage: CheckpointFolders, caplog: pytest.LogCaptureFixture
) -> None:
    publish(storage, metadata(1))
    path = publish(storage, metadata(2)) / "_metadata"
    whole = path.read_bytes()
    path.write_bytes(whole[:9] + b"\x63" + whole[10:])
    with pytest.raises(CorruptCheckpointError, match=r"chk-2/_metadata is damaged.* has format version 99"):
        storage.load_latest("orders")
    assert storage.load_latest("orders", fall_back=True)[0] == metadata(1)
    assert "checkpoint 2 is skipped" in caplog.text
    assert "format version 99" in caplog.text


@pytest.mark.parametrize(
    "strange", [metadata(2, "f" * 32), metadata(3), None], ids=["job", "id", "unfinished"]
)
@pytest.mark.parametrize("place", [2, 9])
def test_what_is_not_a_whole_checkpoint_of_the_job_is_passed_over_and_logged(
    storage: CheckpointFolders,
    caplog: pytest.LogCaptureFixture,
    strange: CheckpointMetadata | None,
    place: int,
) -> None:
    for checkpoint_id in (1, 4):
        publish(storage, metadata(checkpoint_id))
    folder = storage.begin(JOB, place)
    if strange is not None:
        storage.complete(strange, folder)
    with caplog.at_level(logging.INFO):
        assert [found for found, _ in storage.load_retained("orders")] == [metadata(4), metadata(1)]
    is_looked_at = place == 9 or strange is not None
    assert (f"checkpoint {place} of job {JOB} is skipped" in caplog.text) == is_looked_at
    with pytest.raises((CorruptCheckpointError, CheckpointNotFoundError)):
        storage.load(folder)


def test_a_checkpoint_of_a_newer_release_is_not_passed_over(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    path = publish(storage, metadata(2)) / "_metadata"
    framed = path.read_bytes()[:8] + b"\x00\x63" + path.read_bytes()[10:-4]
    path.write_bytes(framed + zlib.crc32(framed).to_bytes(4, "big"))
    with pytest.raises(IncompatibleCheckpointError, match="chk-2/_metadata has format version 99"):
        storage.load_latest("orders", fall_back=True)


def test_what_is_retained_of_the_newest_run_is_found_newest_first(storage: CheckpointFolders) -> None:
    assert list(storage.load_retained("orders")) == []
    for number in (9, 10):
        publish(storage, metadata(number, timestamp_ms=number))
    publish(storage, metadata(20, "b" * 32, timestamp_ms=1))
    assert [found.checkpoint_id for found, _ in storage.load_retained("orders")] == [10, 9]


def test_a_retained_checkpoint_that_is_damaged_concerns_who_needs_it(storage: CheckpointFolders) -> None:
    (publish(storage, metadata(9)) / "_metadata").write_bytes(b"")
    publish(storage, metadata(10))
    retained = storage.load_retained("orders")
    assert next(retained) == (metadata(10), storage.uri_of(JOB, 10))
    with pytest.raises(CorruptCheckpointError):
        next(retained)


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}", "{}/_metadata"])
def test_a_checkpoint_is_loaded_from_its_folder_or_metadata(storage: CheckpointFolders, form: str) -> None:
    path = publish(storage, metadata())
    loaded, uri = load_checkpoint(form.format(path))
    assert loaded == metadata()
    assert uri.removeprefix("file://") == str(path)
    assert open_folder(uri).folder == str(path), "state files are looked for in this folder"


# --- damage ------------------------------------------------------------------------------------------


every_version = pytest.mark.parametrize("version", GOLDEN)


@every_version
def test_the_golden_metadata_of_each_version_is_read_back(storage: CheckpointFolders, version: int) -> None:
    content = METADATA[version]
    path = Path(storage.begin(content.job_id, 42))
    (path / "_metadata").write_bytes(GOLDEN[version].read_bytes())
    assert storage.load(str(path)) == content
    assert content.operator("spend") is content.operators[0]
    assert content.operator("unknown") is None


def test_every_readable_version_has_a_golden_file() -> None:
    assert set(GOLDEN) == READABLE_VERSIONS
    for version, path in GOLDEN.items():
        assert path.read_bytes()[:10] == MAGIC + version.to_bytes(2, "big")


def test_this_release_writes_the_golden_bytes() -> None:
    assert METADATA[VERSION].encode() == GOLDEN[VERSION].read_bytes(), "a changed format needs a new version"
    assert (MAGIC, VERSION) == (b"PFSCHKPT", 5)


@every_version
def test_the_content_of_any_version_is_written_as_the_newest_and_read_back(version: int) -> None:
    rewritten = METADATA[version].encode()
    assert rewritten[8:10] == VERSION.to_bytes(2, "big")
    assert CheckpointMetadata.decode(rewritten, "chk-42") == METADATA[version]


@every_version
def test_metadata_cut_short_anywhere_is_a_corrupt_checkpoint(version: int) -> None:
    whole = GOLDEN[version].read_bytes()
    for size in range(len(whole)):
        with pytest.raises(CorruptCheckpointError, match="chk-42"):
            CheckpointMetadata.decode(whole[:size], "chk-42")


@every_version
def test_metadata_altered_anywhere_is_refused(version: int) -> None:
    whole = GOLDEN[version].read_bytes()
    for position in range(0, len(whole), 7):
        altered = bytearray(whole)
        altered[position] ^= 0x20
        with pytest.raises((CorruptCheckpointError, IncompatibleCheckpointError), match="chk-42"):
            CheckpointMetadata.decode(bytes(altered), "chk-42")


@pytest.mark.parametrize("version", [0, VERSION + 1, 65_535])
def test_metadata_of_an_unknown_format_version_is_incompatible(
    storage: CheckpointFolders, version: int
) -> None:
    path = publish(storage, metadata()) / "_metadata"
    data = bytearray(path.read_bytes())
    data[8:10] = version.to_bytes(2, "big")
    data[-4:] = zlib.crc32(data[:-4]).to_bytes(4, "big")
    path.write_bytes(data)
    text = f"format version {version}, and this release reads up to version {VERSION}"
    with pytest.raises(IncompatibleCheckpointError, match=text):
        storage.load(str(path.parent))


@pytest.mark.parametrize(
    "operator",
    [
        {},
        {"parallelism": 1},
        {"subtasks": [{"managed_keyed": {"key_groups": [0, 1]}}]},
        {"subtasks": [{"of a later release": {}}]},
        {"subtasks": [{"managed_operator": {"stream": {"inline": ""}, "states": {"s": {"mode": "?"}}}}]},
        {"subtasks": [{"raw_operator": {"stream": {"inline": "="}, "partitions": [[1, 2]]}}]},
        {"subtasks": ["text"]},
        {"handles": [[]]},
    ],
    ids=str,
)
def test_metadata_of_no_sense_is_a_corrupt_checkpoint(operator: dict[str, Any]) -> None:
    operator = {"operator_id": "spend", "parallelism": 1, "max_parallelism": 128, **operator}
    content = attrs.asdict(metadata()) | {"operators": [operator]}
    with pytest.raises(CorruptCheckpointError, match="chk-1 is damaged: its content does not make sense"):
        CheckpointMetadata.decode(encode_head(MAGIC, VERSION, content), "chk-1")


def test_another_kind_of_file_is_no_metadata(storage: CheckpointFolders) -> None:
    path = publish(storage, metadata()) / "_metadata"
    path.write_bytes(b"PK\x03\x04 a zip file, in fact")
    with pytest.raises(CorruptCheckpointError, match="does not begin like a file of this kind"):
        storage.load(str(path.parent))


# --- while a job runs --------------------------------------------------------------------------------


class Watched(CheckpointFolders):
    """Lets something happen between a look into a folder and the reading of what it has shown."""

    def __init__(self, directory: str, happens: Callable[[CheckpointFolders, list[int]], None]) -> None:
        super().__init__(directory)
        self.happens = happens

    def completed(self, job_id: str) -> list[int]:
        found = super().completed(job_id)
        self.happens(CheckpointFolders(self.uri), found)
        return found

    def runs(self, job_id: str) -> list[str]:
        found = super().runs(job_id)
        self.happens(CheckpointFolders(self.uri), [])
        return found


def overtaking(times: int) -> Callable[[CheckpointFolders, list[int]], None]:
    """Return a job that so many times publishes a checkpoint and deletes the one before."""
    left = [None] * times

    def happens(storage: CheckpointFolders, found: list[int]) -> None:
        if found and left:
            left.pop()
            publish(storage, metadata(found[-1] + 1))
            storage.discard(storage.uri_of(JOB, found[-1]))

    return happens


def deleting(*gone: int) -> Callable[[CheckpointFolders, list[int]], None]:
    """Return a job that deletes these checkpoints when they have been found."""

    def happens(storage: CheckpointFolders, found: list[int]) -> None:
        for checkpoint_id in set(gone) & set(found):
            storage.discard(storage.uri_of(JOB, checkpoint_id))

    return happens


@pytest.mark.parametrize("times", [1, 2, LOOKS - 1])
def test_the_newest_that_is_gone_when_it_is_read_is_looked_for_again(
    storage: CheckpointFolders, times: int
) -> None:
    publish(storage, metadata(1))
    assert Watched(storage.uri, overtaking(times)).load_newest(JOB) == metadata(1 + times)
    assert Watched(storage.uri, overtaking(times)).load_latest("orders")[0] == metadata(1 + 2 * times)


def test_the_newest_is_not_looked_for_without_end(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    for load in (lambda made: made.load_newest(JOB), lambda made: list(made.load_retained("orders"))):
        with pytest.raises(CheckpointStorageError, match=rf"newest checkpoint of job {JOB}: {LOOKS} times"):
            load(Watched(storage.uri, overtaking(LOOKS)))


def test_a_newest_that_is_gone_with_all_others_is_none(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    assert Watched(storage.uri, deleting(1)).load_newest(JOB) is None
    publish(storage, metadata(1))
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'orders'"):
        Watched(storage.uri, deleting(1)).load_latest("orders")


def test_an_older_one_that_is_gone_when_it_is_read_is_left_out(storage: CheckpointFolders) -> None:
    for number in (1, 2, 3):
        publish(storage, metadata(number))
    assert list(Watched(storage.uri, deleting(1)).load_older(metadata(3))) == [metadata(2)]


def test_a_run_whose_claim_is_gone_when_it_is_read_was_followed_by_a_newer_one(
    storage: CheckpointFolders,
) -> None:
    first, second = "000001-00000001", "000002-00000002"
    storage.write_run(JOB, first, TakenOver(RunHistory(((first, 0),)), 3))

    def happens(other: CheckpointFolders, _: list[int]) -> None:
        other.write_run(JOB, second, TakenOver(RunHistory(((second, 0),)), 5))
        other.forget_runs(JOB, before=second)

    assert Watched(storage.uri, happens).line(JOB) == RunHistory(((second, 0),))


def test_a_folder_in_the_place_of_metadata_makes_no_checkpoint(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    (Path(storage.begin(JOB, 2)) / "_metadata").mkdir()
    assert storage.completed(JOB) == [1]
    assert storage.load_latest("orders")[0] == metadata(1)


# --- directories -------------------------------------------------------------------------------------


def test_a_writable_directory_is_made_and_left_empty(tmp_path: Path) -> None:
    CheckpointFolders(str(tmp_path / "a" / "b")).check_writable()
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_directory_that_cannot_be_written_is_found_out_and_named(blocked: str) -> None:
    storage = CheckpointFolders(blocked)
    for attempt in (storage.check_writable, lambda: storage.begin(JOB, 1)):
        with pytest.raises(CheckpointStorageError, match=blocked) as caught:
            attempt()
        assert caught.value.recoverable


def test_a_local_uri_is_the_same_place_as_its_path(tmp_path: Path) -> None:
    publish(CheckpointFolders(f"file://{tmp_path}"), metadata())
    assert CheckpointFolders(str(tmp_path)).load_latest("orders")[0] == metadata()


# --- what checkpoints share --------------------------------------------------------------------------


def share(storage: CheckpointFolders, checkpoint_id: int) -> FileStateHandle:
    """Write a file that later checkpoints may need as well."""
    folder = storage.begin(JOB, checkpoint_id, shared=True)
    stream = storage.streams(folder, shared_by=checkpoint_id).create()
    stream.write(bytes(100_000))
    return stream.close_and_get_handle()


def test_shared_files_lie_beside_the_checkpoints_and_are_found_from_each(storage: CheckpointFolders) -> None:
    handles = [share(storage, number) for number in (1, 2)]
    assert all(handle.path.startswith("../shared/") for handle in handles)
    assert len(tree(Path(storage.uri, JOB, "shared"))) == 2
    storage.discard(storage.uri_of(JOB, 1))
    assert storage.streams(storage.uri_of(JOB, 2)).read(handles[0], 0, 3) == bytes(3)
    assert storage.checkpoint_ids(JOB) == [2]


def test_shared_files_are_deleted_by_name_and_a_second_time_is_quiet(storage: CheckpointFolders) -> None:
    first, second = (share(storage, number) for number in (1, 2))
    for _ in range(2):
        storage.discard_shared(JOB, [first.path])
        assert list(tree(Path(storage.uri, JOB, "shared"))) == [Path(second.path).name]


def test_a_sweep_leaves_what_is_needed(storage: CheckpointFolders) -> None:
    storage.discard_shared(JOB, storage.shared_paths(JOB))
    _, second = (share(storage, number) for number in (1, 2))
    storage.discard_shared(
        JOB, storage.shared_paths(JOB) - {second.path, "../shared/of-a-checkpoint-elsewhere"}
    )
    assert list(tree(Path(storage.uri, JOB, "shared"))) == [Path(second.path).name]
    storage.discard_shared(JOB, storage.shared_paths(JOB))
    assert tree(Path(storage.uri, JOB, "shared")) == {}


# --- savepoints, and what else lies there ------------------------------------------------------------


def test_each_savepoint_has_a_folder_of_its_own_anywhere(storage: CheckpointFolders, tmp_path: Path) -> None:
    folders = [storage.begin_savepoint(str(tmp_path / "elsewhere"), JOB) for _ in range(2)]
    assert len({*folders}) == 2
    for number, folder in enumerate(folders, start=1):
        storage.complete(metadata(number), folder)
        assert storage.load(folder).checkpoint_id == number
        assert Path(folder).parent == tmp_path / "elsewhere"
    assert storage.completed(JOB) == []
    storage.discard(folders[0])
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [Path(folders[1]).name]


def test_a_savepoint_below_the_checkpoints_is_where_its_uri_says(tmp_path: Path) -> None:
    storage = CheckpointFolders(f"file:{tmp_path}/all%20of%20it")
    uri = storage.begin_savepoint(f"{storage.uri}/a%20b%25", JOB)
    storage.complete(metadata(1), uri)
    assert CheckpointFolders(uri).load(uri).checkpoint_id == 1
    assert Path(tmp_path, "all of it", "a b%", uri.rpartition("/")[2], "_metadata").exists()


def test_a_path_has_no_escapes(tmp_path: Path) -> None:
    storage = CheckpointFolders(str(tmp_path))
    folder = storage.begin_savepoint(f"{tmp_path}/a%20b", JOB)
    assert Path(folder).is_dir()


def test_a_relative_savepoint_directory_is_where_the_driver_is(
    storage: CheckpointFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(storage.begin_savepoint("made/here", JOB)).parent == tmp_path / "made" / "here"


def test_ends_of_epochs_are_kept_until_they_are_final(storage: CheckpointFolders) -> None:
    assert storage.read_planned(JOB) == {}
    for epoch in (9, 10, 11):
        storage.write_planned(JOB, epoch, {"index": epoch})
    storage.write_planned(JOB, 11, {"index": 12})
    assert storage.read_planned(JOB) == {9: {"index": 9}, 10: {"index": 10}, 11: {"index": 12}}
    storage.forget_planned(JOB, range(11))
    assert storage.read_planned(JOB) == {11: {"index": 12}}
    assert storage.checkpoint_ids(JOB) == []


def test_the_history_is_json_beside_the_checkpoints(storage: CheckpointFolders) -> None:
    for history in ([{"checkpoint_id": 1, "uri": None}], [{"checkpoint_id": 2, "uri": "chk-2"}]):
        storage.write_history(JOB, history)
        assert json.loads(Path(storage.uri, JOB, "checkpoints.json").read_text()) == history


def test_notes_that_a_killed_driver_had_begun_are_deleted(storage: CheckpointFolders) -> None:
    older, own, newer = (f"{number:06}-aaaaaaaa" for number in (1, 2, 3))
    names = ["checkpoints.json", "offsets/7", *(f"runs/{run}" for run in (older, own, newer))]
    storage.write_planned(JOB, 7, 1)
    storage.write_run(JOB, own)
    begun = {}
    for name in names:
        path = Path(storage.uri, JOB, name)
        begun[name] = path.with_name(f".{path.name}.inprogress.{'0' * 32}")
        begun[name].touch()
    storage.discard_unfinished(JOB, own)
    assert [name for name in names if begun[name].exists()] == [f"runs/{own}", f"runs/{newer}"]
    assert (storage.read_planned(JOB), storage.runs(JOB)) == ({7: 1}, [own])


@pytest.fixture
def folder(storage: CheckpointFolders) -> CheckpointFolder:
    """A checkpoint's folder with a small inline threshold, and no larger write buffer."""
    streams = storage.streams(storage.begin(JOB, 1))
    return attrs.evolve(streams, inline_threshold_bytes=10, write_buffer_bytes=0)


# --- streams ---------------------------------------------------------------------------------------


def test_flinks_threshold_is_the_default(storage: CheckpointFolders) -> None:
    streams = storage.streams(storage.begin(JOB, 1))
    for size, kind in ((20 * 1024, ByteStreamStateHandle), (20 * 1024 + 1, FileStateHandle)):
        stream = streams.create()
        stream.write(bytes(size))
        assert type(stream.close_and_get_handle()) is kind


@pytest.mark.parametrize("size", [0, 10, 11, 100_000])
@pytest.mark.parametrize("write_buffer", [0, 50])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_an_aborted_stream_leaves_no_file(
    folder: CheckpointFolder, size: int, write_buffer: int, closed: bool
) -> None:
    stream = attrs.evolve(folder, write_buffer_bytes=write_buffer).create()
    stream.write(bytes(size))
    if closed:
        stream.close_and_get_handle()
    stream.abort()
    stream.abort()
    assert tree(Path(folder.folder)) == {}


def test_an_abort_after_the_folder_was_deleted_is_quiet(
    storage: CheckpointFolders, folder: CheckpointFolder
) -> None:
    stream = folder.create()
    stream.write(bytes(100))
    storage.discard(storage.uri_of(JOB, 1))
    stream.abort()
    assert not Path(folder.folder).exists()


def test_state_that_is_discarded_has_no_file_any_more(folder: CheckpointFolder) -> None:
    handles = [written(folder, bytes(100)), written(folder, bytes(200))]
    folder.discard(handles[0])
    folder.discard(ByteStreamStateHandle(b"inline"))
    assert list(tree(Path(folder.folder))) == [handles[1].path]
    with pytest.raises(CheckpointStorageError, match=f"cannot delete .*{handles[0].path}"):
        folder.discard(handles[0])


@pytest.mark.parametrize(("buffer", "failing"), [(0, "write"), (100, "close")])
def test_writing_where_nobody_can_is_a_storage_error(blocked: str, buffer: int, failing: str) -> None:
    stream = CheckpointFolder(open_file_system(blocked)[0], blocked, 10, buffer).create()
    stream.write(b"inline")

    def write() -> None:
        stream.write(b"too large to be inline")
        stream.close_and_get_handle()

    with pytest.raises(CheckpointStorageError, match=f"cannot {failing}"):
        write()
    stream.abort()


# --- the write buffer ------------------------------------------------------------------------------


@pytest.mark.parametrize(("threshold", "write_buffer"), [(10, 100), (100, 10), (100, 100)])
def test_a_file_appears_when_the_larger_of_threshold_and_write_buffer_overflows(
    folder: CheckpointFolder, threshold: int, write_buffer: int
) -> None:
    folder = attrs.evolve(folder, inline_threshold_bytes=threshold, write_buffer_bytes=write_buffer)
    stream = folder.create()
    stream.write(bytes(60))
    stream.write(bytes(40))
    assert tree(Path(folder.folder)) == {}
    stream.write(b"a")
    assert len(tree(Path(folder.folder))) == 1
    handle = stream.close_and_get_handle()
    assert handle.size_bytes == 101
    assert tree(Path(folder.folder)) == {handle.path: bytes(100) + b"a"}


class CountedFile:
    """A file in memory that notes the size of each write, and the file system that has no other."""

    def __init__(self) -> None:
        self.data = b""
        self.sizes: list[int] = []

    def open_output_stream(self, path: str) -> CountedFile:
        return self

    def write(self, data: bytes) -> None:
        self.data += data
        self.sizes.append(len(data))

    def close(self) -> None:
        pass


def test_small_writes_reach_the_file_together_and_large_ones_by_themselves() -> None:
    file = CountedFile()
    stream = FsCheckpointStateOutputStream(file, "1-file", "../shared/1-file", 0, 100)
    for number in range(75):
        stream.write(b"%04d" % number)
    stream.write(bytes(1_000))
    assert file.sizes == [100, 100, 100, 1_000]
    stream.write(b"end")
    assert stream.close_and_get_handle() == FileStateHandle("../shared/1-file", 1_303)
    assert file.data == b"".join(b"%04d" % n for n in range(75)) + bytes(1_000) + b"end"
    assert file.sizes == [100, 100, 100, 1_000, 3]


@given(st.lists(st.binary(max_size=30), max_size=12), st.integers(0, 40), st.integers(0, 40))
@example([], 0, 0)
@example([b"a"], 0, 0)
@example([b"01234", b"", b"56789"], 10, 0)
@example([b"0123456789", b"a", b""], 10, 0)
@example([bytes(11)], 10, 100)
def test_whatever_the_sizes_the_bytes_come_in_order_and_the_threshold_decides_where(
    pieces: list[bytes], threshold: int, write_buffer: int
) -> None:
    file, whole = CountedFile(), b"".join(pieces)
    stream = FsCheckpointStateOutputStream(file, "file", "file", threshold, write_buffer)
    for piece in pieces:
        stream.write(piece)
    handle = stream.close_and_get_handle()
    inline = len(whole) <= threshold
    assert handle == (ByteStreamStateHandle(whole) if inline else FileStateHandle("file", len(whole)))
    assert file.data == (b"" if inline else whole)


# --- settings --------------------------------------------------------------------------------------


def test_the_settings_of_the_storage_are_those_of_its_streams(tmp_path: Path) -> None:
    settings = FileSystemCheckpointStorage(str(tmp_path), 5, write_buffer_size=7)
    streams = CheckpointFolders(settings).streams(str(tmp_path))
    assert (streams.inline_threshold_bytes, streams.write_buffer_bytes) == (5, 7)


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ((), (20 * 1024, 4096)),
        ((-1, -1), (20 * 1024, 4096)),
        ((0, 0), (0, 0)),
        ((MAX_INLINE_THRESHOLD_BYTES, 1), (MAX_INLINE_THRESHOLD_BYTES, 1)),
    ],
)
def test_sizes_within_flinks_bounds_are_taken(given: tuple[int, ...], sizes: tuple[int, int]) -> None:
    made = FileSystemCheckpointStorage("/checkpoints", *given)
    assert (made.file_state_size_threshold, made.write_buffer_size) == sizes


@pytest.mark.parametrize(
    "bad",
    [
        {"file_state_size_threshold": -2},
        {"file_state_size_threshold": MAX_INLINE_THRESHOLD_BYTES + 1},
        {"write_buffer_size": -2},
    ],
    ids=str,
)
def test_a_size_out_of_bounds_is_refused(bad: dict[str, int]) -> None:
    ((name, size),) = bad.items()
    with pytest.raises(ConfigurationError, match=f"{name} must be .*, not {size}"):
        FileSystemCheckpointStorage("/checkpoints", **bad)


def test_a_relative_path_is_made_absolute_where_it_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert FileSystemCheckpointStorage("made/here").checkpoint_path == str(tmp_path / "made" / "here")


# --- reading state ---------------------------------------------------------------------------------


def written(folder: CheckpointFolder, data: bytes) -> FileStateHandle:
    stream = folder.create()
    stream.write(data)
    handle = stream.close_and_get_handle()
    assert isinstance(handle, FileStateHandle)
    return handle


def test_a_missing_state_file_is_a_corrupt_checkpoint(folder: CheckpointFolder) -> None:
    handle = written(folder, bytes(100))
    (Path(folder.folder) / handle.path).unlink()
    with pytest.raises(CorruptCheckpointError, match=f"{handle.path} is missing") as caught:
        folder.read(handle, 0, 10)
    assert caught.value.context["file"] == f"{folder.folder}/{handle.path}"


@pytest.mark.parametrize(("offset", "length"), [(0, 101), (95, 6), (100, 1), (500, 5)])
def test_a_range_beyond_the_end_of_a_file_is_a_corrupt_checkpoint(
    folder: CheckpointFolder, offset: int, length: int
) -> None:
    handle = written(folder, bytes(100))
    with pytest.raises(CorruptCheckpointError, match="truncated"):
        folder.read(handle, offset, length)
    assert folder.read(handle, 0, 100) == bytes(100)


@pytest.mark.parametrize(("offset", "length"), [(0, 6), (4, 2), (9, 1)])
def test_a_range_beyond_the_end_of_inline_state_is_a_corrupt_checkpoint(
    folder: CheckpointFolder, offset: int, length: int
) -> None:
    handle = ByteStreamStateHandle(b"12345")
    assert folder.read(handle, 1, 3) == b"234"
    with pytest.raises(CorruptCheckpointError, match="_metadata is damaged: it is truncated"):
        folder.read(handle, offset, length)


FIRST, SECOND, THIRD = (f"{number:06d}-0000000{number}" for number in (1, 2, 3))
#: The third run has gone back behind the second one's beginning, to epoch 10 of the first one.
LINE = RunHistory(((FIRST, 0), (THIRD, 10)))


@pytest.mark.parametrize(
    ("runs", "last_held"),
    [
        (((FIRST, 0),), 10),
        (((FIRST, 0), (SECOND, 20)), 10),
        (((FIRST, 0), (SECOND, 5)), 5),
        (((SECOND, 0),), 0),
        ((), 0),
        (LINE.runs, 1_000),
        (((FIRST, 0), (THIRD, 10), ("000004-00000004", 30)), 1_000),
    ],
    ids=["older", "another way", "another way earlier", "from nothing", "unknown", "itself", "newer"],
)
def test_a_line_holds_epochs_up_to_where_another_history_leaves_it(
    runs: tuple[tuple[str, int], ...], last_held: int
) -> None:
    history = RunHistory(runs)
    held = [epoch for epoch in range(1, 1_001) if LINE.holds(history, epoch)]
    assert held == list(range(1, last_held + 1))


def test_where_no_run_is_known_every_epoch_is_held() -> None:
    assert RunHistory().holds(LINE, 50)
    assert RunHistory().holds(RunHistory(), 1)


def test_runs_of_a_time_without_histories_are_gone_on_from() -> None:
    line = RunHistory().continued(20, FIRST)
    assert [epoch for epoch in range(1, 30) if line.holds(RunHistory(), epoch)] == list(range(1, 21))


def test_a_line_holds_what_it_goes_on_from() -> None:
    for epoch in range(1, 25):
        assert LINE.continued(epoch, "000004-00000004").holds(LINE, epoch)


def test_runs_are_ordered_by_number_and_then_by_token() -> None:
    many = "1000000-00000000"
    assert newest_run([SECOND, many, THIRD]) == many
    assert sorted_runs([many, FIRST, SECOND], newest_first=True) == [many, SECOND, FIRST]
    assert run_id_after([FIRST, many], "abcdef01") == "1000001-abcdef01"
    assert newest_run([]) is None
