"""Files and folders that survive a power cut, and those that nobody else can replace."""

from __future__ import annotations

import gc
import os
import pwd
import random
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from simulation_storage import Disk, Killed, Operation, Process, Verdict
from support_runtime import metadata, raising, tree

from pyflinkstate import Encoder, RunHistory
from pyflinkstate.backends.format import CheckpointMetadata, FileStateHandle, written_at
from pyflinkstate.errors import CheckpointStorageError, CorruptCheckpointError, SinkError, SinkStorageError
from pyflinkstate.monitor import journal as journals
from pyflinkstate.monitor.hub import jobs_at
from pyflinkstate.monitor.journal import Journal, JournalReader, encode
from pyflinkstate.runtime.sinks import FileSink
from pyflinkstate.runtime.sinks.file_sink import MARKER, FileWriter
from pyflinkstate.runtime.sinks.run_area import NOTE, RUNS_FOLDER
from pyflinkstate.runtime.sinks.text_file_sink import OWN_FOLDER
from pyflinkstate.runtime.storage import (
    CheckpointFolder,
    CheckpointFolders,
    checkpoints,
    file_systems,
    open_folder,
    reason_of,
    temporary_folder,
)
from pyflinkstate.runtime.storage.file_systems import OwnFolders
from pyflinkstate.state_access import verify
from pyflinkstate.state_access.command_line import main

JOB = "0" * 32
FAILS = Verdict(0.0, OSError(5, "input/output error"))
#: So many outcomes of each power cut are looked at.
OUTCOMES = 12


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
            found, _ = storage.load_latest("orders")
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
        file_systems.flush_folder(storage._fs, f"/checkpoints/{JOB}")

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
            file_systems.make_folder(file_system, folder)
        for name, data in (("/a/x", b"new"), ("/b/x", b"old")):
            file_systems.write_whole(file_system, name, data)
            file_systems.flush_folder(file_system, name[:2])
        file_system.move("/a/x", "/b/x")
        if seed % 3:
            file_systems.flush_folder(file_system, ("/a", "/b")[seed % 2])
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

    monkeypatch.setattr(file_systems, "fsync_path", flush)
    (tmp_path / "other").mkdir()
    folder, local = tmp_path / "jobs" / "a", fs.LocalFileSystem()
    with pytest.raises(OSError, match="input/output error"):
        file_systems.make_folder(local, str(folder))
    assert list(tmp_path.iterdir()) == [tmp_path / "other"]
    file_systems.make_folder(local, str(folder))
    assert flushed == [str(tmp_path), str(tmp_path), str(tmp_path / "jobs")]
    assert folder.is_dir()


def test_a_folder_that_is_there_although_its_creation_failed_is_made_anew() -> None:
    disk = Disk(Process("job"))
    late = iter([Verdict(error=OSError(5, "input/output error"))])
    disk.decide = lambda operation: next(late, Verdict()) if operation.name == "create folder" else Verdict()
    with pytest.raises(OSError, match="input/output error"):
        file_systems.make_folder(disk.file_system, "/jobs/a")
    file_systems.make_folder(disk.file_system, "/jobs/a")
    for seed in range(100):
        disk.power_cut(random.Random(seed))
        assert "/jobs/a" in disk.folders


@pytest.mark.parametrize("left", ["/jobs", "/jobs/a"])
def test_a_folder_of_a_process_that_was_killed_before_it_flushed_it_is_made_durable(left: str) -> None:
    for seed in range(100):
        disk = Disk(Process("job"))
        killed = disk.file_system
        if left == "/jobs/a":
            file_systems.make_folder(killed, "/jobs")
        killed.create_dir(left, recursive=False)
        file_systems.make_folder(disk.file_system, "/jobs/a")
        disk.power_cut(random.Random(seed))
        assert "/jobs/a" in disk.folders


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
        file_systems.write_whole(fs.LocalFileSystem(), f"{tmp_path}/note", b"new")
    assert [found.name for found in tmp_path.iterdir()] == ["note"]


def test_on_an_object_store_a_file_is_written_under_its_own_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It appears there as a whole; a rename would be a copy."""
    store = fs.LocalFileSystem()
    monkeypatch.setattr(file_systems, "OBJECT_STORES", {store.type_name})
    monkeypatch.setattr(file_systems, "flush_file", None)
    file_systems.write_whole(store, f"{tmp_path}/note", b"new")
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

    monkeypatch.setattr(OwnFolders, "fsync", raising(OSError(5, "input/output error")))
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

    monkeypatch.setattr(OwnFolders, "fsync", raising(OSError(5, "input/output error")))
    with pytest.raises(CheckpointStorageError, match=r"cannot flush .*chk-1"):
        storage.make_durable(storage.uri_of(JOB, 1))


RUN = "000001-00000000"
NEWER = "000002-00000000"
SHARED = "../shared/1-" + "0" * 32
SEGMENT = "000000000000001-00000000-000000.jsonl"


def set_aside(storage: CheckpointFolders) -> None:
    storage.set_aside(JOB, 1, RUN)


def write_journal(storage: CheckpointFolders) -> None:
    Journal(f"{storage.uri}/{JOB}", 0, most_segments=1).write([encode({"event": "ended"})])


def read_journal(storage: CheckpointFolders) -> None:
    JournalReader(f"{storage.uri}/{JOB}").read_new()


#: Each folder of a job, and what a job or a reader does there.
FOLDERS: list[tuple[str, Callable[[CheckpointFolders], object]]] = [
    ("runs", lambda storage: storage.forget_runs(JOB, NEWER)),
    ("runs", lambda storage: storage.write_run(JOB, NEWER)),
    ("runs", lambda storage: storage.line(JOB)),
    ("offsets", lambda storage: storage.forget_planned(JOB, range(9))),
    ("offsets", lambda storage: storage.write_planned(JOB, 1, 1)),
    ("offsets", lambda storage: storage.read_planned(JOB)),
    ("shared", lambda storage: storage.discard_shared(JOB, [SHARED])),
    ("shared", lambda storage: storage.shared_paths(JOB)),
    ("shared", lambda storage: storage.begin(JOB, 2, shared=True)),
    ("chk-1", lambda storage: storage.discard(storage.uri_of(JOB, 1))),
    ("chk-1", lambda storage: storage.complete(metadata())),
    ("chk-1", lambda storage: storage.begin(JOB, 1)),
    ("chk-1", lambda storage: storage.load(storage.uri_of(JOB, 1))),
    ("journal", write_journal),
    ("journal", read_journal),
    ("", lambda storage: storage.write_history(JOB, [])),
    ("", lambda storage: storage.begin(JOB, 1)),
    ("", write_journal),
    ("", set_aside),
]


@pytest.mark.parametrize(("name", "use"), FOLDERS)
def test_a_folder_of_a_job_that_is_a_link_is_not_followed(
    storage: CheckpointFolders, tmp_path: Path, name: str, use: Callable[[CheckpointFolders], object]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "chk-1").mkdir(parents=True)
    for foreign in (
        RUN,
        "1",
        SHARED[10:],
        "_metadata",
        "000000000000001-00000000-000000.jsonl",
        "mine.jsonl",
    ):
        (elsewhere / foreign).write_bytes(b"{}")
    link = Path(storage.uri, JOB, name)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(elsewhere)
    before = tree(elsewhere)
    with pytest.raises((CorruptCheckpointError, OSError), match="is behind the symbolic link"):
        use(storage)
    assert tree(elsewhere) == before
    assert link.is_symlink()


def test_folders_that_are_links_are_none_of_the_job(storage: CheckpointFolders, tmp_path: Path) -> None:
    storage.begin(JOB, 1)
    for name in ("chk-2", "superseded-1-chk-3", "../" + "1" * 32):
        Path(storage.uri, JOB, name).symlink_to(tmp_path)
    assert (storage.checkpoint_ids(JOB), storage.superseded(JOB), storage.job_ids()) == ([1], [], [JOB])


def test_a_path_leads_out_of_no_folder(storage: CheckpointFolders) -> None:
    storage.begin(JOB, 1)
    with pytest.raises(CorruptCheckpointError, match="leads out of"):
        storage.discard(f"{storage.uri}/{JOB}/chk-1/../../..")


def test_of_a_link_inside_of_a_folder_only_the_link_is_deleted(
    storage: CheckpointFolders, tmp_path: Path
) -> None:
    folder = Path(storage.begin(JOB, 1))
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    (folder / "deep" / "deeper").mkdir(parents=True)
    (folder / "deep" / "link").symlink_to(tmp_path / "kept")
    storage.discard(str(folder))
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").exists()


def test_a_journal_deletes_and_reads_only_files_with_names_of_its_own(tmp_path: Path) -> None:
    (tmp_path / JOB / "journal").mkdir(parents=True)
    foreign = tmp_path / JOB / "journal" / "0.jsonl"
    foreign.write_bytes(encode({"event": "foreign"}))
    journal = Journal(str(tmp_path / JOB), 0, segment_bytes=1, most_segments=1)
    for _ in range(3):
        journal.write([encode({"event": "ended"})])
    assert foreign.exists()
    assert JournalReader(str(tmp_path / JOB)).read_new() == [{"event": "ended"}]


@pytest.mark.parametrize("name", [RUNS_FOLDER, OWN_FOLDER])
def test_a_folder_of_a_sink_that_is_a_link_is_not_followed(tmp_path: Path, name: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / f"{JOB}.{RUN}" / "dropped").mkdir(parents=True)
    (elsewhere / f"{JOB}.{RUN}" / "dropped" / "mine").touch()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).symlink_to(elsewhere)
    before = tree(elsewhere)
    builder = FileSink.for_row_format(tmp_path / "out", Encoder()) if name == OWN_FOLDER else None
    sink = FileSink(tmp_path / "out") if builder is None else builder.build()
    with pytest.raises(SinkError, match="is behind the symbolic link"):
        sink.open_run(JOB, RunHistory(((NEWER, 0),)), None)
    assert tree(elsewhere) == before


def test_a_task_follows_no_link_below_the_directory_of_its_sink(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "out")
    sink.open_run(JOB, RunHistory(((RUN, 0),)), None)
    writer = sink.writer(1)
    pending = tmp_path / "out" / RUNS_FOLDER / f"{JOB}.{RUN}" / "pending" / "epoch=1"
    pending.rmdir()
    pending.symlink_to(tmp_path)
    before = tree(tmp_path)
    with pytest.raises(SinkError, match="is behind the symbolic link"):
        list(writer.write(0, iter(["row"])))
    assert tree(tmp_path) == before


# --- odd files -----------------------------------------------------------------------------------------


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def huge(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, 1 << 30)


#: Each file of notes of a job, and what reads it.
NOTES: list[tuple[str, Callable[[CheckpointFolders], object]]] = [
    ("chk-1/_metadata", lambda storage: storage.load_newest(JOB)),
    ("runs/" + RUN, lambda storage: storage.line(JOB)),
    ("offsets/1", lambda storage: storage.read_planned(JOB)),
]


@pytest.mark.parametrize(("make", "refusal"), [(pipe, "is not a regular file"), (huge, "1073741824 bytes")])
@pytest.mark.parametrize(("name", "read"), NOTES, ids=[name for name, _ in NOTES])
def test_a_note_that_no_job_wrote_is_refused(
    storage: CheckpointFolders,
    make: Callable[[Path], None],
    refusal: str,
    name: str,
    read: Callable[[CheckpointFolders], object],
) -> None:
    make(Path(storage.uri, JOB, name))
    with pytest.raises(CorruptCheckpointError, match=refusal):
        read(storage)


@pytest.mark.parametrize("make", [pipe, huge])
def test_readers_of_checkpoints_go_on_behind_odd_files(
    storage: CheckpointFolders, capsys: pytest.CaptureFixture[str], make: Callable[[Path], None]
) -> None:
    storage.begin(JOB, 1)
    storage.complete(metadata(1))
    for name in ("chk-2/_metadata", "checkpoints.json", f"journal/{SEGMENT}"):
        make(Path(storage.uri, JOB, name))
    (job,) = jobs_at(storage.uri)
    assert job.story.job["name"] == "orders"
    assert not verify(storage.uri).is_sound
    assert main(["ls", storage.uri]) == 0
    assert "damaged" in capsys.readouterr().out


def test_a_state_file_that_is_a_pipe_is_damage(storage: CheckpointFolders) -> None:
    folder = Path(storage.begin(JOB, 1))
    pipe(folder / ("0" * 32))
    for reader in (storage.streams(str(folder)), open_folder(str(folder))):
        with pytest.raises(CorruptCheckpointError, match="is not a regular file"):
            reader.read(FileStateHandle("0" * 32, 5), 0, 5)


@pytest.mark.parametrize("name", [MARKER, f"{RUNS_FOLDER}/{JOB}.{RUN}/{NOTE}"])
@pytest.mark.parametrize(("make", "refusal"), [(pipe, "is not a regular file"), (huge, "1073741824 bytes")])
def test_a_note_of_a_sink_that_no_sink_wrote_is_refused(
    tmp_path: Path, make: Callable[[Path], None], refusal: str, name: str
) -> None:
    sink = FileSink(tmp_path)
    sink.open_run(JOB, RunHistory(((RUN, 0),)), None)
    make(tmp_path / name)
    with pytest.raises(SinkError, match=refusal):
        FileSink(tmp_path).open_run(JOB, RunHistory(((RUN, 0), (NEWER, 1))), 1)


def test_of_more_journals_than_jobs_write_the_newest_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hard links cost nobody any space."""
    folder = tmp_path / JOB / "journal"
    folder.mkdir(parents=True)
    lines = encode({"event": "ended", "at": 1}) * 1_000
    (folder / SEGMENT).write_bytes(lines)
    for number in range(1, 300):
        os.link(
            folder / SEGMENT,
            folder / f"000000000000001-00000000-{number:06d}.jsonl",
        )
    assert len(JournalReader(str(tmp_path / JOB)).read_new()) == 2 * journals.MOST_SEGMENTS * 1_000
    monkeypatch.setattr(journals, "MOST_JOURNAL_BYTES", 3 * len(lines))
    assert len(JournalReader(str(tmp_path / JOB)).read_new()) == 3_000


def test_metadata_that_could_not_be_read_is_not_written(
    storage: CheckpointFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "MOST_METADATA_BYTES", 50)
    storage.begin(JOB, 1)
    with pytest.raises(CheckpointStorageError, match="lower file_state_size_threshold"):
        storage.complete(metadata(1))
    assert storage.completed(JOB) == []


def test_a_note_is_read_up_to_its_bound(tmp_path: Path) -> None:
    (tmp_path / "note").write_bytes(b"123")
    file_system = file_systems.below(file_systems.fs.LocalFileSystem(), str(tmp_path))
    assert file_systems.read_note(file_system, f"{tmp_path}/note", 3) == b"123"
    with pytest.raises(file_systems.ForeignFileError, match="has 3 bytes, more than the 2"):
        file_systems.read_note(file_system, f"{tmp_path}/note", 2)


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000])
def test_notes_that_are_nested_too_deeply_are_passed_over(storage: CheckpointFolders, deep: bytes) -> None:
    storage.write_run(JOB, RUN)
    storage.write_planned(JOB, 1, 1)
    Path(storage.uri, JOB, "runs", RUN).write_bytes(deep)
    Path(storage.uri, JOB, "offsets", "1").write_bytes(deep)
    assert storage.line(JOB) == RunHistory()
    assert storage.read_planned(JOB) == {}


NOBODY = 65534
MINE = "0123456789abcdef" * 2


@contextmanager
def somebody() -> Iterator[None]:
    """Be a user whom permissions bind: another one if this is root, who may do everything."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(own)


def refused(path: str = "") -> str:
    """Return the end of a message, as a pattern; ``path`` is what it names."""
    with somebody():
        user = os.geteuid()
    with suppress(KeyError):  # a user without a name is told by number
        user = pwd.getpwuid(user).pw_name
    return re.escape(f"Permission denied{path} (refused to user {user} on host {socket.gethostname()})") + "$"


@pytest.fixture
def checkpoint(tmp_path: Path) -> CheckpointFolder:
    """A folder in which nobody may write, with a file that nobody may read."""
    (tmp_path / MINE).write_bytes(b"state")
    (tmp_path / MINE).chmod(0)
    tmp_path.chmod(0o500)
    return CheckpointFolder(fs.LocalFileSystem(), str(tmp_path), inline_threshold_bytes=0)


def test_a_state_file_that_cannot_be_written(checkpoint: CheckpointFolder) -> None:
    stream = checkpoint.create()
    stream.write(b"state")
    with somebody(), pytest.raises(CheckpointStorageError, match=refused()) as caught:
        stream.close_and_get_handle()
    assert f"local file '{checkpoint.folder}/" in str(caught.value), "which one"


def test_a_state_file_that_cannot_be_read(checkpoint: CheckpointFolder) -> None:
    with somebody(), pytest.raises(CheckpointStorageError, match=refused()) as caught:
        checkpoint.read(FileStateHandle(MINE, 5), 0, 5)
    assert f"cannot read {checkpoint.folder}/{MINE}: " in str(caught.value)


def test_output_that_cannot_be_written(checkpoint: CheckpointFolder) -> None:
    denied = refused(f": '{checkpoint.folder}'")
    with somebody(), pytest.raises(SinkStorageError, match=denied) as caught:
        list(FileWriter(checkpoint.folder, "json").write(0, iter(["row"])))
    assert f"cannot write {checkpoint.folder}/part-00000-" in str(caught.value)


def test_what_is_no_matter_of_permissions_is_told_as_it_is() -> None:
    assert reason_of(FileNotFoundError(2, "No such file")) == "[Errno 2] No such file"


PROGRAM = """
from pyflinkstate.runtime.storage import temporary_folder

class Owner: ...

folder = temporary_folder(Owner, "kept-")
(folder / "file").write_text("content")
print(folder)
"""


class Owner:
    """Needs a folder."""


def test_a_folder_is_deleted_with_its_owner_and_nobody_is_warned(recwarn):
    owner = Owner()
    folder = temporary_folder(owner, "kept-")
    (folder / "file").write_text("content")
    assert folder.name.startswith("kept-")
    del owner
    gc.collect()
    assert not folder.exists()
    assert [str(warning.message) for warning in recwarn] == []


def test_a_folder_of_a_class_lasts_as_long_as_the_program():
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("kept-")
    assert not folder.exists()
    assert done.stderr == ""
