"""Files and folders of the file sinks: a file that a task writes, and which folder a path really means."""

from __future__ import annotations

import os
import posixpath
from contextlib import suppress
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api.values import ArrowObject
from pyflinkstate.runtime.storage import flush_file


class OutputFile:
    """A file that a task writes into a folder that is there.

    Args:
        file_system: where it is.
        path: of the file, which nobody else has.
    """

    def __init__(self, file_system: fs.FileSystem, path: str) -> None:
        self._fs = file_system
        self._path = path
        self._stream: ArrowObject = None

    def open(self) -> ArrowObject:
        """Make the file and return what is written to."""
        self._stream = self._fs.open_output_stream(self._path)
        return self._stream

    def close(self) -> None:
        """Finish it; on a local file system it is durable then."""
        self._stream.close()
        flush_file(self._fs, self._path)

    def abandon(self) -> None:
        """Delete it: it will not be finished, and another attempt may need the room."""
        if self._stream is None:
            return
        with suppress(OSError, pa.ArrowException):
            self._stream.close()
        with suppress(OSError, pa.ArrowException):
            self._fs.delete_file(self._path)


def real_folder(uri: str, file_system: fs.FileSystem, path: str) -> str:
    """Return the one name of a folder, however its path was written.

    Local paths are without links and ``..``; URIs of other file systems name the host in small letters.
    """
    if isinstance(file_system, fs.LocalFileSystem):
        return os.path.realpath(path)
    parts = urlsplit(uri)
    place = f"{parts.scheme.lower()}://{parts.netloc.lower()}" if parts.scheme else file_system.type_name
    return place + posixpath.normpath("/" + path.lstrip("/"))
