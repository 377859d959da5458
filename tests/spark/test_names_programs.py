"""Programs that import what PyFlink's users import; each prints here what it prints on PyFlink 2.3.

``<name>.py`` in ``names`` or ``features`` is the program, ``<name>.txt`` beside it is what PyFlink printed::

    python scripts/compare_with_pyflink.py tests/spark/names tests/spark/names --record <PyFlink's python>

Nothing is changed in a program but ``pyflink`` in its imports. The order of lines from several sinks is not
promised, so the lines of a job are compared as they come, and whole outputs as multisets.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("no_slot_left")]

PROGRAMS = {
    path.stem: path
    for folder in ("features", "names")
    for path in sorted(Path(__file__).with_name(folder).glob("*.py"))
}
#: Programs of many operators, each with a process of its own.
PATIENCE_S = 900
SCRIPT = Path(__file__).parents[2] / "scripts" / "compare_with_pyflink.py"
#: The one that the quick tier runs; the others need as little more as it does.
QUICK = "job_parameters"


def script() -> Any:
    spec = importlib.util.spec_from_file_location("compare_with_pyflink", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path_as_before() -> Iterator[None]:
    """Programs put files on the path; the next test does not need them."""
    before = list(sys.path)
    yield
    sys.path[:] = before


def params() -> list[Any]:
    return [pytest.param(name, marks=[pytest.mark.quick] if name == QUICK else []) for name in PROGRAMS]


@pytest.mark.timeout(PATIENCE_S)
@pytest.mark.parametrize("name", params())
def test_a_program_prints_what_it_prints_on_pyflink(
    spark: Any, path_as_before: None, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    text = script().rewritten(PROGRAMS[name].read_text())
    program = types.ModuleType(f"program_{name}")  # in no sys.modules, so its functions are shipped by value
    exec(compile(text, f"{name}.py", "exec"), program.__dict__)
    expected = PROGRAMS[name].with_suffix(".txt").read_text()
    assert script().difference(expected, capsys.readouterr().out, exact=False) == ""


def test_every_program_has_pyflinks_output() -> None:
    expected = [program.with_suffix(".txt") for program in PROGRAMS.values()]
    assert [path.name for path in expected if not path.exists() or os.path.getsize(path) == 0] == []
