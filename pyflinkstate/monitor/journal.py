"""The journal of a job: its events, in files beside its checkpoints.

A line is an event as JSON behind the CRC-32 of its bytes, in eight hexadecimal digits and a space. A line
that was cut off, or damaged otherwise, does not match its sum, and is read as if it were not there; those
before and after it are read.

The files are ``<job's folder>/journal/<time>-<run>-<number>.jsonl``. Every run of a job writes files of its
own, so two drivers of a job never write to the same one, and their names sort by age. When a file has
``SEGMENT_BYTES``, the next one begins, and the oldest files are deleted until at most ``MOST_SEGMENTS`` are
left. With the first file, the line that says which job it is would be lost, so each further file begins with
one like it, which also has the history of the job. On an object store nothing can be appended to a file, so
the last file is written anew; there it is short. If a folder has more or larger files than jobs write, only
the newest are read.
"""

from __future__ import annotations

import json
import posixpath
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, islice

import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import JsonObject
from pyflinkstate.runtime.storage import (
    OBJECT_STORES,
    below,
    child_uri,
    flush_file,
    make_folder,
    open_file_system,
)

JOURNAL = "journal"
SEGMENT_BYTES = 1 << 20
#: Those of an object store, which are written anew with each addition.
OBJECT_BYTES = 1 << 17
MOST_SEGMENTS = 8
#: A longer line was not written by a journal.
MOST_LINE_BYTES = 1 << 22
#: Number of bytes of a file that are read at once.
MOST_READ_BYTES = 2 * MOST_LINE_BYTES
#: Maximum size of a journal that is read: of a larger one, the newest files.
MOST_JOURNAL_BYTES = 1 << 24
_SUM_CHARS = 8
_SEGMENT = re.compile(r"\d{15,}-[0-9a-f]{8}-\d{6,}\.jsonl")
#: The errors that the storage of a journal may raise.
STORAGE_ERRORS = (OSError, pa.ArrowException)


def encode(event: JsonObject) -> bytes:
    """Return an event as a line.

    >>> encode({"event": "ended"})
    b'71188e78 {"event":"ended"}\\n'
    """
    data = json.dumps(event, separators=(",", ":"), default=str).encode("ascii")
    return b"%08x %b\n" % (zlib.crc32(data), data)


def decode(line: bytes) -> JsonObject | None:
    """Return the event of a line, or None if the line is not whole."""
    data = line[_SUM_CHARS + 1 :]
    if len(line) > MOST_LINE_BYTES or line[: _SUM_CHARS + 1] != b"%08x " % zlib.crc32(data):
        return None
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None


def decode_all(data: bytes) -> Iterator[JsonObject]:
    """Return the events of all whole lines."""
    return filter(None, map(decode, data.split(b"\n")))


class Journal:
    """Writes the journal of one run of a job.

    Args:
        job_folder: the URI or path of the folder of the job's checkpoints.
        now_ms: when the run began, in ms since 1970; the names of its files begin with it.
        segment_bytes: how long a file becomes.
        most_segments: how many files of all runs are kept.

    Attributes:
        head: returns the line with which each further file begins.
    """

    def __init__(
        self,
        job_folder: str,
        now_ms: int,
        segment_bytes: int = SEGMENT_BYTES,
        most_segments: int = MOST_SEGMENTS,
    ) -> None:
        self._fs, self._folder = path_in_job(job_folder, JOURNAL)
        self._appends = self._fs.type_name not in OBJECT_STORES
        self._segment_bytes = segment_bytes if self._appends else min(segment_bytes, OBJECT_BYTES)
        self._most_segments = most_segments
        self.head: Callable[[], bytes] = bytes
        self._name = f"{now_ms:015d}-{secrets.token_hex(4)}"
        self._number = 0
        self._size = 0
        #: The content of the last file on an object store.
        self._kept = b""
        #: What the next addition begins with: the head of a file, and before it the end of a line of which a
        #: part may be there.
        self._begin = b""
        self._is_new = True

    def write(self, lines: Iterable[bytes]) -> None:
        """Add lines; they survive the end of this process from now on, and on a local disk a power cut.

        Raises:
            OSError, pa.ArrowException: the storage failed; a part of the lines may have been written.
        """
        waiting: list[bytes] = []
        length = 0
        for line in lines:
            if waiting and self._size + length + len(line) > self._segment_bytes:
                self._write(b"".join(waiting))
                waiting, length = [], 0
            waiting.append(line)
            length += len(line)
        if waiting:
            self._write(b"".join(waiting))

    def _write(self, data: bytes) -> None:
        if self._size and self._size + len(data) > self._segment_bytes:
            self._number, self._size, self._kept, self._is_new = self._number + 1, 0, b"", True
            self._begin = self.head()
        try:
            if self._is_new:
                make_folder(self._fs, self._folder)
                self._forget_oldest()
                self._is_new = False
            self._add(data)
        except Exception:
            # The file goes on: if each failure began a new one, a full disk would cost all older ones. It may
            # end with a part of a line, its folder may be gone, and the lines that are lost may say which job
            # it is.
            self._begin, self._is_new = b"\n" + self.head(), True
            raise

    @property
    def _file(self) -> str:
        return f"{self._name}-{self._number:06d}.jsonl"

    def _add(self, data: bytes) -> None:
        path = f"{self._folder}/{self._file}"
        added = self._begin + data
        if self._appends:
            with self._fs.open_append_stream(path) as stream:
                stream.write(added)
        else:
            with self._fs.open_output_stream(path) as stream:
                stream.write(self._kept + added)
            self._kept += added
        # The head of a file does not count: if it is long, there would be room for little else.
        self._size += len(added) if self._size else len(data)
        self._begin = b""
        if self._appends:
            flush_file(self._fs, path)

    def _forget_oldest(self) -> None:
        """Delete the oldest files, so that there is room for this one."""
        files = [str(info.path) for info in _segments(self._fs, self._folder)]
        found = [path for path in files if not path.endswith(f"/{self._file}")]
        for path in found[: max(0, len(found) - self._most_segments + 1)]:
            self._fs.delete_file(path)


class JournalReader:
    """Reads the journal of a job, and later what has been added to it.

    Args:
        job_folder: the URI or path of the folder of the job's checkpoints.
    """

    def __init__(self, job_folder: str) -> None:
        self._fs, self._folder = path_in_job(job_folder, JOURNAL)
        #: By file, how many bytes have been read.
        self._read: dict[str, int] = {}

    def read_new(self) -> list[JsonObject]:
        """Return the events that were not there the last time, in order.

        Raises:
            OSError, pa.ArrowException: the storage cannot be read.
        """
        events: list[JsonObject] = []
        read: dict[str, int] = {}
        for info in _newest(_segments(self._fs, self._folder)):
            begin = self._read.get(info.path, 0)
            added, length = self._added(info.path, begin, info.size)
            events += added
            read[info.path] = begin + length
        self._read = read  # if one file cannot be read now, all of them are read again later
        return events

    def _added(self, path: str, begin: int, size: int) -> tuple[list[JsonObject], int]:
        """Return the events behind a place in a file, and how many bytes they take."""
        if size <= begin:
            return [], 0
        try:
            with self._fs.open_input_file(path) as file:
                data = bytes(file.read_at(min(size - begin, MOST_READ_BYTES), begin))
        except FileNotFoundError:  # the job has just forgotten it
            return [], 0
        whole = data.rfind(b"\n") + 1
        is_no_line = not whole and len(data) > MOST_LINE_BYTES  # nobody wrote such a long one
        if is_no_line or decode(data[whole:]) is not None:
            whole = len(data)
        return list(decode_all(data[:whole])), whole


def path_in_job(job_folder: str, name: str) -> tuple[fs.FileSystem, str]:
    """Return the file system and path of what a job keeps in its folder; both are its own, so no links."""
    file_system, path = open_file_system(child_uri(job_folder, name))
    return below(file_system, posixpath.dirname(posixpath.dirname(path))), path


def _segments(file_system: fs.FileSystem, folder: str) -> list[fs.FileInfo]:
    """Return the files of a journal, the oldest first."""
    infos = file_system.get_file_info(fs.FileSelector(folder, allow_not_found=True))
    files = (info for info in infos if info.type == fs.FileType.File and _SEGMENT.fullmatch(info.base_name))
    return sorted(files, key=lambda info: str(info.path))


def _newest(segments: list[fs.FileInfo]) -> list[fs.FileInfo]:
    """Return the newest files of a journal, no more than jobs write there."""
    sizes = accumulate(min(info.size, MOST_READ_BYTES) for info in reversed(segments))
    number = sum(size <= MOST_JOURNAL_BYTES for size in islice(sizes, 2 * MOST_SEGMENTS))
    return segments[len(segments) - number :]
