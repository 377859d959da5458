"""What is released: nothing is missing in it, nothing else gets in, and it can be installed anywhere."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from email.parser import Parser
from pathlib import Path

import pytest
from other_pythons import clean_environment, python_without_this_package, run_program

import pyflinkstate
from pyflinkstate.backends.compiled import ALL_COMPILED

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
VERSION = pyflinkstate.__version__
INSTALLED = Path(__file__).with_name("installed.py")
#: What the sources have besides the package.
BESIDE = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.py"}
WRITTEN_BY_SETUPTOOLS = ("setup.cfg", "pyflinkstate.egg-info/")


def called(*command: str | Path, **env: str) -> str:
    """Run a command, and return what it printed."""
    done = subprocess.run(
        [*map(str, command)], check=False, capture_output=True, text=True, env={**clean_environment(), **env}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def can_compile(folder: Path) -> bool:
    """Return whether modules of C can be compiled here; the package needs no compiler to be installed."""
    (folder / "module.c").write_text("#include <Python.h>\n")
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    command = [*compiler, f"-I{sysconfig.get_path('include')}", "-c", "module.c"]
    try:
        return subprocess.run(command, check=False, cwd=folder, capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """What ``make dist`` makes; with PYFLINKSTATE_DIST, what it has made in that folder."""
    if "PYFLINKSTATE_DIST" in os.environ:
        return Path(os.environ["PYFLINKSTATE_DIST"]).absolute()
    if sys.version_info < (3, 11):
        pytest.skip("releases are made with Python 3.11 or newer")
    if not can_compile(tmp_path_factory.mktemp("compiled")):
        pytest.skip("there is no C compiler with the headers of Python")
    request.getfixturevalue("package_index")
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, ROOT / "scripts" / "make_dist.py", "--into", folder)
    return folder


def the(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def files_of_the_package() -> set[str]:
    """Return what git knows of the package."""
    return set(called("git", "-C", ROOT, "ls-files", "pyflinkstate").split())


def without(names: Iterable[str], *prefixes: str) -> set[str]:
    return {name for name in names if not name.startswith(prefixes) and not name.endswith("/")}


def test_the_sources_are_those_of_the_package_and_nothing_else(dist: Path) -> None:
    with tarfile.open(the(dist, "*.tar.gz")) as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    assert without(names, *WRITTEN_BY_SETUPTOOLS) == files_of_the_package() | BESIDE


def test_the_wheel_has_all_of_the_package_with_its_core_compiled(dist: Path) -> None:
    wheel = the(dist, "*.whl")
    names = without(zipfile.ZipFile(wheel).namelist(), f"pyflinkstate-{VERSION}.dist-info/")
    compiled = {name for name in names if name.endswith(".so")}
    assert names - compiled == files_of_the_package()
    tag = f"cpython-{sys.version_info[0]}{sys.version_info[1]}"
    modules = {name.partition(".")[0].replace("/", ".") for name in compiled if "mypyc" not in name}
    assert modules == {f"pyflinkstate.{name}" for name in ALL_COMPILED}
    assert all(tag in name for name in compiled)
    assert sys.platform != "linux" or "manylinux" in wheel.name


def test_the_zip_is_the_same_package_without_anything_compiled(dist: Path) -> None:
    names = zipfile.ZipFile(the(dist, "*-pure.zip")).namelist()
    assert without(names, f"pyflinkstate-{VERSION}.dist-info/") == files_of_the_package()


def test_the_metadata_tells_what_an_index_shows(dist: Path) -> None:
    wheel = zipfile.ZipFile(the(dist, "*.whl"))
    metadata = Parser().parsestr(wheel.read(f"pyflinkstate-{VERSION}.dist-info/METADATA").decode())
    assert (metadata["Version"], metadata["License-Expression"]) == (VERSION, "Apache-2.0")
    assert metadata["Keywords"]
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    assert {"sql", "otel"} <= set(metadata.get_all("Provides-Extra", []))
    assert metadata.get_all("Project-URL") is None


@pytest.mark.usefixtures("package_index")
def test_the_wheel_is_compiled_in_an_empty_environment(dist: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "empty", with_pip=True, symlinks=True)
    python = tmp_path / "empty" / "bin" / "python"
    called(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", the(dist, "*.whl"))
    assert called(python, INSTALLED, "compiled").startswith(f"pyflinkstate {VERSION}, compiled")
    called(python, "-m", "pip", "check")


def test_the_zip_runs_interpreted_from_the_path(dist: Path, tmp_path: Path) -> None:
    python = python_without_this_package(tmp_path / "other")
    told = called(python, INSTALLED, "interpreted", PYTHONPATH=str(the(dist, "*-pure.zip")))
    assert told.startswith(f"pyflinkstate {VERSION}, interpreted")


def test_an_import_loads_nothing_of_what_the_package_needs() -> None:
    """So it takes milliseconds: each name is loaded on first use."""
    program = "import sys, pyflinkstate; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = set(run_program(Path(sys.executable), program).stdout.split())
    assert "pyflinkstate" in loaded
    assert not loaded & {"attr", "cloudpickle", "numpy", "pyarrow", "pyspark"}
