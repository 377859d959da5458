"""The streams that state is written to and read from: inline, in files, aborted, damaged."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
from support_runtime import tree

from pyflinkstate.backends.state_handles import ByteStreamStateHandle, FileStateHandle
from pyflinkstate.errors import CheckpointStorageError, CorruptCheckpointError
from pyflinkstate.runtime.storage import (
    INLINE_THRESHOLD_BYTES,
    CheckpointFolder,
    CheckpointStorage,
    open_file_system,
)

JOB = "0" * 32


@pytest.fixture
def folder(storage: CheckpointStorage) -> CheckpointFolder:
    """A checkpoint's folder with a small inline threshold."""
    streams = storage.streams(storage.begin(JOB, 1))
    return attrs.evolve(streams, inline_threshold_bytes=10)


# --- streams ---------------------------------------------------------------------------------------


def test_state_below_the_threshold_stays_in_memory(folder: CheckpointFolder) -> None:
    stream = folder.create()
    stream.write(b"12345")
    stream.write(b"678")
    assert stream.close_and_get_handle() == ByteStreamStateHandle(b"12345678")
    assert tree(Path(folder.folder)) == {}


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


def test_flinks_threshold_is_the_default(storage: CheckpointStorage) -> None:
    streams = storage.streams(storage.begin(JOB, 1))
    for size, kind in ((20 * 1024, ByteStreamStateHandle), (20 * 1024 + 1, FileStateHandle)):
        stream = streams.create()
        stream.write(bytes(size))
        assert type(stream.close_and_get_handle()) is kind
    assert INLINE_THRESHOLD_BYTES == 20 * 1024


def test_an_empty_stream_is_inline(folder: CheckpointFolder) -> None:
    handle = folder.create().close_and_get_handle()
    assert handle == ByteStreamStateHandle(b"")
    assert folder.read(handle, 0, 0) == b""


@pytest.mark.parametrize("size", [0, 10, 11, 100_000])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "open"])
def test_an_aborted_stream_leaves_no_file(folder: CheckpointFolder, size: int, closed: bool) -> None:
    stream = folder.create()
    stream.write(bytes(size))
    if closed:
        stream.close_and_get_handle()
    stream.abort()
    stream.abort()
    assert tree(Path(folder.folder)) == {}


def test_an_abort_after_the_folder_was_deleted_is_quiet(
    storage: CheckpointStorage, folder: CheckpointFolder
) -> None:
    stream = folder.create()
    stream.write(bytes(100))
    storage.discard(JOB, 1)
    stream.abort()
    assert not Path(folder.folder).exists()


def test_streams_of_one_checkpoint_have_files_of_their_own(folder: CheckpointFolder) -> None:
    streams = [folder.create() for _ in range(3)]
    for number, stream in enumerate(streams):
        stream.write(bytes([number]) * 20)
    handles = [stream.close_and_get_handle() for stream in streams]
    assert [folder.read(handle, 0, 1) for handle in handles] == [b"\x00", b"\x01", b"\x02"]


def test_writing_where_nobody_can_is_a_storage_error(blocked: str) -> None:
    stream = CheckpointFolder(open_file_system(blocked)[0], blocked, 10).create()
    stream.write(b"inline")
    with pytest.raises(CheckpointStorageError, match="cannot write"):
        stream.write(b"too large to be inline")
    stream.abort()


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
