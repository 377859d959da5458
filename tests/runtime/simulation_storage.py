"""The storage of the failure simulation: a file system in memory that fails, tears and kills on demand.

Production code sees it through pyarrow as any other file system, with the manners of a local one. Each
operation is done by the process that runs at the moment; what becomes of it is decided before it begins.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pyarrow as pa
from pyarrow import fs


class Process:
    """Something that runs on its own, and can be killed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.dead = False
        #: The driver has given it up; it goes on until it notices.
        self.cut_off = False

    def kill(self) -> None:
        """End it at once."""
        self.dead = True

    def check(self) -> None:
        """Raise ``Killed`` if the process is dead: whatever it tries from then on does not happen."""
        if self.dead:
            raise Killed(self)

    def __repr__(self) -> str:
        return self.name


class Killed(BaseException):
    """The process that runs has been killed, as by ``kill -9``: nothing it still does has an effect."""

    def __init__(self, process: Process) -> None:
        super().__init__(process.name)
        self.process = process


@attrs.frozen
class Verdict:
    """How an operation goes: how much of it happens, and what its caller then gets to see."""

    part: float = 1.0
    error: BaseException | None = None


FINE = Verdict()


@attrs.frozen
class Operation:
    """One operation, by whom it is done, and to what."""

    process: Process
    name: str
    path: str
    target: str = ""


class Disk:
    """All files and folders.

    ``decide`` is asked before each operation; ``observe`` is told of it once it has happened.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.files: dict[str, bytearray] = {}
        self.folders: set[str] = {""}
        #: Who made a file, and whether it was given up by then.
        self.makers: dict[str, tuple[Process, bool]] = {}
        self.decide: Callable[[Operation], Verdict] = lambda operation: FINE
        self.observe: Callable[[Operation], None] = lambda operation: None
        self.file_system = fs.PyFileSystem(_Handler(self))

    @contextmanager
    def used_by(self, process: Process) -> Iterator[None]:
        """Let ``process`` run for the time of the block."""
        before, self.process = self.process, process
        try:
            yield
        finally:
            self.process = before

    def do(self, name: str, path: str, effect: Callable[[float], Any], target: str = "") -> Any:
        """Do as much of an operation as is decided. ``effect`` is given that part, more than 0."""
        operation = Operation(self.process, name, path, target)
        operation.process.check()
        verdict = self.decide(operation)
        result = None
        if verdict.part:
            result = effect(verdict.part)
            if verdict.part == 1:
                self.observe(operation)
        if verdict.error is not None:
            raise verdict.error
        return result

    # --- what is there -----------------------------------------------------------------------------

    def below(self, folder: str) -> list[str]:
        """Return the paths of all files below a folder, in order."""
        return sorted(path for path in self.files if path.startswith(f"{folder}/"))

    def read(self, path: str) -> bytes:
        """Return a file's bytes."""
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(self.files[path])

    def info(self, path: str) -> fs.FileInfo:
        """Return what pyarrow wants to know of a path."""
        path = path.rstrip("/")
        if path in self.files:
            return fs.FileInfo(path, fs.FileType.File, size=len(self.files[path]))
        return fs.FileInfo(path, fs.FileType.Directory if path in self.folders else fs.FileType.NotFound)

    def list(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        """Return what lies in a folder."""
        folder = selector.base_dir.rstrip("/")
        if folder not in self.folders:
            if selector.allow_not_found:
                return []
            raise FileNotFoundError(2, "no such folder", folder)
        return [self.info(path) for path in sorted((*self.files, *self.folders)) if _is_in(path, folder)]

    # --- changes -----------------------------------------------------------------------------------

    def make_folder(self, path: str, recursive: bool) -> None:
        """Make a folder, and with ``recursive`` those above it."""
        path = path.rstrip("/")
        if path in self.files:
            raise NotADirectoryError(20, "a file is in the way", path)
        if not recursive:
            self._check_parent(path)
        while path:
            self.folders.add(path)
            path = path.rpartition("/")[0]

    def make_file(self, path: str) -> bytearray:
        """Make an empty file, or empty the one that is there."""
        self._check_parent(path)
        self.makers[path] = (self.process, self.process.cut_off)
        self.files[path] = bytearray()
        return self.files[path]

    def delete_file(self, path: str) -> None:
        """Delete a file."""
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        del self.files[path]

    def delete_folder(self, folder: str, part: float) -> None:
        """Delete a folder with all that is in it, or some of its files if it is interrupted."""
        folder = folder.rstrip("/")
        if folder not in self.folders:
            raise FileNotFoundError(2, "no such folder", folder)
        files = self.below(folder)
        for path in files[: int(len(files) * part)]:
            del self.files[path]
        if part == 1:
            inside = f"{folder}/"
            self.folders = {path for path in self.folders if path != folder and not path.startswith(inside)}

    def move(self, source: str, target: str) -> None:
        """Rename a file or a folder, as POSIX does it."""
        self._check_parent(target)
        if source in self.files:
            if target in self.folders:
                raise IsADirectoryError(21, "a folder is in the way", target)
            self.files[target] = self.files.pop(source)
            self.makers[target] = self.makers[source]
            return
        if source not in self.folders:
            raise FileNotFoundError(2, "no such file or folder", source)
        if target in self.files or any(_is_in(path, target) for path in (*self.files, *self.folders)):
            raise OSError(39, "it is not empty", target)
        for path in self.below(source):
            moved = target + path[len(source) :]
            self.files[moved] = self.files.pop(path)
            self.makers[moved] = self.makers[path]
        inside = f"{source}/"
        self.folders = {
            target + path[len(source) :] if path == source or path.startswith(inside) else path
            for path in self.folders
        }

    def _check_parent(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self.folders:
            raise FileNotFoundError(2, "no such folder", folder)


def _is_in(path: str, folder: str) -> bool:
    return path.rpartition("/")[0] == folder and path != ""


class _OpenFile:
    """A file that is being written: what is written is there at once, and stays if the writer dies."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._content = disk.make_file(path)
        self.closed = False

    def write(self, data: Any) -> int:
        content = bytes(data)

        def append(part: float) -> None:
            self._content.extend(content[: int(len(content) * part)])

        self._disk.do("write", self._path, append)
        return len(content)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._disk.do("close", self._path, lambda part: None)

    def tell(self) -> int:
        return len(self._content)

    def flush(self) -> None:
        return

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False


class _Handler(fs.FileSystemHandler):
    """What pyarrow calls."""

    def __init__(self, disk: Disk) -> None:
        # The garbage collector does not see that pyarrow holds this, so it would never find the circle.
        self._disk: Disk = weakref.proxy(disk)

    def get_type_name(self) -> str:
        return "simulation"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[fs.FileInfo]:
        return [self._disk.do("look", path, lambda part, path=path: self._disk.info(path)) for path in paths]

    def get_file_info_selector(self, selector: fs.FileSelector) -> list[fs.FileInfo]:
        found: list[fs.FileInfo] = self._disk.do(
            "list", selector.base_dir, lambda part: self._disk.list(selector)
        )
        return found

    def create_dir(self, path: str, recursive: bool) -> None:
        self._disk.do("create folder", path, lambda part: self._disk.make_folder(path, recursive))

    def delete_dir(self, path: str) -> None:
        self._disk.do("delete folder", path, lambda part: self._disk.delete_folder(path, part))

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        raise NotImplementedError

    def delete_root_dir_contents(self) -> None:
        raise NotImplementedError

    def delete_file(self, path: str) -> None:
        self._disk.do("delete", path, lambda part: self._disk.delete_file(path))

    def move(self, src: str, dest: str) -> None:
        self._disk.do("move", src, lambda part: self._disk.move(src, dest), dest)

    def copy_file(self, src: str, dest: str) -> None:
        raise NotImplementedError

    def open_output_stream(self, path: str, metadata: Any) -> pa.PythonFile:
        opened = self._disk.do("open", path, lambda part: _OpenFile(self._disk, path))
        return pa.PythonFile(opened, mode="w")

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> pa.NativeFile:
        # Not a BufferReader: that one raises where a file of the system gives fewer bytes.
        content = io.BytesIO(self._disk.do("read", path, lambda part: self._disk.read(path)))
        return pa.PythonFile(content, mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.open_input_stream(path)
