"""What the storage below a file sink does to it: it is full for a while, or loses its power."""

from __future__ import annotations

import errno
import gc
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import GrowingSource, Heard, JobRun
from support_sinks import FILE_SINKS, JOB, Flushed, history, visible_files

from pyflinkstate import FileSink
from pyflinkstate.errors import PyFlinkStateError, SinkStorageError
from pyflinkstate.runtime.plan import ChainNode, SourceNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.storage import CheckpointFolders, file_systems

SMALL_BYTES = 512 * 1024
#: A record is a line of so many bytes, so that an epoch needs more room than is left on a disk that is full.
LINE_BYTES = 32 * 1024


#: Every sink that writes files, and the format whose files have an end.
KINDS: dict[str, Callable[[Path], Any]] = {
    **{make.__name__: make for make in FILE_SINKS},
    "parquet": lambda path: FileSink(path, "parquet"),
}


def make_sink(kind: str, path: Path) -> Any:
    return KINDS[kind](path)


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SMALL_BYTES}", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs to mount a small file system")
    yield folder
    gc.collect()  # the errors of a run hold its frames, and these a file that a full disk kept from closing
    subprocess.run(["umount", str(folder)], check=True)


@attrs.define
class MakesRoom(Heard):
    """Looks what is visible at each restart, and deletes a file at the second one."""

    out: Path = attrs.field(kw_only=True)
    filler: Path = attrs.field(kw_only=True)
    visible: list[int] = attrs.Factory(list)

    def on_restart(self, attempt: int, error: PyFlinkStateError) -> None:
        super().on_restart(attempt, error)
        self.visible.append(len(visible_files(self.out)))
        if attempt == 2:
            self.filler.unlink()


def fill(path: Path, left_bytes: int) -> None:
    """Leave so much room on the file system of ``path``."""
    with path.open("wb") as file:
        free = os.statvfs(path.parent)
        file.write(b"x" * (free.f_bavail * free.f_frsize - left_bytes))


def line(number: int) -> str:
    return f"{number:04d}" + str(number % 10) * LINE_BYTES


def table_row(number: int) -> dict[str, Any]:
    return {"number": number, "noise": os.urandom(LINE_BYTES)}


def numbers_of(kind: str, out: Path) -> list[int]:
    if kind == "parquet":
        import pyarrow.parquet as pq

        tables = [pq.read_table(path, partitioning=None) for path in visible_files(out)]
        return sorted(number for table in tables for number in table.column("number").to_pylist())
    return sorted(int(text[:4]) for path in visible_files(out) for text in path.read_text().splitlines())


@pytest.mark.needs_root
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [0, LINE_BYTES // 2, 2 * LINE_BYTES], ids=["none", "little", "some"])
def test_a_full_disk_fails_the_attempt_and_the_job_goes_on_when_there_is_room(
    small: Path, storage: CheckpointFolders, kind: str, room: int
) -> None:
    out, filler = small / "out", small / "filler"
    heard = MakesRoom(out=out, filler=filler)
    source = GrowingSource(9, lambda source: setattr(source, "is_over", True))
    end = ChainNode(SourceNode(source, "numbers"), "map", table_row if kind == "parquet" else line, "line")
    run = JobRun(end, make_sink(kind, out), storage, restart=FixedDelayRestart(5, 100), heard=heard)
    has_filled: list[bool] = []

    def fill_up(request: Any) -> None:
        if request.link.epoch == 2 and not has_filled:
            has_filled.append(True)
            fill(filler, room)

    run.runner.before = fill_up
    run.run()
    assert [type(error) for _, error in heard.restarts] == [SinkStorageError] * 2
    assert "No space left on device" in str(heard.restarts[0][1])
    assert set(heard.visible) == {1}, "nothing of an epoch that did not fit is seen"
    assert numbers_of(kind, out) == list(range(9))
    left = [path.name for path in small.rglob("*") if path.is_file() and path not in visible_files(out)]
    assert not [name for name in left if name.startswith("part-")], "nothing half written is left"


# --- power -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
class TestWhatIsFlushed:
    def written(self, kind: str, out: Path) -> Any:
        """Return a sink in which an epoch has been written, and that one's results."""
        sink = make_sink(kind, out)
        sink.open_run(JOB, history((1, 0)), None)
        records = [{"number": 1}] if kind == "parquet" else ["1"]
        return sink, list(sink.writer(1).write(0, iter(records)))

    def test_a_file_is_before_its_name_goes_to_the_driver(
        self, tmp_path: Path, flushed: Flushed, kind: str
    ) -> None:
        _, (name,) = self.written(kind, tmp_path / "out")
        (file,) = (tmp_path / "out").rglob(Path(name).name)
        assert flushed.has(file)

    def test_what_a_checkpoint_counts_on_is_before_the_checkpoint(
        self, tmp_path: Path, flushed: Flushed, kind: str
    ) -> None:
        sink, results = self.written(kind, tmp_path / "out")
        flushed.inodes.clear()
        sink.prepare(1, results)
        (file,) = (tmp_path / "out").rglob(Path(results[0]).name)
        assert flushed.has(file.parent)
        (prepared,) = (tmp_path / "out").rglob("prepared")
        assert flushed.has(prepared)
        assert all(map(flushed.has, prepared.iterdir()))

    def test_the_folder_that_readers_see_is_after_the_commit(
        self, tmp_path: Path, flushed: Flushed, kind: str
    ) -> None:
        sink, results = self.written(kind, tmp_path / "out")
        sink.prepare(1, results)
        flushed.inodes.clear()
        sink.commit(1)
        assert flushed.has(tmp_path / "out")

    def test_each_epoch_that_readers_see_is_before_the_next_one(
        self, tmp_path: Path, flushed: Flushed, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        sink, results = self.written(kind, tmp_path / "out")
        sink.prepare(1, results)
        records = [{"number": 2}] if kind == "parquet" else ["2"]
        sink.prepare(2, list(sink.writer(2).write(0, iter(records))))
        out = tmp_path / "out"

        def refuse(descriptor: int) -> None:
            if os.fstat(descriptor).st_ino == out.stat().st_ino:
                raise OSError(errno.EIO, "input/output error")

        monkeypatch.setattr(file_systems.os, "fsync", refuse)
        with pytest.raises(SinkStorageError):
            sink.commit(2)
        assert len(visible_files(out)) == 1, "a power cut could take back epoch 1 and leave epoch 2"
        monkeypatch.setattr(file_systems.os, "fsync", flushed.fsync)
        flushed.inodes.clear()
        sink.commit(2)
        assert len(visible_files(out)) == (1 if kind == "joined_sink" else 2)
        assert flushed.has(out)

    def test_moves_of_a_restore_are_before_the_history_that_counts_on_them(
        self, tmp_path: Path, flushed: Flushed, kind: str
    ) -> None:
        sink, results = self.written(kind, tmp_path / "out")
        sink.prepare(1, results)
        sink.commit(1)
        flushed.inodes.clear()
        make_sink(kind, tmp_path / "out").open_run(JOB, history((2, 0)), 0)
        (note,) = (tmp_path / "out").rglob("run.json")
        (aside,) = (tmp_path / "out").rglob("aside/*")
        noted = flushed.inodes.index(note.stat().st_ino)
        assert aside.stat().st_ino in flushed.inodes[:noted]
        assert note.parent.stat().st_ino in flushed.inodes[noted:]

    def test_what_a_rewind_takes_back_is_before_the_history_without_it(
        self, tmp_path: Path, flushed: Flushed, kind: str
    ) -> None:
        """A power cut may not bring back what the history says is gone."""
        sink, results = self.written(kind, tmp_path / "out")
        sink.prepare(1, results)
        sink.commit(1)
        (file,) = (tmp_path / "out").rglob(Path(results[0]).name)
        is_seen_as_folder = file.parent.name.startswith("epoch=")
        shown_in = file.parent.parent if is_seen_as_folder else file.parent
        flushed.inodes.clear()
        sink.rewind(0)
        (note,) = (tmp_path / "out").rglob("run.json")
        noted = flushed.inodes.index(note.stat().st_ino)
        assert shown_in.stat().st_ino in flushed.inodes[:noted]
