"""Python files, archives and packages that a program brings along, on their way to tasks and state slots.

Spark ships each of them as an archive, which it unpacks on every executor, in a folder whose name has a
digest of the content. A task puts the folders on the path before it unpickles what it is to do. A slot is
started by a task, with that task's path and working directory.

The tasks of a job that brings files run in Python workers of their own: Spark starts other workers for
another environment, and the job's has a variable with a digest of what it brings. So neither files nor
modules that were loaded from them are seen by other jobs, or by the program's own Spark jobs, also if they
run at once.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory

import attrs
from pyspark import SparkContext, SparkFiles

from pyflinkstate.api import Record, Reduced
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.engine import Task
from pyflinkstate.runtime.slots import NEEDED, put_on_path
from pyflinkstate.runtime.storage import AnyPath, path_text, temporary_folder
from pyflinkstate.runtime.wire import dumps_by_value, loads

#: The names that Flink takes for archives: all of them are zip files.
_ZIPPED = (".zip", ".jar", ".whl", ".egg")
#: Number of lines of pip's output in an error.
_LINES_OF_PIP = 8


@attrs.frozen
class WorkerPaths:
    """What a task needs of the archives that Spark has unpacked, by their folders' names.

    Attributes:
        importable: those that go on ``sys.path``, in order.
        archives: those that lie in the working directory of tasks, each with its name there.
    """

    importable: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()

    def environment(self) -> dict[str, str]:
        """Return the variables that a worker for these paths has; they are empty if there are no paths."""
        if self == WorkerPaths():
            return {}
        return {"PYFLINKSTATE_FILES": hashlib.sha256(repr(self).encode()).hexdigest()}

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the folders on this worker's path, and work where the archives lie until the block ends."""
        root = os.path.abspath(SparkFiles.getRootDirectory())
        put_on_path([os.path.join(root, name) for name in self.importable])
        before = os.getcwd()
        if self.archives:
            os.chdir(self._working_directory(root))
        try:
            yield
        finally:
            os.chdir(before)

    def _working_directory(self, root: str) -> str:
        """Return a folder with a link to each archive; tasks of one executor share it."""
        folder = os.path.join(
            root, f"working-{hashlib.sha256(repr(self.archives).encode()).hexdigest()[:16]}"
        )
        os.makedirs(folder, exist_ok=True)
        for unpacked, name in self.archives:
            with suppress(FileExistsError):
                os.symlink(os.path.join(root, unpacked), os.path.join(folder, name))
        return folder


@attrs.frozen
class PreparedTask:
    """A task that is unpickled when its path is as it shall be: what it holds may come from there.

    It is pickled when Spark pickles what holds it, so that Spark sees which broadcasts belong to it.
    """

    paths: WorkerPaths
    task: Task

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        raise AssertionError("it runs where it was sent")

    def __reduce__(self) -> Reduced:
        return _SentTask, (self.paths, dumps_by_value(self.task))


@attrs.frozen
class _SentTask:
    """A :class:`PreparedTask` where it was sent."""

    paths: WorkerPaths
    task: bytes

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        with self.paths.entered():
            yield from loads(self.task)(partition, items)


class PythonFiles:
    """Ships what an environment brings along, for its own jobs."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._paths = WorkerPaths()

    def prepared(self, task: Task) -> Task:
        """Return ``task``, or what runs it where the files are."""
        return task if self._paths == WorkerPaths() else PreparedTask(self._paths, task)

    def environment(self) -> dict[str, str]:
        """Return the variables that keep the Python workers of these files apart from all others."""
        return self._paths.environment()

    def add_file(self, path: AnyPath) -> None:
        """Put a module, a zip of modules, or a folder on the path.

        Raises:
            ConfigurationError: it is not there, or something else.
        """
        file = _existing("add_python_file", path)
        if file.is_dir() or file.suffix == ".py":
            self._add_importable(_zipped(file), file.name)
        elif file.suffix in _ZIPPED and zipfile.is_zipfile(file):
            self._add_importable(file, file.name)
        else:
            raise ConfigurationError(
                f"add_python_file(): {path} is no module (.py), no zip of modules ({', '.join(_ZIPPED)}) and "
                f"no folder"
            )

    def add_archive(self, path: AnyPath, target_dir: str | None) -> None:
        """Have an archive unpacked in the working directory of tasks and slots.

        Raises:
            ConfigurationError: it is not there, is no zip, or ``target_dir`` leads out of that directory.
        """
        file = _existing("add_python_archive", path)
        if file.suffix not in _ZIPPED or not zipfile.is_zipfile(file):
            raise ConfigurationError(
                f"add_python_archive(): {path} is no zip file ({', '.join(_ZIPPED)}), and others are not "
                f"taken, as in Flink"
            )
        target = target_dir or file.name
        if os.path.isabs(target) or ".." in Path(target).parts or len(Path(target).parts) != 1:
            raise ConfigurationError(f"add_python_archive(): target_dir is one folder's name, not {target!r}")
        others = [(folder, name) for folder, name in self._paths.archives if name != target]
        self._paths = attrs.evolve(self._paths, archives=(*others, (self._shipped(file, target), target)))

    def add_requirements(self, file_path: AnyPath, cache_dir: AnyPath | None) -> None:
        """Install packages with pip, here and now, and ship them.

        Raises:
            ConfigurationError: a path is not there, or pip fails.
        """
        requirements = _existing("set_python_requirements", file_path)
        offline: list[str] = []
        if cache_dir is not None:
            offline = ["--no-index", "--find-links", str(_existing("set_python_requirements", cache_dir))]
        with TemporaryDirectory() as target, NamedTemporaryFile("w", suffix=".txt") as constraints:
            constraints.write("".join(f"{name}=={installed}\n" for name, installed in _installed()))
            constraints.flush()
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
            command = [*pip, "--ignore-installed", "-r", str(requirements), "--target", target]
            command += ["--constraint", constraints.name, *offline]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                why = "\n".join(done.stderr.strip().splitlines()[-_LINES_OF_PIP:])
                needed = ", ".join(f"{name} {installed}" for name, installed in _installed())
                raise ConfigurationError(
                    f"set_python_requirements(): pip cannot install {file_path}: {why}\nrequirements can "
                    f"have no other version of what pyflinkstate itself needs, which here is {needed}"
                )
            self._add_importable(_zipped(Path(target)), "requirements")

    def _add_importable(self, archive: Path, name: str) -> None:
        """Ship a zip file and put it on the path, here as well, where results are unpickled."""
        unpacked = self._shipped(archive, name)
        others = [folder for folder in self._paths.importable if folder != unpacked]
        self._paths = attrs.evolve(self._paths, importable=(*others, unpacked))
        _put_on_own_path(SparkFiles.getRootDirectory(), unpacked)

    def _shipped(self, archive: Path, name: str) -> str:
        """Have Spark unpack an archive, and return the name of the folder: another one for other content."""
        target = f"{name}-{hashlib.sha256(archive.read_bytes()).hexdigest()[:16]}"
        copy = kept_folder() / f"{target}.zip"
        if not copy.exists():
            shutil.copy(archive, copy)
        self._context.addArchive(f"{copy}#{target}")
        return target


def _put_on_own_path(root: str, name: str) -> None:
    """Put a folder on the path of this program, after its own folders: those that came last are first."""
    brought = [folder for folder in sys.path if os.path.dirname(folder) == root]
    own = os.path.join(root, name)
    sys.path[:] = [folder for folder in sys.path if folder not in brought]
    sys.path += [own, *(folder for folder in brought if folder != own)]


def _installed() -> list[tuple[str, str]]:
    """Return the packages that this package needs with their versions in this process."""
    return [(name, version(name)) for name in NEEDED]


def _zipped(path: Path) -> Path:
    """Return a zip file of a folder, or of one module: always the same for the same content."""
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    root = path.parent if path.is_file() else path
    target = kept_folder() / f"{len(os.listdir(kept_folder()))}.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            if "__pycache__" not in file.parts:
                entry = zipfile.ZipInfo(file.relative_to(root).as_posix())
                entry.external_attr = file.stat().st_mode << 16
                archive.writestr(entry, file.read_bytes(), zipfile.ZIP_DEFLATED)
    return target


@cache
def kept_folder() -> Path:
    """Return a folder that lasts as long as the program: Spark sends its files to later executors too."""
    return temporary_folder(PythonFiles, "pyflinkstate-files-")


def _existing(method: str, path: AnyPath) -> Path:
    file = Path(path_text(path)).expanduser().absolute()
    if not file.exists():
        raise ConfigurationError(f"{method}(): there is no {path}")
    return file
