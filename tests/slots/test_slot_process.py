"""A slot's process as ``python -m`` starts it."""

import subprocess
import sys

from pyflinkstate.runtime.tasks.slot_client import SLOT_MODULE


def test_its_main_module_is_not_loaded_already() -> None:
    # Python would say so in a RuntimeWarning, and have each of its classes twice.
    code = (
        f"import importlib.util, sys; assert importlib.util.find_spec({SLOT_MODULE!r}); "
        f"sys.exit({SLOT_MODULE!r} in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=300, check=False).returncode == 0
