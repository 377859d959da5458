"""The storage of the failure simulation: a file system in memory that fails, tears and kills on demand.

Production code sees it through pyarrow as any other file system, with the manners of a local one. Each
operation is done by the process that runs at the moment; what becomes of it is decided before it begins.

A power cut loses what was not flushed (``fsync``). Of a file those bytes are certain that were there when it
was flushed, of a folder the names. Everything since may have reached the disk or not, in any order, with one
exception: a rename is done or not, so a renamed file whose old name was certain is under one of both names.
"""

from __future__ import annotations

import io
import random
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


class File(bytearray):
    """The bytes of a file; ``flushed`` are those that it had when it was flushed last."""

    flushed: bytes | None = None


class Folder:
    """A folder; ``flushed`` are the names that it had when it was flushed last, and what they stood for."""

    def __init__(self) -> None:
        self.flushed: dict[str, File | Folder] = {}


class Disk:
    """All files and folders.

    ``decide`` is asked before each operation; ``observe`` is told of it once it has happened.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self.files: dict[str, File] = {}
        self.folders: dict[str, Folder] = {"": Folder()}
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
            self.folders.setdefault(path, Folder())
            path = path.rpartition("/")[0]

    def make_file(self, path: str) -> File:
        """Make an empty file, or empty the one that is there."""
        self._check_parent(path)
        self.makers[path] = (self.process, self.process.cut_off)
        # The bytes of one that is there are gone at once; that they are is certain when it has been flushed.
        content = self.files.setdefault(path, File())
        content.clear()
        return content

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
            self.folders = {
                path: found
                for path, found in self.folders.items()
                if path != folder and not path.startswith(inside)
            }

    def move(self, source: str, target: str) -> None:
        """Rename a file or a folder, as POSIX does it."""
        self._check_parent(target)
        if source in self.files:
            if target in self.folders:
                raise IsADirectoryError(21, "a folder is in the way", target)
            self.files[target] = self.files.pop(source)
            self.makers[target] = self.makers.get(source, (self.process, True))
            return
        if source not in self.folders:
            raise FileNotFoundError(2, "no such file or folder", source)
        if target in self.files or any(_is_in(path, target) for path in (*self.files, *self.folders)):
            raise OSError(39, "it is not empty", target)
        for path in self.below(source):
            moved = target + path[len(source) :]
            self.files[moved] = self.files.pop(path)
            self.makers[moved] = self.makers.get(path, (self.process, True))
        inside = f"{source}/"
        self.folders = {
            target + path[len(source) :] if path == source or path.startswith(inside) else path: found
            for path, found in self.folders.items()
        }

    # --- what is certain ---------------------------------------------------------------------------

    def flush(self, path: str) -> None:
        """Make certain the bytes of a file, or the names in a folder."""
        path = path.rstrip("/")
        if path in self.files:
            self.files[path].flushed = bytes(self.files[path])
        elif path in self.folders:
            self._flush_folder(path, self.folders[path])
        else:
            raise FileNotFoundError(2, "no such file or folder", path)

    def _flush_folder(self, path: str, folder: Folder) -> None:
        before, folder.flushed = folder.flushed, {}
        gone = {id(found) for found in before.values()}
        for other, found in self.everything().items():
            parent, _, name = other.rpartition("/")
            # What was renamed from here to elsewhere is certain to be there, as a rename is one step.
            if _is_in(other, path) or (id(found) in gone and other):
                self.folders[parent].flushed[name] = found

    def everything(self) -> dict[str, File | Folder]:
        """Return all files and folders by path."""
        return {**self.files, **self.folders}

    def power_cut(self, rng: random.Random) -> set[str]:
        """The host goes down and comes up again: what is not certain is there or not, as ``rng`` has it.

        All processes must be dead. Returns the paths of what was gone before and is there again.
        """
        before = self.everything().keys()
        self.files, self.folders = _Outcome(self, rng).files_and_folders()
        for path in self.files:  # it may be where it was before it was renamed
            self.makers.setdefault(path, (self.process, True))
        return self.everything().keys() - before

    def _check_parent(self, path: str) -> None:
        folder = path.rpartition("/")[0]
        if folder not in self.folders:
            raise FileNotFoundError(2, "no such folder", folder)


#: A folder, and a name in it.
Place = tuple[Folder, str]


class _Outcome:
    """Where everything is after a power cut.

    ``_certain`` are places as they were flushed, ``_latest`` as they were before the cut. What differs is a
    file or folder that was made, deleted or renamed since: it is where it was, or where it came to be.
    """

    def __init__(self, disk: Disk, rng: random.Random) -> None:
        self._rng = rng
        self._root = disk.folders[""]
        self._latest = {
            id(found): (disk.folders[path.rpartition("/")[0]], path.rpartition("/")[2])
            for path, found in disk.everything().items()
            if path
        }
        self._certain: dict[int, Place] = {}
        self._objects: dict[int, File | Folder] = {id(found): found for found in disk.everything().values()}
        self._find_certain(self._root)
        self._places = {number: self._draw(number) for number in self._objects}
        while clashes := self._clashes():
            for number in clashes:
                self._places[number] = self._latest.get(number)

    def _find_certain(self, folder: Folder) -> None:
        for name, found in folder.flushed.items():
            is_new = id(found) not in self._certain
            self._objects[id(found)] = found
            if is_new or self._latest.get(id(found)) == (folder, name):
                self._certain[id(found)] = (folder, name)
            if is_new and isinstance(found, Folder):
                self._find_certain(found)

    def _draw(self, number: int) -> Place | None:
        certain, latest = self._certain.get(number), self._latest.get(number)
        if certain is not None and latest is None and certain in self._latest.values():
            return certain  # something was renamed onto it: there is the one or the other
        return self._rng.choice([certain, latest])

    def _clashes(self) -> list[int]:
        """Return what still is where by now something else has come to be."""
        owners: dict[tuple[int, str], list[int]] = {}
        for number, place in self._places.items():
            if place is not None:
                owners.setdefault((id(place[0]), place[1]), []).append(number)
        return [
            number
            for place, numbers in owners.items()
            if len(numbers) > 1
            for number in numbers
            if self._latest.get(number) != self._places[number]
        ]

    def files_and_folders(self) -> tuple[dict[str, File], dict[str, Folder]]:
        """Return all that can be reached, by path; from now on it is certain."""
        inside: dict[int, dict[str, File | Folder]] = {}
        for number, place in self._places.items():
            if place is not None:
                inside.setdefault(id(place[0]), {})[place[1]] = self._objects[number]
        files: dict[str, File] = {}
        folders = {"": self._root}
        waiting = [("", self._root)]
        while waiting:
            path, folder = waiting.pop()
            folder.flushed = {}
            for name, found in sorted(inside.get(id(folder), {}).items(), key=lambda item: item[0]):
                below = f"{path}/{name}"
                if isinstance(found, Folder):
                    folders[below] = found
                    waiting.append((below, found))
                else:
                    found = files[below] = self._survived(found)
                folder.flushed[name] = found
        return files, folders

    def _survived(self, file: File) -> File:
        certain, latest = file.flushed or b"", bytes(file)
        at_least = len(certain) if latest.startswith(certain) else 0
        torn = latest[: self._rng.randint(at_least, len(latest))]
        survived = File(self._rng.choice([certain, latest, torn]))
        survived.flushed = bytes(survived)
        return survived


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

    def fsync(self, path: str) -> None:
        """What ``runtime.durable`` calls."""
        self._disk.do("flush", path, lambda part: self._disk.flush(path))

    def open_append_stream(self, path: str, metadata: Any) -> pa.NativeFile:
        raise NotImplementedError

    def open_input_stream(self, path: str) -> pa.NativeFile:
        # Not a BufferReader: that one raises where a file of the system gives fewer bytes.
        content = io.BytesIO(self._disk.do("read", path, lambda part: self._disk.read(path)))
        return pa.PythonFile(content, mode="r")

    def open_input_file(self, path: str) -> pa.NativeFile:
        return self.open_input_stream(path)
