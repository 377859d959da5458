"""Python files, archives and packages that a program brings along, on their way to tasks and state slots.

Spark ships files: a module or a zip of modules with ``addPyFile``, which puts it on the path of every Python
worker before it loads anything; all else as an archive, which Spark unpacks on every executor. What of the
archives is to be on the path, a task puts there itself, before it unpickles what it is to do. A slot is
started by a task, with that task's path and working directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
from pyspark import SparkContext, SparkFiles

from pyflinkstate.api.values import Record, Reduced
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.engine import Task
from pyflinkstate.runtime.storage import AnyPath, path_text, temporary_folder
from pyflinkstate.runtime.wire import dumps_by_value, loads

#: What ``addPyFile`` puts on the path as it is.
_IMPORTABLE = (".py", ".zip", ".egg", ".jar")
#: What Flink takes for an archive: all of them are zip files.
_ZIPPED = (".zip", ".jar", ".whl", ".egg")


@attrs.frozen
class WorkerPaths:
    """What a task needs of the archives that Spark has unpacked, by their folders' names.

    Attributes:
        importable: those that go on ``sys.path``, in order.
        is_working_directory: tasks run where the archives lie, so that their files have relative paths.
    """

    importable: tuple[str, ...] = ()
    is_working_directory: bool = False

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Put the folders on the path, for good, and work where they lie until the block ends."""
        root = os.path.abspath(SparkFiles.getRootDirectory())
        for name in reversed(self.importable):
            folder = os.path.join(root, name)
            if folder not in sys.path:
                sys.path.insert(0, folder)
        before = os.getcwd()
        if self.is_working_directory:
            os.chdir(root)
        try:
            yield
        finally:
            os.chdir(before)


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
    """Ships what a program brings along; from then on it is there for all jobs of the Spark application."""

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._paths = WorkerPaths()

    def prepared(self, task: Task) -> Task:
        """Return ``task``, or what runs it where the files are."""
        if self._paths == WorkerPaths():
            return task
        return PreparedTask(self._paths, task)

    def add_file(self, path: AnyPath) -> None:
        """Put a module, a zip of modules, or a folder on the path.

        Raises:
            ConfigurationError: it is not there, or something else.
        """
        file = _existing("add_python_file", path)
        if file.is_dir():
            self._add_importable(file)
        elif file.suffix in _IMPORTABLE:
            self._context.addPyFile(str(file))
        elif file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel, TemporaryDirectory() as unpacked:
                wheel.extractall(unpacked)
                self._add_importable(Path(unpacked), name=file.name)
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
        self._ship(file, target)
        self._paths = attrs.evolve(self._paths, is_working_directory=True)

    def add_requirements(self, file_path: AnyPath, cache_dir: AnyPath | None) -> None:
        """Install packages with pip, here and now, and ship them.

        Raises:
            ConfigurationError: a path is not there, or pip fails.
        """
        requirements = _existing("set_python_requirements", file_path)
        offline: list[str] = []
        if cache_dir is not None:
            cache = _existing("set_python_requirements", cache_dir)
            offline = ["--no-index", "--find-links", str(cache)]
        with TemporaryDirectory() as target:
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
            command = [*pip, "--ignore-installed", "-r", str(requirements), "--target", target, *offline]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                why = "\n".join(done.stderr.strip().splitlines()[-3:])
                raise ConfigurationError(f"set_python_requirements(): pip cannot install {file_path}: {why}")
            self._add_importable(Path(target), name="requirements")

    def _add_importable(self, folder: Path, name: str | None = None) -> None:
        """Ship a folder and put it on the path, here as well, where results are unpickled."""
        archive = self._zipped(folder)
        unpacked = f"{name or folder.name}-{_digest(archive)}"
        self._ship(archive, unpacked)
        self._paths = attrs.evolve(self._paths, importable=(*self._paths.importable, unpacked))
        own = os.path.join(SparkFiles.getRootDirectory(), unpacked)
        if own not in sys.path:
            sys.path.append(own)

    def _zipped(self, folder: Path) -> Path:
        kept = kept_folder()
        return Path(shutil.make_archive(str(kept / f"{len(os.listdir(kept))}"), "zip", folder))

    def _ship(self, archive: Path, target: str) -> None:
        """Have Spark unpack an archive: by another name than any that it has shipped."""
        copy = kept_folder() / f"{_digest(archive)}-{target}.zip"
        if not copy.exists():
            shutil.copy(archive, copy)
        self._context.addArchive(f"{copy}#{target}")


@cache
def kept_folder() -> Path:
    """Return a folder that lasts as long as the program: Spark sends its files to later executors too."""
    return temporary_folder(PythonFiles, "pyflinkstate-files-")


def _existing(method: str, path: AnyPath) -> Path:
    file = Path(path_text(path)).expanduser().absolute()
    if not file.exists():
        raise ConfigurationError(f"{method}(): there is no {path}")
    return file


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
