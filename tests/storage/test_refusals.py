"""Files that belong to another user: the error says who was refused, as hosts may have users of their own."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from pyarrow import fs

from pyflinkstate.backends.format import FileStateHandle
from pyflinkstate.errors import CheckpointStorageError, SinkStorageError
from pyflinkstate.runtime.sinks.file_sink import FileWriter
from pyflinkstate.runtime.storage import CheckpointFolder, reason_of

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
