"""Whether Spark's Python workers can run what this program sends them; a session says which Python they are.

PySpark starts ``PYSPARK_PYTHON``, and ``python3`` where that is not set, which in a virtual environment that
is not activated is the system's. On one machine the session is then given the program's Python. Where another
one was chosen, each task would fail with a trace of the JVM. On one machine that Python is asked before
anything runs; on a cluster the trace is read.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark import SparkContext

from pyflinkstate.errors import PackageMismatchError, UnsupportedSessionError
from pyflinkstate.version import VERSION

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
    names = ("spark.submit.pyFiles", "spark.archives", "spark.yarn.dist.archives")
    return bool(context._python_includes) or any(conf.get(name) for name in names)


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
