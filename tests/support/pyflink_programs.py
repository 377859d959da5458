"""Programs as PyFlink's users write them, ``<name>.py``, and what PyFlink 2.3 has printed: ``<name>.txt``."""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
PROGRAMS = {
    path.stem: path
    for folder in ("async_programs", "features", "names")
    for path in sorted((TESTS / "spark" / folder).glob("*.py"))
}
SCRIPT = TESTS.parent / "scripts" / "compare_with_pyflink.py"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("compare_with_pyflink", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_and_compare(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a program; what it prints is what it prints on PyFlink."""
    text = script().rewritten(PROGRAMS[name].read_text())
    program = types.ModuleType(f"program_{name}")  # in no sys.modules, so its functions are shipped by value
    exec(compile(text, f"{name}.py", "exec"), program.__dict__)
    expected = PROGRAMS[name].with_suffix(".txt").read_text()
    is_in_order = PROGRAMS[name].parent.name == "async_programs"
    assert script().difference(expected, capsys.readouterr().out, exact=is_in_order) == ""
