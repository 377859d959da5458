"""What is certain after a power cut: checkpoints that were completed, ends of epochs that were noted."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from simulation_storage import Disk, Killed, Operation, Process, Verdict
from support_runtime import metadata

from pyflinkstate.backends.format.metadata import CheckpointMetadata
from pyflinkstate.backends.format.state_handles import written_at
from pyflinkstate.errors import CheckpointStorageError
from pyflinkstate.runtime.storage import durable
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.own_folders import OwnFolders

JOB = "0" * 32
FAILS = Verdict(0.0, OSError(5, "input/output error"))
#: So many outcomes of each power cut are looked at.
OUTCOMES = 30


def storage_on(disk: Disk) -> CheckpointFolders:
    return CheckpointFolders("/checkpoints", (disk.file_system, "/checkpoints"))


def cut_after_each_operation(
    work: Callable[[CheckpointFolders], None], prepare: Callable[[CheckpointFolders], None]
) -> Iterator[tuple[CheckpointFolders, bool]]:
    """Yield the storage after a power cut at every operation, and whether the work was done by then."""
    for stop in range(1_000):
        is_done = False
        for seed in range(OUTCOMES):
            disk = Disk(Process("job"))
            prepare(storage_on(disk))
            disk.power_cut(random.Random(seed))
            is_done = killed_after(disk, stop, work)
            disk.power_cut(random.Random(seed))
            disk.process = Process("the next one")
            disk.decide = lambda operation: Verdict()
            yield storage_on(disk), is_done
        if is_done:
            return
    raise AssertionError("the work does not end")


def killed_after(disk: Disk, operations: int, work: Callable[[CheckpointFolders], None]) -> bool:
    """Do the work until the host goes down; return whether it was done by then."""
    left = iter(range(operations))

    def decide(operation: Operation) -> Verdict:
        if next(left, None) is None:
            operation.process.kill()
            return Verdict(0.0, Killed(operation.process))
        return Verdict()

    disk.decide = decide
    with suppress(Killed):
        work(storage_on(disk))
        return True
    return False


def nothing(storage: CheckpointFolders) -> None:
    pass


def write_state(storage: CheckpointFolders, checkpoint_id: int, shared: bool) -> str:
    uri = storage.begin(JOB, checkpoint_id, shared)
    stream = storage.streams(uri, checkpoint_id if shared else None).create()
    stream.write(bytes(100_000))
    handle: Any = stream.close_and_get_handle()
    return str(handle.path)


def whole_state(storage: CheckpointFolders, found: CheckpointMetadata) -> bytes:
    uri = storage.uri_of(JOB, found.checkpoint_id)
    folder = storage.streams(uri)
    position: Any = found.source_position
    with folder.file_system.open_input_stream(folder._path_of(position["path"])) as stream:
        return bytes(stream.read())


def take_checkpoint(storage: CheckpointFolders, checkpoint_id: int, shared: bool) -> None:
    """What driver and slot do, in their order."""
    path: Any = write_state(storage, checkpoint_id, shared)
    made = metadata(checkpoint_id, timestamp_ms=checkpoint_id, source_position={"path": path})
    storage.complete(made, has_shared=shared)


@pytest.mark.parametrize("shared", [False, True], ids=["own files", "shared files"])
def test_a_completed_checkpoint_is_whole_after_a_power_cut_and_no_other_passes_for_one(shared: bool) -> None:
    cuts = cut_after_each_operation(lambda storage: take_checkpoint(storage, 1, shared), nothing)
    for storage, is_done in cuts:
        completed = storage.completed(JOB)
        assert completed == [1] if is_done else completed in ([], [1])
        if completed:
            found = storage.load_latest("orders")
            assert whole_state(storage, found) == bytes(100_000)


@pytest.mark.parametrize("shared", [False, True], ids=["own files", "shared files"])
def test_a_checkpoint_whose_deletion_was_tried_twice_does_not_come_back_without_its_files(
    shared: bool,
) -> None:
    """The first time its folder could not be flushed."""

    def both(storage: CheckpointFolders) -> None:
        for number in (1, 2):
            take_checkpoint(storage, number, shared)

    def delete(storage: CheckpointFolders) -> None:
        uri, disk = storage.uri_of(JOB, 1), storage._fs.handler._disk
        decide = disk.decide
        disk.decide = lambda operation: FAILS if operation.name == "flush" else decide(operation)
        with pytest.raises(CheckpointStorageError):
            storage.discard(uri)
        disk.decide = decide
        storage.discard(uri)
        storage.discard_shared(JOB, [path for path in storage.shared_paths(JOB) if written_at(path) == 1])

    for storage, _ in cut_after_each_operation(delete, both):
        for checkpoint_id in storage.completed(JOB):
            assert whole_state(storage, storage.load(storage.uri_of(JOB, checkpoint_id))) == bytes(100_000)


def test_the_checkpoint_before_is_whole_while_the_next_one_is_taken_and_the_older_one_goes() -> None:
    def first(storage: CheckpointFolders) -> None:
        take_checkpoint(storage, 1, False)
        take_checkpoint(storage, 2, False)

    def next_one(storage: CheckpointFolders) -> None:
        take_checkpoint(storage, 3, False)
        storage.discard(storage.uri_of(JOB, 1))

    for storage, is_done in cut_after_each_operation(next_one, first):
        completed = storage.completed(JOB)
        assert {2, 3} <= {*completed} if is_done else 2 in completed
        for checkpoint_id in completed:
            assert whole_state(storage, storage.load(storage.uri_of(JOB, checkpoint_id))) == bytes(100_000)


def test_a_checkpoint_that_is_set_aside_is_whole_under_one_of_its_names_after_a_power_cut() -> None:
    run = "ab" * 8

    def first(storage: CheckpointFolders) -> None:
        take_checkpoint(storage, 1, False)

    def set_aside(storage: CheckpointFolders) -> None:
        storage.set_aside(JOB, 1, run)

    for storage, is_done in cut_after_each_operation(set_aside, first):
        aside = storage.superseded(JOB)
        assert len(aside) + len(storage.completed(JOB)) == 1
        assert bool(aside) or not is_done
        assert storage.load((aside or [storage.uri_of(JOB, 1)])[0]).checkpoint_id == 1


def test_the_end_of_an_epoch_that_was_noted_is_known_after_a_power_cut() -> None:
    def before(storage: CheckpointFolders) -> None:
        storage.write_planned(JOB, 1, 1_234_567)

    for storage, is_done in cut_after_each_operation(
        lambda storage: storage.write_planned(JOB, 2, 7_654_321), before
    ):
        planned = storage.read_planned(JOB)
        assert planned.pop(1) == 1_234_567
        assert planned == {2: 7_654_321} if is_done else planned in ({}, {2: 7_654_321})


def test_the_history_is_that_of_before_or_the_new_one_after_a_power_cut() -> None:
    def write(number: int) -> Callable[[CheckpointFolders], None]:
        return lambda storage: storage.write_history(JOB, [{"checkpoint_id": number}])

    def before(storage: CheckpointFolders) -> None:
        write(1)(storage)
        durable.flush_folder(storage._fs, f"/checkpoints/{JOB}")

    for storage, _ in cut_after_each_operation(write(2), before):
        with storage._fs.open_input_stream(f"/checkpoints/{JOB}/checkpoints.json") as stream:
            assert b'"checkpoint_id": ' in bytes(stream.read())


# --- the simulated disk itself -----------------------------------------------------------------------


def test_what_is_not_flushed_may_be_lost() -> None:
    """Without it the tests above would prove nothing."""

    def careless(storage: CheckpointFolders) -> None:
        file_system = storage._fs
        file_system.create_dir("/checkpoints", recursive=True)
        with file_system.open_output_stream("/checkpoints/.note") as stream:
            stream.write(b"12345")
        file_system.move("/checkpoints/.note", "/checkpoints/note")

    outcomes = set()
    for seed in range(300):
        disk = Disk(Process("job"))
        careless(storage_on(disk))
        disk.power_cut(random.Random(seed))
        outcomes.add(bytes(disk.files.get("/checkpoints/note", b"none")))
    assert {b"none", b"", b"12345", b"12"} <= outcomes


def test_a_file_that_was_renamed_is_under_one_of_its_names() -> None:
    for seed in range(100):
        disk = Disk(Process("job"))
        file_system = disk.file_system
        for folder in ("/a", "/b"):
            durable.make_folder(file_system, folder)
        for name, data in (("/a/x", b"new"), ("/b/x", b"old")):
            durable.write_whole(file_system, name, data)
            durable.flush_folder(file_system, name[:2])
        file_system.move("/a/x", "/b/x")
        if seed % 3:
            durable.flush_folder(file_system, ("/a", "/b")[seed % 2])
        disk.power_cut(random.Random(seed))
        found = {path: bytes(data) for path, data in disk.files.items()}
        done, undone = {"/b/x": b"new"}, {"/a/x": b"new", "/b/x": b"old"}
        assert found == done or (seed % 3 == 0 and found == undone)


# --- real files ---------------------------------------------------------------------------------------


def test_a_folder_that_could_not_be_flushed_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next attempt would find it, and nobody would flush the folder above it any more."""
    flushed: list[str] = []

    def flush(path: str) -> None:
        flushed.append(path)
        if len(flushed) == 1:
            raise OSError(5, "input/output error")

    monkeypatch.setattr(durable, "fsync_folder", flush)
    folder, local = tmp_path / "jobs" / "a", fs.LocalFileSystem()
    with pytest.raises(OSError, match="input/output error"):
        durable.make_folder(local, str(folder))
    assert list(tmp_path.iterdir()) == []
    durable.make_folder(local, str(folder))
    assert flushed == [str(tmp_path), str(tmp_path), str(tmp_path / "jobs")]
    assert folder.is_dir()


def test_nothing_is_renamed_before_its_bytes_are_flushed(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a real file system the calls are the same: each flush, with what the folder holds by then."""
    seen: list[tuple[str, str, list[str]]] = []
    original = OwnFolders.fsync

    def noting(own: OwnFolders, path: str) -> None:
        kind, folder = ("folder", Path(path)) if Path(path).is_dir() else ("file", Path(path).parent)
        seen.append((kind, Path(path).name, sorted(found.name for found in folder.iterdir())))
        original(own, path)

    monkeypatch.setattr(OwnFolders, "fsync", noting)
    take_checkpoint(storage, 1, False)
    seen = [call for call in seen if "chk-1" in call[1] or call[0] == "file"]
    (_, state, _), (_, _, before), (_, unfinished, _), (_, _, after) = seen
    assert [call[0] for call in seen] == ["file", "folder", "file", "folder"]
    assert before == [state]
    assert unfinished.startswith("._metadata.inprogress")
    assert after == sorted([state, "_metadata"])


def test_a_file_that_cannot_be_renamed_is_not_left(tmp_path: Path) -> None:
    (tmp_path / "note").mkdir()
    with pytest.raises(OSError, match="note"):
        durable.write_whole(fs.LocalFileSystem(), f"{tmp_path}/note", b"new")
    assert [found.name for found in tmp_path.iterdir()] == ["note"]


def test_on_an_object_store_a_file_is_written_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appears there as a whole; a rename would be a copy."""
    store = fs.LocalFileSystem()
    monkeypatch.setattr(durable, "OBJECT_STORES", {store.type_name})
    monkeypatch.setattr(durable, "flush_file", None)
    durable.write_whole(store, f"{tmp_path}/note", b"new")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"note": b"new"}


@pytest.mark.parametrize("torn", [b"", b"{", b'{"index": 1', b"12", b"\0\0\0\0"])
def test_a_torn_end_of_an_epoch_counts_as_absent_with_a_word(
    storage: CheckpointFolders, torn: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in (1, 2):
        storage.write_planned(JOB, epoch, {"index": epoch})
    path = Path(storage.uri, JOB, "offsets", "2")
    path.write_bytes(torn)
    assert storage.read_planned(JOB) == {1: {"index": 1}}
    assert f"{path} is truncated and is ignored" in caplog.text
    storage.write_planned(JOB, 2, {"index": 3})
    assert storage.read_planned(JOB)[2] == {"index": 3}


def test_a_folder_that_cannot_be_made_certain_is_not_left(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.begin(JOB, 1)

    def refuse(_: OwnFolders, path: str) -> None:
        raise OSError(5, "input/output error", path)

    monkeypatch.setattr(OwnFolders, "fsync", refuse)
    with pytest.raises(CheckpointStorageError, match=r"cannot create .*chk-2"):
        storage.begin(JOB, 2)
    assert storage.checkpoint_ids(JOB) == [1]


def test_a_checkpoint_in_folders_of_somebody_else_is_restored_as_it_is(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read a savepoint need not be allowed to list the folder above it."""
    take_checkpoint(storage, 1, False)
    folder = Path(storage.uri_of(JOB, 1))
    refused: list[Path] = []

    def refuse(_: OwnFolders, path: str) -> None:
        refused.append(Path(path))
        raise PermissionError(13, "permission denied", path)

    monkeypatch.setattr(OwnFolders, "fsync", refuse)
    storage.make_durable(str(folder))
    assert refused == [folder, folder.parent]


def test_a_checkpoint_that_cannot_be_made_durable_is_not_restored(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_checkpoint(storage, 1, False)

    def refuse(_: OwnFolders, path: str) -> None:
        raise OSError(5, "input/output error", path)

    monkeypatch.setattr(OwnFolders, "fsync", refuse)
    with pytest.raises(CheckpointStorageError, match=r"cannot flush .*chk-1"):
        storage.make_durable(storage.uri_of(JOB, 1))
