"""Files and folders that are still there, and whole, after a power cut.

A file system may keep what is written in memory for a while, and write a rename to the disk before the bytes
of the renamed file. After a power cut such a file is there and empty, or cut short. So whatever counts is
written in four steps: write the file under another name, flush it (``fsync``), rename it, flush its folder. A
new folder is there for certain once the folder above it has been flushed, too.

This is a matter of local file systems, and of those made in Python whose handler has a method
``fsync(path)``. An object store has an object when it says so, and HDFS is left to its own replication.
"""

from __future__ import annotations

import errno
import os
import posixpath
import uuid
from contextlib import suppress

import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api.values import ArrowObject

#: Of these ``pyarrow.fs`` file systems a file is there when it is whole, and renaming is copying.
OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
#: What a file system answers that has nothing to flush, as some network ones do.
_NOTHING_TO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


def fsync_file(path: str) -> None:
    """Return when the bytes of a local file are on the disk.

    Raises:
        OSError: they are not.
    """
    _fsync(path, os.O_RDONLY)


def fsync_folder(path: str) -> None:
    """Return when the names in a local folder are on the disk: what was made, renamed and deleted there.

    Raises:
        OSError: they are not.
    """
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOTHING_TO_FLUSH:
            raise
    finally:
        os.close(descriptor)


def flush_file(file_system: fs.FileSystem, path: str) -> None:
    """:func:`fsync_file` on any file system that can do it; raises ``OSError``."""
    if isinstance(file_system, fs.LocalFileSystem):
        fsync_file(path)
    elif (handler := _handler_of(file_system)) is not None:
        handler.fsync(path)


def flush_folder(file_system: fs.FileSystem, path: str) -> None:
    """:func:`fsync_folder` on any file system that can do it; raises ``OSError``."""
    if isinstance(file_system, fs.LocalFileSystem):
        fsync_folder(path or "/")
    elif (handler := _handler_of(file_system)) is not None:
        handler.fsync(path)


def _handler_of(file_system: fs.FileSystem) -> ArrowObject:
    handler = file_system.handler if isinstance(file_system, fs.PyFileSystem) else None
    return handler if hasattr(handler, "fsync") else None


def make_folder(file_system: fs.FileSystem, path: str) -> None:
    """Make a folder and those above it, to stay; raises ``OSError``."""
    missing = _missing(file_system, path.rstrip("/"))
    file_system.create_dir(path, recursive=True)
    for folder in missing:
        flush_folder(file_system, posixpath.dirname(folder))


def _missing(file_system: fs.FileSystem, path: str) -> list[str]:
    """Return which folders are to be made, the lowest first; none where that does not matter."""
    if not isinstance(file_system, fs.LocalFileSystem) and _handler_of(file_system) is None:
        return []
    missing = []
    while path and file_system.get_file_info(path).type == fs.FileType.NotFound:
        missing.append(path)
        path = posixpath.dirname(path)
    return missing


def write_whole(file_system: fs.FileSystem, path: str, data: bytes) -> None:
    """Write a file that is there with all its bytes or not at all, whatever happens.

    What is there already is replaced. The folder is not flushed: after a power cut the file may be gone, or
    be what it was before.

    Raises:
        OSError, pa.ArrowException: it could not be written; nothing of it is left.
    """
    if file_system.type_name in OBJECT_STORES:
        _write(file_system, path, data)
        return
    folder, name = posixpath.split(path)
    unfinished = f"{folder}/.{name}.inprogress.{uuid.uuid4().hex}"
    try:
        _write(file_system, unfinished, data)
        flush_file(file_system, unfinished)
        file_system.move(unfinished, path)
    except (OSError, pa.ArrowException):
        with suppress(OSError, pa.ArrowException):
            file_system.delete_file(unfinished)  # it may have taken the last space that there was
        raise


def _write(file_system: fs.FileSystem, path: str, data: bytes) -> None:
    with file_system.open_output_stream(path) as stream:
        stream.write(data)
