"""The streams that state is written to and read from: inline, in files, aborted, damaged."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from hypothesis import example, given, strategies as st
from support_runtime import tree

from pyflinkstate.backends.format.state_handles import ByteStreamStateHandle, FileStateHandle
from pyflinkstate.errors import CheckpointStorageError, ConfigurationError, CorruptCheckpointError
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.settings import MAX_INLINE_THRESHOLD_BYTES, FileSystemCheckpointStorage
from pyflinkstate.runtime.storage.streams import CheckpointFolder, FsCheckpointStateOutputStream
from pyflinkstate.runtime.storage.uris import open_file_system

JOB = "0" * 32


@pytest.fixture
def folder(storage: CheckpointFolders) -> CheckpointFolder:
    """A checkpoint's folder with a small inline threshold, and no larger write buffer."""
    streams = storage.streams(storage.begin(JOB, 1))
    return attrs.evolve(streams, inline_threshold_bytes=10, write_buffer_bytes=0)


# --- streams ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pieces", [[b"0123456789"], [b"01234", b"", b"56789"]])
def test_state_of_exactly_the_threshold_stays_in_memory(
    folder: CheckpointFolder, pieces: list[bytes]
) -> None:
    stream = folder.create()
    for piece in pieces:
        stream.write(piece)
    assert stream.close_and_get_handle() == ByteStreamStateHandle(b"0123456789")


@pytest.mark.parametrize("pieces", [[b"0123456789a"], [b"0123456789", b"a"], [b"0123456789", b"a", b""]])
def test_one_byte_more_makes_a_file(folder: CheckpointFolder, pieces: list[bytes]) -> None:
    stream = folder.create()
    for piece in pieces:
        stream.write(piece)
    handle = stream.close_and_get_handle()
    assert isinstance(handle, FileStateHandle)
    assert handle.size_bytes == 11
    assert tree(Path(folder.folder)) == {handle.path: b"0123456789a"}


def test_what_follows_the_threshold_is_appended(folder: CheckpointFolder) -> None:
    stream = folder.create()
    for number in range(1_000):
        stream.write(b"%04d" % number)
    handle = stream.close_and_get_handle()
    assert tree(Path(folder.folder)) == {handle.path: b"".join(b"%04d" % n for n in range(1_000))}
    assert folder.read(handle, 40, 4) == b"0010"
    assert folder.read(handle, 3_996, 4) == b"0999"


def test_flinks_threshold_is_the_default(storage: CheckpointFolders) -> None:
    streams = storage.streams(storage.begin(JOB, 1))
    for size, kind in ((20 * 1024, ByteStreamStateHandle), (20 * 1024 + 1, FileStateHandle)):
        stream = streams.create()
        stream.write(bytes(size))
        assert type(stream.close_and_get_handle()) is kind


def test_an_empty_stream_is_inline(folder: CheckpointFolder) -> None:
    handle = folder.create().close_and_get_handle()
    assert handle == ByteStreamStateHandle(b"")
    assert folder.read(handle, 0, 0) == b""


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


def test_streams_of_one_checkpoint_have_files_of_their_own(folder: CheckpointFolder) -> None:
    streams = [folder.create() for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.write(bytes([number]) * 20)
    handles = [stream.close_and_get_handle() for stream in streams]
    assert [folder.read(handle, 0, 1) for handle in handles] == [b"\x00", b"\x01", b"\x02"]


def test_writing_where_nobody_can_is_a_storage_error(blocked: str) -> None:
    stream = CheckpointFolder(open_file_system(blocked)[0], blocked, 10, 0).create()
    stream.write(b"inline")
    with pytest.raises(CheckpointStorageError, match="cannot write"):
        stream.write(b"too large to be inline")
    stream.abort()


def test_closing_where_nobody_can_write_is_a_storage_error(blocked: str) -> None:
    stream = CheckpointFolder(open_file_system(blocked)[0], blocked, 10, 100).create()
    stream.write(b"too large to be inline")
    with pytest.raises(CheckpointStorageError, match="cannot close"):
        stream.close_and_get_handle()
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


def test_state_above_the_threshold_that_fits_the_write_buffer_is_a_file_when_closed(
    folder: CheckpointFolder,
) -> None:
    stream = attrs.evolve(folder, write_buffer_bytes=100).create()
    stream.write(bytes(11))
    assert tree(Path(folder.folder)) == {}
    handle = stream.close_and_get_handle()
    assert handle == FileStateHandle(handle.path, 11)
    assert tree(Path(folder.folder)) == {handle.path: bytes(11)}


class CountedFile:
    """A file in memory that notes the size of each write."""

    def __init__(self) -> None:
        self.data = b""
        self.sizes: list[int] = []

    def write(self, data: bytes) -> None:
        self.data += data
        self.sizes.append(len(data))

    def close(self) -> None:
        pass


def test_small_writes_reach_the_file_together_and_large_ones_by_themselves() -> None:
    file = CountedFile()
    stream = FsCheckpointStateOutputStream(lambda: file, lambda: None, "../shared/1-file", 0, 100)
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
def test_whatever_the_sizes_the_bytes_come_in_order_and_the_threshold_decides_where(
    pieces: list[bytes], threshold: int, write_buffer: int
) -> None:
    file, whole = CountedFile(), b"".join(pieces)
    stream = FsCheckpointStateOutputStream(lambda: file, lambda: None, "file", threshold, write_buffer)
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


def test_flinks_settings_are_the_default(tmp_path: Path) -> None:
    settings = CheckpointFolders(str(tmp_path)).settings
    assert settings == FileSystemCheckpointStorage(str(tmp_path), 20 * 1024, 4096)
    assert MAX_INLINE_THRESHOLD_BYTES == 1024 * 1024


@pytest.mark.parametrize("threshold", [0, 1, MAX_INLINE_THRESHOLD_BYTES])
def test_thresholds_within_flinks_bounds_are_taken(tmp_path: Path, threshold: int) -> None:
    assert FileSystemCheckpointStorage(str(tmp_path), threshold).file_state_size_threshold == threshold


@pytest.mark.parametrize("threshold", [-2, MAX_INLINE_THRESHOLD_BYTES + 1])
def test_a_threshold_out_of_bounds_is_refused(tmp_path: Path, threshold: int) -> None:
    with pytest.raises(ConfigurationError, match=f"file_state_size_threshold must be .*, not {threshold}"):
        FileSystemCheckpointStorage(str(tmp_path), threshold)


def test_a_write_buffer_may_be_0_and_not_less(tmp_path: Path) -> None:
    assert FileSystemCheckpointStorage(str(tmp_path), write_buffer_size=0).write_buffer_size == 0
    with pytest.raises(ConfigurationError, match=r"write_buffer_size must be .*, not -2"):
        FileSystemCheckpointStorage(str(tmp_path), write_buffer_size=-2)


def test_minus_one_stands_for_the_default_as_in_pyflink(tmp_path: Path) -> None:
    assert FileSystemCheckpointStorage(str(tmp_path), -1, -1) == FileSystemCheckpointStorage(str(tmp_path))


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
