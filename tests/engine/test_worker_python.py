"""The Python of Spark's workers, asked where no Spark is needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

from pyflinkstate.errors import UnsupportedSessionError
from pyflinkstate.runtime.spark import workers
from pyflinkstate.runtime.spark.workers import check_workers


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
