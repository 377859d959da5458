"""Which form of the heap backend's core runs, and that a compiled one is of the sources beside it."""

import importlib
import os
from pathlib import Path

import pytest

import pyflinkstate
from pyflinkstate.backends.compiled import ALL_COMPILED


def file_of(module: str) -> Path:
    return Path(str(importlib.import_module(f"pyflinkstate.{module}").__file__))


@pytest.mark.parametrize("module", ALL_COMPILED)
def test_all_modules_of_the_core_have_the_same_form(module: str) -> None:
    assert (file_of(module).suffix != ".py") == pyflinkstate.compiled


def test_pure_is_pure() -> None:
    if os.environ.get("PYFLINKSTATE_PURE") == "1":
        assert not pyflinkstate.compiled
    else:
        assert pyflinkstate.compiled == any(file_of("backends.heap.states").parent.glob("*.so"))


@pytest.mark.parametrize("module", ALL_COMPILED)
def test_a_compiled_module_is_not_older_than_its_source(module: str) -> None:
    compiled = file_of(module)
    source = compiled.parent / f"{module.split('.')[-1]}.py"
    assert compiled.stat().st_mtime >= source.stat().st_mtime, "compile it again: make .venv/.has-compiled"
