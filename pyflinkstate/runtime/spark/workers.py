"""What Spark's Python workers have: their Python, this package, and what a program brings along.

A program brings Python files, archives and packages, which go to tasks and state slots.
"""

from __future__ import annotations

import hashlib
import importlib.util
import marshal
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

import attrs
from pyspark import SparkContext, SparkFiles
from pyspark.sql import SparkSession

from pyflinkstate.api import Record, Reduced
from pyflinkstate.errors import ConfigurationError, PackageMismatchError, UnsupportedSessionError
from pyflinkstate.runtime.engine import Task
from pyflinkstate.runtime.slots import NEEDED, put_on_path
from pyflinkstate.runtime.spark.sessions import context_of, kept_folder
from pyflinkstate.runtime.storage import AnyPath, path_text
from pyflinkstate.runtime.wire import dumps_by_value, loads
from pyflinkstate.version import VERSION

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


#: Asked of the other Python: its version, and whether it finds this package and what a task needs.
_QUESTION = (
    "import sys; print('%d.%d' % sys.version_info[:2])\n"
    "import pyflinkstate, attrs, cloudpickle, numpy, pyarrow"
)
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
#: What the problem begins with where the workers have the package, but not this one.
_OTHER_VERSION = "has pyflinkstate "
_TIMEOUT_S = 60
#: What PySpark starts where no Python was chosen.
_DEFAULT = "python3"
#: The Pythons that were asked and suit, with where they find packages. One that does not may be mended.
_suitable: set[tuple[str, str]] = set()


def check_workers(context: SparkContext) -> None:
    """Ask the Python of the workers, if they run on this machine and it is not the program's.

    If nobody has chosen one, the session's workers get the program's.

    Raises:
        UnsupportedSessionError: it is of another version, lacks the package, or is not there.
    """
    python = str(context.pythonExec)
    if not str(context.master).startswith("local") or _is_own(python) or _is_shipped(context):
        return
    if python == _DEFAULT and "PYSPARK_PYTHON" not in os.environ and sys.executable:
        context.pythonExec = sys.executable
        return
    own_path = context.getConf().get("spark.executorEnv.PYTHONPATH", "")
    python_path = os.pathsep.join(filter(None, [own_path, os.environ.get("PYTHONPATH", "")]))
    if (python, python_path) in _suitable:
        return
    problem = _asked(python, python_path)
    if problem:
        raise unsuitable(python, problem)
    _suitable.add((python, python_path))


def unsuitable(python: str, problem: str) -> UnsupportedSessionError:
    """Return the error that says what is wrong with the workers' Python, and what to do."""
    if problem.startswith(_OTHER_VERSION):
        return PackageMismatchError(
            f"Spark's workers run another pyflinkstate than this program: {python!r} {problem}; this is "
            f"{VERSION}. Install the same version on driver and executors.",
            python=python,
        )
    return UnsupportedSessionError(
        f"Spark's workers run another Python than this program: {python!r} {problem}; this is {_VERSION}.\n"
        f'Before the session is made, set os.environ["PYSPARK_PYTHON"] = sys.executable;\n'
        f"on a cluster set spark.pyspark.python to a Python {_VERSION} with pyflinkstate on every host,\n"
        f"or bring the package there with pyflinkstate.ship(session).",
        python=python,
    )


def _is_own(python: str) -> bool:
    """Return whether this is the program's Python, or another name for it in the same folder.

    The folder counts: Pythons of several virtual environments are links to one file.
    """
    found, own = shutil.which(python), Path(sys.executable)
    if found is None:
        return False
    return Path(found).parent == own.parent and Path(found).resolve() == own.resolve()


def _is_shipped(context: SparkContext) -> bool:
    """Return whether the session sends packages to its workers, which may well be these."""
    conf = context.getConf()
    return bool(context._python_includes) or any(
        conf.get(name) for name in ("spark.submit.pyFiles", "spark.archives", "spark.yarn.dist.archives")
    )


def _asked(python: str, python_path: str) -> str:
    try:
        done = subprocess.run(
            [python, "-c", _QUESTION],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
            env={**os.environ, "PYTHONPATH": python_path},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"cannot be started ({error})"
    version = done.stdout.strip()
    if version and version != _VERSION:
        return f"is Python {version}"
    if done.returncode == 0:
        return ""
    return problem_in(done.stderr) or f"fails: {(done.stderr.strip().splitlines() or ['no word'])[-1]}"


def problem_in(trace: str) -> str:
    """Return what a trace says is wrong with the Python of the workers; empty where that is not what failed.

    >>> problem_in("ModuleNotFoundError: No module named 'pyflinkstate'")
    "has no module 'pyflinkstate'"
    >>> problem_in("ModuleNotFoundError: No module named 'my_own'")
    ''
    """
    version = re.search(r"Python in worker has different version: (\S+?) than that in driver", trace)
    if version is not None:
        return f"is Python {version[1]}"
    other = re.search(r"this worker has pyflinkstate (\S+), and the program has", trace)
    if other is not None:
        return f"{_OTHER_VERSION}{other[1]}"
    missing = re.search(
        r"No module named '(pyflinkstate(?:\.[\w.]+)?|attrs?|cloudpickle|numpy|pyarrow)'", trace
    )
    if missing is not None:
        return f"has no module {missing[1]!r}"
    absent = re.search(r'Cannot run program "([^"]+)"', trace)
    return "is not there" if absent is not None else ""


# --- the package of workers -------------------------------------------------------------------------

_PACKAGE = "pyflinkstate"
#: Parts of the package that are not shipped: compiled code and bytecode of other Pythons.
_LEFT_OUT = (".so", ".pyd", ".pyc", ".c")
#: Flags of byte code that is identified by a digest of its source, which nobody compares.
_UNCHECKED = 1
#: So many questions for each core that Spark knows of: it is Spark that chooses where they run.
_QUESTIONS_PER_CORE = 2
_LOWEST_DATE = (1980, 1, 1, 0, 0, 0)


def ship(spark: SparkSession) -> bool:
    """Bring this package to the executors of a session, if they lack it.

    Executors that start later get it as well. It runs interpreted there, which is slower: install it
    on the executors for more than a trial. What the package needs (attrs, cloudpickle, numpy, pyarrow) is
    not shipped.

    Args:
        spark: a classic session. Call this before the first job on it.

    Returns:
        Whether it was shipped; False if the executors have it already.

    Raises:
        PackageMismatchError: an executor has another version of it, or lacks what it needs.
        UnsupportedSessionError: it is a Spark Connect session, or the executors run another Python.
    """
    context = context_of(spark)
    if not [report for report in _reports(context) if not report.version]:
        return False
    context.addPyFile(str(zipped(kept_folder())))
    lacking = [report for report in _reports(context) if not report.version]
    if lacking:
        raise _mismatch(lacking, "do not see the package that was shipped to them")
    return True


class WorkerReport(NamedTuple):
    """The Python and the packages of one worker.

    Attributes:
        host: the name of its host.
        python: the path of its Python.
        version: the version of this package there; empty if it has none.
        place: the folder or the zip file that it would be imported from.
        missing: what this package needs and the worker lacks.
    """

    host: str
    python: str
    version: str
    place: str
    missing: tuple[str, ...]


def _reports(context: SparkContext) -> list[WorkerReport]:
    """Return what workers have.

    Raises:
        PackageMismatchError: there are some that cannot run this package.
    """
    count = _QUESTIONS_PER_CORE * context.defaultParallelism
    try:
        asked = context.parallelize(range(count), count).mapPartitionsWithIndex(_question())
        reports = sorted({WorkerReport(*fields) for fields in asked.collect()})
    except Exception as error:
        problem = problem_in(str(error))
        if problem:
            raise unsuitable(str(context.pythonExec), problem) from None
        raise
    _check(reports)
    return reports


def _question() -> Callable[[int, Iterable[int]], Iterator[tuple[Any, ...]]]:
    """Return a function that yields the fields of the :class:`WorkerReport` of the worker that it runs in.

    The worker may lack this package. So the function is pickled by value, as it has no name in a module, and
    refers to nothing but Python itself.
    """

    def reported(_partition: int, _items: Iterable[int]) -> Iterator[tuple[object, ...]]:
        import importlib
        import importlib.util
        import os
        import socket
        import sys

        importlib.invalidate_caches()  # a package may have come since the last time
        missing = tuple(
            name
            for name in ("attrs", "cloudpickle", "numpy", "pyarrow")
            if importlib.util.find_spec(name) is None
        )
        version = place = ""
        if importlib.util.find_spec("pyflinkstate") is not None:
            package = importlib.import_module("pyflinkstate")
            place = os.path.dirname(os.path.dirname(str(package.__file__)))
            version = str(package.__version__)
        yield socket.gethostname(), sys.executable, version, place, missing

    return reported


def _check(reports: Iterable[WorkerReport]) -> None:
    for report in reports:
        if report.missing:
            names = ", ".join(report.missing)
            raise _mismatch([report], f"lack {names}, which pyflinkstate needs: install it there")
        if report.version not in ("", VERSION):
            what = f"have pyflinkstate {report.version} in {report.place}, and this program has {VERSION}"
            raise _mismatch([report], f"{what}: install the same version there, or none")


def _mismatch(reports: list[WorkerReport], what: str) -> PackageMismatchError:
    first = reports[0]
    hosts = ", ".join(sorted({report.host for report in reports}))
    return PackageMismatchError(
        f"Spark's workers on {hosts} ({first.python}) {what}",
        hosts=[report.host for report in reports],
        missing=list(first.missing),
        version=first.version,
    )


# --- the zip file -----------------------------------------------------------------------------------------


def zipped(folder: Path) -> Path:
    """Write the zip file of this package, and return where it is."""
    target = folder / f"{_PACKAGE}-{VERSION}-pure.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in _content(files(_PACKAGE), _PACKAGE):
            archive.writestr(zipfile.ZipInfo(name, _LOWEST_DATE), data, zipfile.ZIP_DEFLATED)
    return target


def _content(folder: Traversable, name: str) -> Iterator[tuple[str, bytes]]:
    """Yield what is in a folder of the package, with its name in the zip file."""
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        inner = f"{name}/{entry.name}"
        if entry.is_dir():
            yield from () if entry.name == "__pycache__" else _content(entry, inner)
        elif not inner.endswith(_LEFT_OUT):
            data = entry.read_bytes()
            yield inner, data
            if inner.endswith(".py"):
                yield f"{inner}c", _byte_code(inner, data)


def _byte_code(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    return (
        (importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little"))
        + importlib.util.source_hash(source)
        + marshal.dumps(code)
    )


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


@attrs.define(eq=False)
class PythonFiles:
    """Ships what an environment brings along, for its own jobs."""

    _context: SparkContext
    _paths: WorkerPaths = attrs.field(init=False, factory=WorkerPaths)

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


def _existing(method: str, path: AnyPath) -> Path:
    file = Path(path_text(path)).expanduser().absolute()
    if not file.exists():
        raise ConfigurationError(f"{method}(): there is no {path}")
    return file
