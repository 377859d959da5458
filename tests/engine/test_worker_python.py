"""What workers run: their Python, and what a program brings along, where no Spark is needed."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark import SparkFiles

from pyflinkstate.errors import UnsupportedSessionError
from pyflinkstate.runtime.slots import path_without_brought, put_on_path
from pyflinkstate.runtime.spark import workers
from pyflinkstate.runtime.spark.workers import PythonFiles, check_workers


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(workers, "_suitable", set())
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return


def context_of(python: Path, python_path: str = "") -> Any:
    context: Any = MagicMock(pythonExec=str(python), master="local[2]", _python_includes=[])
    conf = {"spark.executorEnv.PYTHONPATH": python_path}
    context.getConf.return_value.get = lambda name, default=None: conf.get(name, default)
    return context


def python_that(folder: Path, does: str) -> Path:
    """Make a program that stands for a Python, and counts how often it is asked."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho asked >> "{folder}/asked"\n{does}\n')
    python.chmod(0o755)
    return python


def times_asked(folder: Path) -> int:
    return len((folder / "asked").read_text().splitlines())


SUITS = f"echo {workers._VERSION}"


def test_one_that_was_mended_is_no_longer_refused(tmp_path: Path) -> None:
    context = context_of(python_that(tmp_path, "echo 2.7"))
    with pytest.raises(UnsupportedSessionError, match=r"is Python 2\.7"):
        check_workers(context)
    python_that(tmp_path, SUITS)
    for _ in range(2):
        check_workers(context)
    assert times_asked(tmp_path) == 2


def test_one_that_finds_its_packages_elsewhere_is_asked_again(tmp_path: Path) -> None:
    python = python_that(tmp_path, f'{SUITS}\ntest "$PYTHONPATH" = good')
    check_workers(context_of(python, "good"))
    with pytest.raises(UnsupportedSessionError, match="fails"):
        check_workers(context_of(python, "bad"))


@pytest.fixture(autouse=True)
def path_as_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(SparkFiles, "getRootDirectory", lambda: str(tmp_path))


def test_the_next_session_of_a_program_gets_its_archives_too(tmp_path: Path) -> None:
    archive = tmp_path / "data.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data.txt", "from a file")
    shipped: list[str] = []
    for _ in range(2):
        context: Any = MagicMock(addArchive=shipped.append)
        PythonFiles(context).add_archive(str(archive), "data")
    assert len(shipped) == 2
    assert shipped[0] == shipped[1]
    name = shipped[0].rpartition("#")[2]
    assert name.startswith("data-")
    assert shipped[0].endswith(f"/{name}.zip#{name}")


def test_files_with_the_same_names_and_other_content_lie_in_other_folders(tmp_path: Path) -> None:
    shipped: list[str] = []
    context: Any = MagicMock(addArchive=shipped.append)
    environments = []
    for content in ("NAME = 1", "NAME = 2", "NAME = 1"):
        (tmp_path / "module.py").write_text(content)
        files = PythonFiles(context)
        files.add_file(tmp_path / "module.py")
        environments.append(files.environment())
    one, two, again = (name.rpartition("#")[2] for name in shipped)
    assert one == again != two
    assert environments[0] == environments[2] != environments[1]
    assert PythonFiles(context).environment() == {}


def test_the_folders_of_a_program_come_first_and_what_is_needed_does_not_come_from_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", ["installed", ""])
    monkeypatch.setenv("PYFLINKSTATE_PATH", "")
    put_on_path(["one", "two"])
    assert sys.path == ["one", "two", "installed", ""]
    assert path_without_brought() == ["installed"]
