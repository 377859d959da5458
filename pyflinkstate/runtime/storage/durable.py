"""Files and folders that still exist and are complete after a power cut.

A file system may keep written data in memory for a while, and may write a rename to the disk before the bytes
of the renamed file. After a power cut such a file exists but is empty or truncated. So every important file
is written in four steps: write it under another name, flush it (``fsync``), rename it, flush its folder. A
new folder is durable once the folder above it has been flushed too.

This concerns local file systems, and file systems in Python whose handler has a method ``fsync(path)``. An
object store has an object once it says so, and HDFS relies on its own replication.
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

#: On these ``pyarrow.fs`` file systems a file appears only when it is complete, and a rename is a copy.
OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
#: The errors of file systems that have nothing to flush, such as some network file systems.
_NOTHING_TO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


def fsync_file(path: str) -> None:
    """Wait until the bytes of a local file are on the disk.

    Raises:
        OSError: they could not be flushed.
    """
    _fsync(path, os.O_RDONLY)


def fsync_folder(path: str) -> None:
    """Wait until the names in a local folder are on the disk, after files were created, renamed or deleted.

    Raises:
        OSError: they could not be flushed.
    """
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def fsync(descriptor: int) -> None:
    """Wait until an open file or folder is on the disk; raise ``OSError`` if it could not be flushed."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOTHING_TO_FLUSH:
            raise


def flush_file(file_system: fs.FileSystem, path: str) -> None:
    """Do :func:`fsync_file` on any file system that supports it; raise ``OSError`` if it fails."""
    if isinstance(file_system, fs.LocalFileSystem):
        fsync_file(path)
    elif (handler := _handler_of(file_system)) is not None:
        handler.fsync(path)


def flush_folder(file_system: fs.FileSystem, path: str) -> None:
    """Do :func:`fsync_folder` on any file system that supports it; raise ``OSError`` if it fails."""
    if isinstance(file_system, fs.LocalFileSystem):
        fsync_folder(path or "/")
    elif (handler := _handler_of(file_system)) is not None:
        handler.fsync(path)


def _handler_of(file_system: fs.FileSystem) -> ArrowObject:
    handler = file_system.handler if isinstance(file_system, fs.PyFileSystem) else None
    return handler if hasattr(handler, "fsync") else None


def make_folder(file_system: fs.FileSystem, path: str) -> None:
    """Create a folder and those above it durably; raise ``OSError`` if that fails.

    One that could not be flushed is removed again. Otherwise the next attempt would find it, and take it for
    durable.
    """
    for folder in reversed(_missing(file_system, path.rstrip("/"))):
        file_system.create_dir(folder, recursive=False)
        try:
            flush_folder(file_system, posixpath.dirname(folder))
        except OSError:
            remove_empty(file_system, folder)
            raise
    file_system.create_dir(path, recursive=True)


def remove_empty(file_system: fs.FileSystem, folder: str) -> None:
    """Remove a folder if nobody has put anything into it; if that fails, it stays."""
    remove = getattr(_handler_of(file_system), "remove_empty", None)
    with suppress(OSError):
        if isinstance(file_system, fs.LocalFileSystem):
            os.rmdir(folder)
        elif remove is not None:
            remove(folder)
        elif not file_system.get_file_info(fs.FileSelector(folder)):
            file_system.delete_dir(folder)


def _missing(file_system: fs.FileSystem, path: str) -> list[str]:
    """Return which folders must be created, the lowest first; none if durability is not needed."""
    if not isinstance(file_system, fs.LocalFileSystem) and _handler_of(file_system) is None:
        return []
    missing = []
    while path and file_system.get_file_info(path).type == fs.FileType.NotFound:
        missing.append(path)
        path = posixpath.dirname(path)
    return missing


def write_whole(file_system: fs.FileSystem, path: str, data: bytes) -> None:
    """Write a file completely or not at all, whatever happens.

    An existing file is replaced. The folder is not flushed: after a power cut the file may be missing, or
    have its old content.

    Raises:
        OSError, pa.ArrowException: the file could not be written; no part of it is left.
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
            file_system.delete_file(unfinished)  # it may have taken up the last free space
        raise


def _write(file_system: fs.FileSystem, path: str, data: bytes) -> None:
    with file_system.open_output_stream(path) as stream:
        stream.write(data)
