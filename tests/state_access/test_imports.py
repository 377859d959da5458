"""The reader and the command line need neither Java nor PySpark."""

import subprocess
import sys

import pytest
from tiers import cases


@pytest.mark.parametrize(
    "module",
    cases(
        [
            "pyflinkstate.state_access",
            "pyflinkstate.state_access.command_line",
            "pyflinkstate.__main__",
        ],
        quick=["pyflinkstate.__main__"],
    ),
)
def test_neither_pyspark_nor_py4j_is_imported(module):
    script = f"import sys, {module}; sys.exit(bool({{'pyspark', 'py4j'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
