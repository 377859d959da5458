"""The examples in docstrings give what they say."""

from __future__ import annotations

import ast
import doctest
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyflinkstate

PACKAGE = Path(pyflinkstate.__file__).parent
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text())
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef)


def docstrings(path: Path) -> Iterator[str]:
    """From the source: compiled modules keep none."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, DOCUMENTED) and (docstring := ast.get_docstring(node)):
            yield docstring


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_examples_in_docstrings(path: Path) -> None:
    name = ".".join(("pyflinkstate", *path.relative_to(PACKAGE).with_suffix("").parts))
    runner = doctest.DocTestRunner()
    for docstring in docstrings(path):
        names = vars(importlib.import_module(name)).copy()
        runner.run(doctest.DocTestParser().get_doctest(docstring, names, name, str(path), 0))
    assert runner.tries > 0
    assert runner.failures == 0
