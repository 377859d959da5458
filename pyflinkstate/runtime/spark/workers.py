"""What Spark's Python workers have: the Python that runs them, and this package.

PySpark starts ``PYSPARK_PYTHON``, and ``python3`` where that is not set, which in a virtual environment that
is not activated is the system's. On one machine the session is then given the program's Python. Where another
one was chosen, each task would fail with a trace of the JVM. On one machine that Python is asked before
anything runs; on a cluster the trace is read.

:func:`ship` brings this package to executors that lack it. What is shipped is made of the package that runs
here, so it takes no network: a zip of its sources, without what is compiled, with which Spark's workers and
state slots run interpreted. The sources' byte code lies beside them, as no Python writes any for a zip file:
otherwise each process would compile the package again.
"""

from __future__ import annotations

import importlib.util
import marshal
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark import SparkContext
from pyspark.sql import SparkSession

from pyflinkstate.errors import PackageMismatchError, UnsupportedSessionError
from pyflinkstate.runtime.spark.python_files import kept_folder
from pyflinkstate.runtime.spark.sessions import context_of
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
            yield from _file(inner, entry.read_bytes())


def _file(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if name.endswith(".py"):
        yield f"{name}c", _byte_code(name, data)


def _byte_code(name: str, source: bytes) -> bytes:
    code = compile(source, name, "exec", dont_inherit=True)
    return (
        (importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little"))
        + importlib.util.source_hash(source)
        + marshal.dumps(code)
    )
