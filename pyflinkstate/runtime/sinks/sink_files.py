"""Files and folders of the file sinks, and the errors of writing them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import ArrowObject, Record, safe_repr
from pyflinkstate.errors import BadRecordError, PyFlinkStateError, SinkError, SinkStorageError
from pyflinkstate.runtime.storage import below, flush_file, is_local, open_file_system, reason_of

#: The errors that encoding a record may raise.
ENCODING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@contextmanager
def sink_errors(what: str, culprit: Callable[[], Record] | None = None) -> Iterator[None]:
    """Turn an error into the sink's error or, while records are encoded, into an error of the record."""
    try:
        yield
    except PyFlinkStateError:
        raise
    except OSError as error:
        raise SinkStorageError(f"file sink: cannot {what}: {reason_of(error)}", what=what) from error
    except ENCODING_ERRORS as error:
        if culprit is None:
            raise SinkError(f"file sink: cannot {what}: {error}", what=what) from error
        record = safe_repr(culprit())
        raise BadRecordError(f"file sink: cannot {what}: {error}; record {record}", record=record) from error


class OutputFile:
    """A file that a task writes into an existing folder.

    Args:
        file_system: the file system.
        path: the path of the file, which nobody else uses.
    """

    def __init__(self, file_system: fs.FileSystem, path: str) -> None:
        self._fs = file_system
        self.path = path
        with sink_errors(f"write {path}"):
            self.stream: ArrowObject = file_system.open_output_stream(path)

    def close(self) -> None:
        """Finish the file, which makes it durable on a local file system."""
        with sink_errors(f"close {self.path}"):
            self.stream.close()
            flush_file(self._fs, self.path)

    def abandon(self) -> None:
        """Delete the file, which will not be finished; another attempt may need the space."""
        with suppress(OSError, pa.ArrowException):
            self.stream.close()
        with suppress(OSError, pa.ArrowException):
            self._fs.delete_file(self.path)


def opened(
    uri: str, file_system: fs.FileSystem | None, own_folder: str | None = None
) -> tuple[fs.FileSystem, str]:
    """Return the file system of a sink, which follows no links below the sink's directory, and the path.

    Args:
        uri: the directory, or a folder below it.
        file_system: the file system of ``uri``, if it is not a URI.
        own_folder: the name of the folder in the directory through which the path leads, if it is below it.
    """
    own, path = open_file_system(uri) if file_system is None else (file_system, uri)
    return below(own, path if own_folder is None else path.rpartition(f"/{own_folder}/")[0] or path), path


def real_folder(uri: str, file_system: fs.FileSystem, path: str) -> str:
    """Return the canonical name of a folder.

    Local paths have no links and no ``..``; URIs of other file systems have the host in lower case.
    """
    if is_local(file_system):
        return os.path.realpath(path)
    parts = urlsplit(uri)
    place = f"{parts.scheme.lower()}://{parts.netloc.lower()}" if parts.scheme else file_system.type_name
    return place + posixpath.normpath("/" + path.lstrip("/"))
