"""Files and folders: their URIs and file systems, how they survive a power cut, and that they are our own.

A *URI* begins with a scheme: two or more letters, digits, ``+``, ``-`` or ``.``, the first of them a letter,
and a colon (RFC 3986), before any slash. So ``dbfs:/out`` and ``s3://bucket/out`` are URIs. ``C:/out`` (a
drive), ``/data/a:b`` and ``./x:y`` are local paths.

A file system may keep written data in memory for a while, and may write a rename to the disk before the bytes
of the renamed file. After a power cut such a file exists but is empty or truncated. So every important file
is written in four steps: write it under another name, flush it (``fsync``), rename it, flush its folder. A
new folder is durable once the folder above it has been flushed too. This concerns local file systems, and
file systems in Python whose handler has a method ``fsync(path)``. An object store has an object once it says
so, and HDFS relies on its own replication.

Whoever can write into a checkpoint directory could put a link, a pipe or a huge file where a job or a reader
expects a folder or a file of its own. So everything below the directory is opened step by step, each folder
relative to the open one above it, and no step follows a link (:class:`OwnFolders`). A file is opened only if
it is a regular file. The directory itself, and the folders above it, are the user's own: links there are
followed.
"""

from __future__ import annotations

import errno
import os
import posixpath
import pwd
import re
import shutil
import socket
import stat
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias
from urllib.parse import quote, unquote

import attrs
import pyarrow as pa
from pyarrow import fs

from pyflinkstate.api import ArrowObject
from pyflinkstate.errors import ConfigurationError

#: The types with which users may name a folder or file.
AnyPath: TypeAlias = "str | os.PathLike[str]"
#: The schemes that ``pyarrow.fs`` knows. Other storage can be mounted, and then has a local path.
KNOWN_SCHEMES = ("file", "s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")
_LOCAL_URI = re.compile(r"file:(?://(?:localhost)?(?=/)|(?!//))(/.*)", re.DOTALL | re.IGNORECASE)
#: The scheme and the authority of a URI.
_ORIGIN = re.compile(r"[^:]+:(?://[^/]*)?")
#: Spark takes a path with one of these for a pattern that many names can fit.
_OF_PATTERNS = re.compile(r"[{}[\]*?\\]")


def scheme_of(uri: str) -> str | None:
    """Return the scheme of a URI in lower case, or None for a local path."""
    found = _SCHEME.match(uri)
    return None if found is None else found[1].lower()


def is_uri(uri: str) -> bool:
    """Return whether this is a URI and not a local path."""
    return scheme_of(uri) is not None


def check_scheme(uri: str) -> str | None:
    """Return the scheme of a URI, or None for a local path.

    Raises:
        ConfigurationError: no file system has that scheme.
    """
    scheme = scheme_of(uri)
    if scheme is None or scheme in KNOWN_SCHEMES:
        return scheme
    raise ConfigurationError(
        f"{uri}: the scheme {scheme}: is not supported; supported are "
        f"{', '.join(f'{known}:' for known in KNOWN_SCHEMES)} and local paths. Mount the storage and use "
        f"the path where it is mounted (if this is a path whose first name has a colon, write ./{uri})",
        uri=uri,
    )


def open_file_system(uri: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a URI or local path, and the path on it.

    ``file:/x`` and ``file:///x`` are local paths whose ``%`` escapes are decoded.

    Raises:
        ConfigurationError: no file system has that scheme, or a ``file:`` URI names another host.
        OSError: the file system cannot be opened; the caller adds what it was for.
    """
    scheme = check_scheme(uri)
    if scheme is None:
        return fs.LocalFileSystem(), absolute(uri)
    if scheme == "file":
        return fs.LocalFileSystem(), _local_path(uri)
    try:
        file_system, path = fs.FileSystem.from_uri(scheme + uri[len(scheme) :])
    except pa.ArrowException as error:
        raise OSError(str(error)) from error
    return file_system, path


def _local_path(uri: str) -> str:
    found = _LOCAL_URI.fullmatch(uri.partition("?")[0])
    if found is None:
        raise ConfigurationError(
            f"{uri}: a file: URI must be an absolute path on this host, file:/x or file:///x; for another "
            f"host's files use the path where they are mounted",
            uri=uri,
        )
    return unquote(found[1])


def absolute(uri: AnyPath) -> str:
    """Return a URI, or an absolute path, because other processes have other working directories.

    Slashes at the end are removed, as by Flink's ``Path``. As in a shell, ``~`` at the beginning of a path
    stands for the home of the user.

    Raises:
        ConfigurationError: no file system has that scheme, or it is no path.
    """
    text = path_text(uri)
    if check_scheme(text) is None:
        return str(Path(os.path.expanduser(text)).absolute())
    origin = _ORIGIN.match(text)
    is_root = origin is not None and not text[origin.end() :].partition("?")[0].strip("/")
    return text if is_root else "".join(split_options(text))


def path_text(path: AnyPath) -> str:
    """Return a path or URI as a text.

    Raises:
        ConfigurationError: it is no path.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise ConfigurationError(f"a path must be a string or a pathlib.Path, not {path!r}")
    return text


def child_uri(uri: str, *names: str) -> str:
    """Return a URI or path below another; options of a URI (``?endpoint_override=...``) stay at its end."""
    base, question, options = split_options(uri)
    return "/".join([base, *names]) + question + options


def parent_uri(uri: str) -> tuple[str, str]:
    """Return the URI or path of the folder that holds another, and the name of the other in it.

    >>> parent_uri("s3://bucket/jobs/chk-1?region=x")
    ('s3://bucket/jobs?region=x', 'chk-1')
    """
    base, question, options = split_options(uri)
    parent, _, name = base.rpartition("/")
    return (parent or "/") + question + options, name


def split_options(uri: str) -> tuple[str, str, str]:
    """Return a URI or path without a final slash, and a URI's ``?`` and options, which may be empty."""
    base, question, options = uri.partition("?") if is_uri(uri) else (uri, "", "")
    return base.rstrip("/"), question, options


def name_below(uri: str, name: str) -> str:
    """Return a name that a user has given as a child of a URI or path has it: below a URI it is escaped."""
    return quote(name, safe="") if is_uri(uri) else name


def path_in_spark(uri: str) -> str:
    """Return the form of a URI or path for Spark, as Hadoop does not decode ``%`` escapes.

    >>> path_in_spark("hdfs://cluster/a%20b")
    'hdfs://cluster/a b'

    Raises:
        ConfigurationError: a ``file:`` URI names another host.
    """
    scheme = scheme_of(uri)
    if scheme is None:
        return uri
    if scheme == "file":
        return f"file://{_local_path(uri)}"
    origin = _ORIGIN.match(uri)
    assert origin is not None
    return scheme + origin[0][len(scheme) :] + unquote(uri[origin.end() :])


def check_spark_reaches(uri: str, what: str, remedy: str) -> None:
    """Check that Spark can use a URI too: Hadoop supports neither options after a ``?`` nor ``s3://``.

    Raises:
        ConfigurationError: Spark cannot use it.
    """
    if scheme_of(uri) == "s3" or (is_uri(uri) and "?" in uri):
        raise ConfigurationError(f"{what} {uri}: Spark cannot reach that directory under this URI; {remedy}")


def check_spark_reads(uri: str, what: str, remedy: str) -> None:
    """Check that Spark finds a folder by its name, and does not take that for a pattern.

    Raises:
        ConfigurationError: it would read nothing, or other folders.
    """
    path = path_in_spark(uri)
    origin = _ORIGIN.match(path) if is_uri(path) else None
    found = _OF_PATTERNS.search(path, 0 if origin is None else origin.end())
    if found is not None:
        raise ConfigurationError(
            f"{what} {path}: Spark takes a path with {found[0]} for a pattern, and would not find that "
            f"folder; {remedy}",
            uri=uri,
        )


def reason_of(error: BaseException) -> str:
    """Return the message of an error and, if it is about permissions, the refused user and host."""
    return (
        f"{error} (refused to user {_user()} on host {socket.gethostname()})"
        if isinstance(error, PermissionError)
        else str(error)
    )


def _user() -> str:
    """Return the name of the user that this process has now, whatever its environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())  # in a container, a user may have no name


def temporary_folder(owner: object, prefix: str) -> Path:
    """Make a folder that lasts as long as ``owner``.

    ``tempfile.TemporaryDirectory`` does the same, but warns of each folder that nobody closes, and what is
    kept for as long as a program may need it is closed by nobody.

    Args:
        owner: an object that can be referred to weakly; a class or function lasts as long as the program.
        prefix: what the folder's name begins with.
    """
    folder = tempfile.mkdtemp(prefix=prefix)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


#: On these ``pyarrow.fs`` file systems a file appears only when it is complete, and a rename is a copy.
OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
#: The errors of file systems that have nothing to flush, such as some network file systems.
_NOTHING_TO_FLUSH = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


def fsync(descriptor: int) -> None:
    """Wait until an open file or folder is on the disk; raise ``OSError`` if it could not be flushed."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _NOTHING_TO_FLUSH:
            raise


def fsync_path(path: str) -> None:
    """Wait until a local file or folder is on the disk."""
    descriptor = os.open(path or "/", os.O_RDONLY)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


def flush_file(file_system: fs.FileSystem, path: str) -> None:
    """Wait until a file is on the disk, if the file system supports it; raise ``OSError`` if that fails."""
    if isinstance(file_system, fs.LocalFileSystem):
        fsync_path(path)
    elif (handler := _handler_of(file_system)) is not None:
        handler.fsync(path)


def flush_folder(file_system: fs.FileSystem, path: str) -> None:
    """Wait until the names in a folder are on the disk, after files were created, renamed or deleted.

    Raises:
        OSError: they could not be flushed.
    """
    flush_file(file_system, path)


def _handler_of(file_system: fs.FileSystem) -> ArrowObject:
    handler = file_system.handler if isinstance(file_system, fs.PyFileSystem) else None
    return handler if hasattr(handler, "fsync") else None


def make_folder(file_system: fs.FileSystem, path: str) -> None:
    """Create a folder and those above it durably; raise ``OSError`` if that fails.

    One that could not be flushed is removed again, and one that is there although its creation failed.
    Otherwise the next attempt would find it, and take it for durable. One that is found empty may be that of
    a process that was killed before it flushed it.
    """
    for folder in reversed(_missing(file_system, path.rstrip("/"))):
        try:
            file_system.create_dir(folder, recursive=False)
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
        elif _is_empty(file_system, folder):
            file_system.delete_dir(folder)


def _missing(file_system: fs.FileSystem, path: str) -> list[str]:
    """Return which folders must be created, the lowest first; none if durability is not needed.

    If the one in which they will be is empty, its own name is flushed.
    """
    if not isinstance(file_system, fs.LocalFileSystem) and _handler_of(file_system) is None:
        return []
    missing = []
    while path and file_system.get_file_info(path).type == fs.FileType.NotFound:
        missing.append(path)
        path = posixpath.dirname(path)
    with suppress(PermissionError):  # of another user, who has made this folder
        if path and _is_empty(file_system, path):
            flush_folder(file_system, posixpath.dirname(path))
    return missing


def _is_empty(file_system: fs.FileSystem, folder: str) -> bool:
    """Return whether a folder is empty, without a look at all that is in it if it is on this host."""
    if not is_local(file_system):
        return not file_system.get_file_info(fs.FileSelector(folder))
    with os.scandir(folder) as entries:
        return next(entries, None) is None


#: What a file is called until it is whole.
_UNFINISHED = re.compile(r"\.(.+)\.inprogress\.[0-9a-f]{32}")


def name_of_unfinished(name: str) -> str | None:
    """Return the name that :func:`write_whole` would have given to a file, if it was killed meanwhile."""
    found = _UNFINISHED.fullmatch(name)
    return None if found is None else found[1]


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


#: The greatest file of notes that is read (JSON of runs, epochs, lists of files): far more than jobs write.
MOST_NOTE_BYTES = 1 << 26


class ForeignFileError(OSError):
    """There is something else where a folder or file of a job is expected: a link, a pipe, a huge file."""


def below(file_system: fs.FileSystem, root: str) -> fs.FileSystem:
    """Return a file system that follows no links below ``root`` if it is the local one; others have none."""
    if isinstance(file_system, fs.LocalFileSystem):
        return fs.PyFileSystem(OwnFolders(root.rstrip("/")))
    return file_system


def is_local(file_system: fs.FileSystem) -> bool:
    """Return whether a file system is the local one, or that of :func:`below`."""
    handler = file_system.handler if isinstance(file_system, fs.PyFileSystem) else None
    return isinstance(file_system, fs.LocalFileSystem) or isinstance(handler, OwnFolders)


def read_note(file_system: fs.FileSystem, path: str, most_bytes: int = MOST_NOTE_BYTES) -> bytes:
    """Return the content of a small file.

    Raises:
        ForeignFileError: it has more bytes than ``most_bytes``.
        OSError, pa.ArrowException: it cannot be read.
    """
    with file_system.open_input_file(path) as file:
        size = file.size()
        if size > most_bytes:
            raise ForeignFileError(f"{path} has {size} bytes, more than the {most_bytes} that are read")
        return bytes(file.read_at(size, 0)) if size else b""


@attrs.frozen
class OwnFolders(fs.FileSystemHandler):  # type: ignore[misc] # pyarrow has no types
    """The local file system, without links below ``root``."""

    root: str

    def get_type_name(self) -> str:
        """Return the name of the kind of file system."""
        return "local"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is."""
        return path

    @contextmanager
    def _above(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Open the folder above a path; yield the name in it, and its handle.

        The handle is None for the root and what is not below it: the name is the whole path then.
        """
        names = [name for name in path.removeprefix(self.root).split("/") if name]
        if not names or not path.startswith(f"{self.root}/"):
            yield path or "/", None
            return
        *folders, name = names
        if ".." in names:
            raise ForeignFileError(f"{path} leads out of {self.root}")
        handle = os.open(self.root or "/", os.O_PATH | os.O_DIRECTORY)
        try:
            for folder in folders:
                inner = _open(folder, os.O_PATH | os.O_DIRECTORY, handle, path)
                os.close(handle)
                handle = inner
            yield name, handle
        except OSError as error:
            if error.filename == name:
                error.filename = path
            elif error.filename2 == name:
                error.filename2 = path
            raise
        finally:
            os.close(handle)

    # --- what there is -----------------------------------------------------------------------------

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        """Return the file infos of some paths."""
        return [self._info(path) for path in paths]

    def _info(self, path: str) -> fs.FileInfo:
        try:
            with self._above(path) as (name, above):
                return _info_of(path, os.stat(name, dir_fd=above, follow_symlinks=above is None))
        except (FileNotFoundError, NotADirectoryError):
            return fs.FileInfo(path, fs.FileType.NotFound)

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return the contents of a folder, without names that are not UTF-8, as no job gives such names.

        Folders in it are listed too if the selector is recursive, but not what links lead to.
        """
        try:
            with self._above(selector.base_dir) as (name, above):
                handle = _open(name, os.O_RDONLY | os.O_DIRECTORY, above, selector.base_dir)
        except FileNotFoundError:
            if selector.allow_not_found:
                return []
            raise
        try:
            listed = [_info_in(selector.base_dir, name, handle) for name in os.listdir(handle)]
        finally:
            os.close(handle)
        found = [info for info in listed if info is not None]
        if selector.recursive:
            folders = [info.path for info in found if info.type == fs.FileType.Directory]
            inner = [fs.FileSelector(path, allow_not_found=True, recursive=True) for path in folders]
            found += [info for folder in inner for info in self.get_file_info_selector(folder)]
        return found

    # --- folders --------------------------------------------------------------------------------------

    def create_dir(self, path: str, recursive: bool) -> None:
        """Create a folder and, on request, those above it."""
        if recursive and self._info(posixpath.dirname(path) or "/").type == fs.FileType.NotFound:
            self.create_dir(posixpath.dirname(path), recursive)
        with self._above(path) as (name, above):
            try:
                os.mkdir(name, dir_fd=above)
            except FileExistsError:
                os.close(_open(name, os.O_PATH | os.O_DIRECTORY, above, path))

    def delete_dir(self, path: str) -> None:
        """Delete a folder with its content; of links, only the links."""
        with self._above(path) as (name, above):
            for _, folders, files, handle in os.fwalk(name, topdown=False, dir_fd=above):
                for file in files:
                    os.unlink(file, dir_fd=handle)
                for folder in folders:
                    _remove(folder, handle)
            os.rmdir(name, dir_fd=above)

    def remove_empty(self, path: str) -> None:
        """Delete a folder if it is empty; raise ``OSError`` if it is not."""
        with self._above(path) as (name, above):
            os.rmdir(name, dir_fd=above)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        """Delete the content of a folder."""
        for info in self.get_file_info_selector(fs.FileSelector(path, allow_not_found=missing_dir_ok)):
            is_folder = info.type == fs.FileType.Directory
            self.delete_dir(info.path) if is_folder else self.delete_file(info.path)

    def delete_root_dir_contents(self) -> None:
        """Refuse it."""
        raise NotImplementedError

    # --- files ----------------------------------------------------------------------------------------

    def delete_file(self, path: str) -> None:
        """Delete a file; of a link, the link."""
        with self._above(path) as (name, above):
            os.unlink(name, dir_fd=above)

    def move(self, src: str, dest: str) -> None:
        """Rename a file or folder."""
        with self._above(src) as (old, old_above), self._above(dest) as (new, new_above):
            os.rename(old, new, src_dir_fd=old_above, dst_dir_fd=new_above)

    def copy_file(self, src: str, dest: str) -> None:
        """Refuse it: on a local disk files are renamed."""
        raise NotImplementedError

    def open_input_stream(self, path: str) -> ArrowObject:
        """Open a regular file for reading."""
        return self._opened(path, os.O_RDONLY, "rb")

    def open_input_file(self, path: str) -> ArrowObject:
        """Open a regular file for reading at any place."""
        return self._opened(path, os.O_RDONLY, "rb")

    def open_output_stream(self, path: str, metadata: object) -> ArrowObject:
        """Open a file for writing, and create or truncate it."""
        return self._opened(path, os.O_WRONLY | os.O_CREAT, "wb")

    def open_append_stream(self, path: str, metadata: object) -> ArrowObject:
        """Open a file for writing at its end, and create it if there is none."""
        return self._opened(path, os.O_WRONLY | os.O_CREAT, "ab")

    def _opened(self, path: str, flags: int, mode: str) -> ArrowObject:
        """Open a regular file, and let Arrow open the same file once more by the number of its handle."""
        with self._above(path) as (name, above):
            handle = _open(name, flags | os.O_NONBLOCK, above, path)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise ForeignFileError(f"{path} is not a regular file")
            return pa.OSFile(f"/proc/self/fd/{handle}", mode)
        finally:
            os.close(handle)

    def fsync(self, path: str) -> None:
        """Wait until a file, or the names in a folder, are on the disk."""
        with self._above(path) as (name, above):
            handle = _open(name, os.O_RDONLY | os.O_NONBLOCK, above, path)
        try:
            fsync(handle)
        finally:
            os.close(handle)


def _open(name: str, flags: int, above: int | None, path: str) -> int:
    """Open a name in a folder; a link is not followed, unless the name is a whole path."""
    try:
        return os.open(name, flags if above is None else flags | os.O_NOFOLLOW, 0o666, dir_fd=above)
    except OSError as error:
        if above is not None and error.errno in (errno.ELOOP, errno.ENOTDIR) and _is_link(name, above):
            raise ForeignFileError(
                f"{path} is behind the symbolic link {name!r}: links are not followed there, as folders and "
                f"files of a job must be its own"
            ) from None
        if error.errno == errno.ENXIO:
            raise ForeignFileError(f"{path} is not a regular file") from None
        error.filename = path
        raise


def _is_link(name: str, above: int) -> bool:
    return stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


def _remove(name: str, above: int) -> None:
    """Delete an empty folder, or a link to a folder."""
    try:
        os.rmdir(name, dir_fd=above)
    except NotADirectoryError:
        os.unlink(name, dir_fd=above)


def _info_in(folder: str, name: str, handle: int) -> fs.FileInfo | None:
    """Return the kind of a name in a folder; None if it is gone, or not UTF-8."""
    try:
        name.encode()
        return _info_of(f"{folder}/{name}", os.stat(name, dir_fd=handle, follow_symlinks=False))
    except (FileNotFoundError, UnicodeEncodeError):
        return None


def _info_of(path: str, found: os.stat_result) -> fs.FileInfo:
    if stat.S_ISDIR(found.st_mode):
        return fs.FileInfo(path, fs.FileType.Directory, mtime_ns=found.st_mtime_ns)
    kind = fs.FileType.File if stat.S_ISREG(found.st_mode) else fs.FileType.Unknown
    return fs.FileInfo(path, kind, size=found.st_size, mtime_ns=found.st_mtime_ns)
