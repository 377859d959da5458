"""Which sessions a job runs on, and the Python workers: those that lack the package get it."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from other_pythons import (
    bare_python,
    clean_environment,
    packages_of,
    python_without_this_package,
    run_program,
)

import pyflinkstate
from pyflinkstate import StreamExecutionEnvironment
from pyflinkstate.errors import PackageMismatchError
from pyflinkstate.runtime.spark import worker_tasks, workers

pytestmark = pytest.mark.spark

CONNECT = """
from pyspark.sql import SparkSession
from pyflinkstate import StreamExecutionEnvironment, errors
session = SparkSession.builder.remote("local[1]").getOrCreate()
try:
    StreamExecutionEnvironment(session)
except errors.UnsupportedSessionError as error:
    print(error)
finally:
    session.stop()
"""


def test_a_spark_connect_session_is_refused() -> None:
    pytest.importorskip("grpc", reason="Spark Connect's client needs it")
    # The port of the server is fixed, and another run of these tests may use it: Spark takes a free one then.
    environment = {**os.environ, "SPARK_TESTING": "1"}
    command = [sys.executable, "-c", CONNECT]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
    assert "a Spark Connect session has no RDDs" in done.stdout, done.stderr


def test_without_a_session_the_active_one_is_used(spark: Any) -> None:
    assert StreamExecutionEnvironment()._spark is spark


# --- the package of workers ------------------------------------------------------------------------

PROGRAM = """
import os, sys
master, os.environ["PYSPARK_PYTHON"] = sys.argv[1:3]
from pyspark.sql import SparkSession
import pyflinkstate as ps

class Count(ps.KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ps.ValueStateDescriptor("count", ps.Types.LONG()))

    def process_element(self, value, ctx):
        import pyflinkstate
        self.count.update((self.count.value() or 0) + 1)
        yield value, self.count.value(), pyflinkstate.compiled, pyflinkstate.__version__

session = SparkSession.builder.master(master).config("spark.ui.enabled", "false").getOrCreate()
session.sparkContext.setLogLevel("OFF")
try:
    print(ps.ship(session))
    env = ps.StreamExecutionEnvironment(session).set_parallelism(2)
    env.enable_checkpointing(0, sys.argv[3])
    words = env.from_collection("to be or not to be".split(), ps.Types.STRING(), records_per_epoch=3)
    counts = words.key_by(lambda word: word, ps.Types.STRING()).process(Count())
    print(sorted(counts.execute_and_collect()))
    print(ps.ship(session))
except ps.PyFlinkStateError as error:
    print(type(error).__name__, error)
finally:
    session.stop()
"""
COUNTS = [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]


def printed(master: str, python: Path, folder: Path) -> list[str]:
    done = run_program(Path(sys.executable), PROGRAM, master, str(python), str(folder / "checkpoints"))
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_executors_that_lack_the_package_get_it_and_run_it_interpreted(master: str, tmp_path: Path) -> None:
    python = python_without_this_package(tmp_path / "other")
    version = pyflinkstate.__version__
    counts = [(word, count, False, version) for word, count in COUNTS]
    assert printed(master, python, tmp_path) == ["True", str(counts), "False"]


def test_executors_that_lack_what_the_package_needs_are_told_of(tmp_path: Path) -> None:
    (told,) = printed("local[1]", bare_python(tmp_path / "bare"), tmp_path)
    assert told.startswith("PackageMismatchError Spark's workers on ")
    assert "lack attrs, cloudpickle, numpy, pyarrow, which pyflinkstate needs" in told


def test_executors_with_another_version_are_told_of(tmp_path: Path) -> None:
    python = python_without_this_package(tmp_path / "other")
    package = packages_of(tmp_path / "other") / "pyflinkstate"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '0.0.9'\n")
    (told,) = printed("local[1]", python, tmp_path)
    assert "have pyflinkstate 0.0.9 in " in told
    assert f"this program has {pyflinkstate.__version__}: install the same version" in told


def test_workers_of_a_job_without_slots_that_run_a_checkout_are_one_warning(tmp_path: Path) -> None:
    """Python looks into the folder in which the program is started first: in workers, but not in a script."""
    package = Path(pyflinkstate.__file__).parent
    checkout = tmp_path / "checkout" / "pyflinkstate"
    shutil.copytree(package, checkout, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    program = tmp_path / "program.py"
    program.write_text(
        "import pyflinkstate as ps\n"
        "env = ps.StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)\n"
        "env.from_collection([1, 2, 3], records_per_epoch=1).map(lambda n: n + 1).print()\n"
        "env.execute('without slots')\n"
    )
    done = subprocess.run(
        [sys.executable, str(program)],
        check=False,
        capture_output=True,
        text=True,
        cwd=checkout.parent,
        env=clean_environment(),
    )
    assert done.returncode == 0, done.stderr
    (told,) = [line for line in done.stderr.splitlines() if "imports pyflinkstate from" in line]
    assert "a Python worker on" in told
    assert f"from {checkout.parent} and runs" in told


def test_a_task_of_another_version_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version is compared before anything of the task is loaded, which may not be possible at all."""
    sent = pickle.dumps(worker_tasks.OfThisVersion(Unloadable()))
    monkeypatch.setattr(worker_tasks, "VERSION", "0.0.9")
    with pytest.raises(PackageMismatchError, match=r"has pyflinkstate 0\.0\.9, and the program has"):
        pickle.loads(sent)


def test_a_task_of_this_version_is_sent_without_what_checks_it() -> None:
    assert pickle.loads(pickle.dumps(worker_tasks.OfThisVersion(print))) is print


class Unloadable:
    def __call__(self, partition: int, items: object) -> object:
        raise AssertionError

    def __reduce__(self) -> tuple[object, ...]:
        return _fail, ()


def _fail() -> None:
    raise AssertionError("it was loaded")


def test_the_zip_has_every_module_and_its_byte_code_and_is_the_same_each_time(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one, two = (workers.zipped(tmp_path / name) for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()
    names = set(zipfile.ZipFile(one).namelist())
    root = Path(pyflinkstate.__file__).parents[1]
    modules = {str(path.relative_to(root)) for path in (root / "pyflinkstate").rglob("*.py")}
    assert modules | {f"{name}c" for name in modules} <= names
    assert not [name for name in names if name.endswith(".so")]
    shown = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from pyflinkstate import version; print(version.__file__)"
    )
    done = run_program(bare_python(tmp_path / "bare"), shown, str(one))
    assert done.stdout.endswith("version.pyc\n"), done.stderr
