"""The repository's own rules: who may import whom, what the public door opens, what is documented."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import pyflinkstate

PACKAGE = Path(pyflinkstate.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
#: A room may import from itself and from those to its right.
ORDER = ["testing", "datastream", "common", "runtime", "backends", "api", "errors"]


def room(module: str) -> str:
    return module.split(".")[1] if module.startswith("pyflinkstate.") else ""


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_in_one_direction(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module in imports(path):
        if target := room(module):
            assert ORDER.index(target) >= ORDER.index(own), f"{own} must not import {module}"


def test_only_the_spark_rooms_import_pyspark() -> None:
    importers = {
        path.name for path in FILES if any(name.split(".")[0] == "pyspark" for name in imports(path))
    }
    # All but spark.py name Spark's types in signatures only, under TYPE_CHECKING.
    assert importers == {"spark.py", "environment.py", "keyed_process.py"}


def test_a_state_slot_does_not_load_pyspark() -> None:
    script = "import sys, pyflinkstate.runtime.slot; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


@pytest.mark.parametrize("name", pyflinkstate.__all__)
def test_every_public_name_is_there_and_documented(name: str) -> None:
    assert getattr(pyflinkstate, name).__doc__


def test_type_checkers_see_the_names_that_the_door_opens() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    seen = {
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname
    }
    assert seen == set(pyflinkstate.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        pyflinkstate.Nothing  # noqa: B018


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text()))
