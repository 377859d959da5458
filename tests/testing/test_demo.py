"""``python -m pyflinkstate.testing`` runs without Java and without PySpark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pyflinkstate

#: Runs the module as ``python -m`` does, and tells at the end whether PySpark was imported.
SCRIPT = """
import runpy, sys
runpy.run_module("pyflinkstate.testing", run_name="__main__", alter_sys=True)
print("pyspark imported:", any(name.split(".")[0] in ("pyspark", "py4j") for name in sys.modules))
"""


def run(*arguments: str) -> list[str]:
    without_java = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment = {**without_java, "PYTHONPATH": str(Path(pyflinkstate.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_demo_tells_what_it_checks() -> None:
    title, *checks = run("-m", "pyflinkstate.testing")
    assert "without Spark and Java" in title
    assert all(check.startswith("ok  ") for check in checks)
    told = "\n".join(checks)
    for found in ("['remind ann of tea']", "after 24 hours state has expired: ['hat']", "parallelism 2"):
        assert found in told
    assert checks[-1] == "ok  PySpark was not needed, nor imported: True"


@pytest.mark.full
def test_the_demo_never_imports_pyspark() -> None:
    assert run("-c", SCRIPT)[-1] == "pyspark imported: False"


# --- the page about testing is one program -----------------------------------------------------------------


PAGE = Path(__file__).parents[2] / "docs" / "testing.md"


def test_the_code_blocks_run() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    names: dict[str, Any] = {"__name__": "testing_docs"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"testing.md, block {number}", "exec"), names)
