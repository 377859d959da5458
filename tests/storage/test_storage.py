"""Checkpoint storage: when a checkpoint exists, and what is said about one that is damaged."""

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
from support_runtime import metadata, tree

from pyflinkstate.backends.format.framing import encode_head
from pyflinkstate.backends.format.metadata import MAGIC, READABLE_VERSIONS, VERSION, CheckpointMetadata
from pyflinkstate.backends.format.state_handles import FileStateHandle
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    CheckpointStorageError,
    CorruptCheckpointError,
    IncompatibleCheckpointError,
)
from pyflinkstate.runtime.storage.checkpoints import LOOKS, CheckpointFolders, load_checkpoint
from pyflinkstate.runtime.storage.runs import RunHistory
from pyflinkstate.runtime.storage.streams import open_folder

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
    storage.discard(storage.uri_of(JOB, 1))
    storage.begin(JOB, 1)
    storage.discard(storage.uri_of(JOB, 1))
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
    assert storage.load_latest("orders") == metadata(3, "b" * 32, timestamp_ms=3_000)
    assert storage.load_latest("other").job_id == "d" * 32


def test_ids_are_compared_as_numbers(storage: CheckpointFolders) -> None:
    for number in (9, 10):
        publish(storage, metadata(number, timestamp_ms=number))
    assert storage.load_latest("orders").checkpoint_id == 10


def nothing(storage: CheckpointFolders) -> None:
    pass


def one_unfinished(storage: CheckpointFolders) -> None:
    storage.begin(JOB, 1)


def one_of_another_name(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1, job_name="other"))


@pytest.mark.parametrize("prepare", [nothing, one_unfinished, one_of_another_name])
def test_no_completed_checkpoint_of_that_name(
    storage: CheckpointFolders, prepare: Callable[[CheckpointFolders], None]
) -> None:
    prepare(storage)
    with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint of job 'orders'"):
        storage.load_latest("orders")


def test_a_damaged_newest_checkpoint_is_not_silently_passed_over(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    (publish(storage, metadata(2)) / "_metadata").write_bytes(b"")
    with pytest.raises(CorruptCheckpointError, match=r"chk-2/_metadata is damaged"):
        storage.load_latest("orders")


def test_a_damaged_newest_checkpoint_is_passed_over_if_that_is_wanted(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    (publish(storage, metadata(2)) / "_metadata").write_bytes(b"")
    assert storage.load_latest("orders", fall_back=True) == metadata(1)
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
    assert storage.load_latest("orders", fall_back=True) == metadata(1)
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
        assert list(storage.load_retained("orders")) == [metadata(4), metadata(1)]
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
    assert [found.checkpoint_id for found in storage.load_retained("orders")] == [10, 9]


def test_a_retained_checkpoint_that_is_damaged_concerns_who_needs_it(storage: CheckpointFolders) -> None:
    (publish(storage, metadata(9)) / "_metadata").write_bytes(b"")
    publish(storage, metadata(10))
    retained = storage.load_retained("orders")
    assert next(retained) == metadata(10)
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
    assert (MAGIC, VERSION) == (b"PFSCHKPT", 4)


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
    assert Watched(storage.uri, overtaking(times)).load_latest("orders") == metadata(1 + 2 * times)


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
    storage.write_run(JOB, first, RunHistory(((first, 0),)), 3)

    def happens(other: CheckpointFolders, _: list[int]) -> None:
        other.write_run(JOB, second, RunHistory(((second, 0),)), 5)
        other.forget_runs(JOB, before=second)

    assert Watched(storage.uri, happens).line(JOB) == RunHistory(((second, 0),))


def test_a_folder_in_the_place_of_metadata_makes_no_checkpoint(storage: CheckpointFolders) -> None:
    publish(storage, metadata(1))
    (Path(storage.begin(JOB, 2)) / "_metadata").mkdir()
    assert storage.completed(JOB) == [1]
    assert storage.load_latest("orders") == metadata(1)


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
    assert CheckpointFolders(str(tmp_path)).load_latest("orders") == metadata()


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
