"""Folders and files of jobs and sinks: no link is followed there, and only regular files are opened."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from support_runtime import metadata, tree

from pyflinkstate.api.serialization import Encoder
from pyflinkstate.backends.format.state_handles import FileStateHandle
from pyflinkstate.errors import CheckpointStorageError, CorruptCheckpointError, SinkError
from pyflinkstate.monitor import journal as journals
from pyflinkstate.monitor.dead_jobs import jobs_at
from pyflinkstate.monitor.journal import Journal, JournalReader, encode
from pyflinkstate.runtime.sinks.file_sink import MARKER, FileSink
from pyflinkstate.runtime.sinks.run_area import NOTE, RUNS_FOLDER
from pyflinkstate.runtime.sinks.text_file_sink import OWN_FOLDER
from pyflinkstate.runtime.storage import RunHistory, checkpoints, open_folder, own_folders
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.state_access import verify
from pyflinkstate.state_access.command_line import main

JOB = "0" * 32
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
    file_system = own_folders.below(own_folders.fs.LocalFileSystem(), str(tmp_path))
    assert own_folders.read_note(file_system, f"{tmp_path}/note", 3) == b"123"
    with pytest.raises(own_folders.ForeignFileError, match="has 3 bytes, more than the 2"):
        own_folders.read_note(file_system, f"{tmp_path}/note", 2)


@pytest.mark.parametrize("deep", [b"[" * 100_000, b'{"a":' * 100_000])
def test_notes_that_are_nested_too_deeply_are_passed_over(storage: CheckpointFolders, deep: bytes) -> None:
    storage.write_run(JOB, RUN)
    storage.write_planned(JOB, 1, 1)
    Path(storage.uri, JOB, "runs", RUN).write_bytes(deep)
    Path(storage.uri, JOB, "offsets", "1").write_bytes(deep)
    assert storage.line(JOB) == RunHistory()
    assert storage.read_planned(JOB) == {}
