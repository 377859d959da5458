"""Brings this package to executors that lack it, and sees that all have the same version.

What is shipped is made of the package that runs here, so it takes no network: a zip of its sources, without
what is compiled, with which Spark's workers and state slots run interpreted. The sources' byte code lies
beside them, as no Python writes any for a zip file: otherwise each process would compile the package again.
"""

from __future__ import annotations

import importlib.util
import marshal
import zipfile
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from pyflinkstate.api.values import SparkObject
from pyflinkstate.errors import PackageMismatchError
from pyflinkstate.runtime.spark import worker_report
from pyflinkstate.runtime.spark.python_files import kept_folder
from pyflinkstate.runtime.spark.sessions import context_of
from pyflinkstate.runtime.spark.worker_python import problem_in, unsuitable
from pyflinkstate.runtime.spark.worker_report import WorkerReport
from pyflinkstate.version import VERSION

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

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
    if not [report for report in _asked(context) if not report.version]:
        return False
    context.addPyFile(str(zipped(kept_folder())))
    lacking = [report for report in _asked(context) if not report.version]
    if lacking:
        raise _mismatch(lacking, "do not see the package that was shipped to them")
    return True


def _asked(context: SparkContext) -> list[WorkerReport]:
    """Return what workers have.

    Raises:
        PackageMismatchError: there are some that cannot run this package.
    """
    pickles: SparkObject = cloudpickle
    pickles.register_pickle_by_value(worker_report)
    try:
        count = _QUESTIONS_PER_CORE * context.defaultParallelism
        asked = context.parallelize(range(count), count).mapPartitionsWithIndex(worker_report.reported)
        reports = sorted({WorkerReport(*fields) for fields in asked.collect()})
    except Exception as error:
        problem = problem_in(str(error))
        if problem:
            raise unsuitable(str(context.pythonExec), problem) from None
        raise
    finally:
        pickles.unregister_pickle_by_value(worker_report)
    _check(reports)
    return reports


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
    head = importlib.util.MAGIC_NUMBER + _UNCHECKED.to_bytes(4, "little")
    return head + importlib.util.source_hash(source) + marshal.dumps(code)
