"""What the tests of packages need: an index from which packages can be installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def package_index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip the test where nothing can be installed; a wheel of a few kilobytes is asked for."""
    folder: Path = tmp_path_factory.mktemp("index")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "--no-deps", "--dest", str(folder), "cloudpickle"], check=False, capture_output=True
    )
    if done.returncode != 0:
        pytest.skip("there is no package index")
