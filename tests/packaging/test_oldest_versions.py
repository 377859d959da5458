"""The oldest versions of what the package needs do what the newest do, which this environment has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib.metadata import requires
from pathlib import Path

import pytest
from other_pythons import clean_environment

from pyflinkstate.runtime.spark import workers

pytestmark = [pytest.mark.spark, pytest.mark.full, pytest.mark.timeout(1800)]

JOB = Path(__file__).with_name("small_job.py")
PAGE = Path(__file__).parents[1] / "monitor" / "test_access.py"
#: The oldest Python that the metadata names.
OLDEST_PYTHON = "python3.10"


def oldest(requirement: str) -> str:
    """Return the requirement of the lowest version that ``requirement`` allows.

    >>> oldest("numpy>=1.24")
    'numpy==1.24.*'
    """
    return re.sub(r">=([\d.]+).*", r"==\1.*", requirement)


def needed() -> list[str]:
    return [each for each in requires("pyflinkstate") or [] if "extra ==" not in each]


def oldest_python() -> str:
    """Return the oldest Python that there is here: the one of the metadata, or that of this environment."""
    found = shutil.which(OLDEST_PYTHON)
    if found is None or subprocess.run([found, "--version"], check=False, capture_output=True).returncode:
        return sys.executable
    return found


def printed(python: Path | str, folder: Path, **env: str) -> list[str]:
    clean = clean_environment("SPARK_", "PYSPARK_")
    done = subprocess.run(
        [str(python), str(JOB), str(folder)],
        check=False,
        capture_output=True,
        text=True,
        env={**clean, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": str(python), **env},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_each_requirement_has_a_lowest_version() -> None:
    assert needed()
    assert all("==" in oldest(each) and each.count(">=") == 1 for each in needed())


@pytest.mark.usefixtures("package_index")
def test_the_oldest_versions_do_what_the_newest_do(tmp_path: Path) -> None:
    subprocess.run([oldest_python(), "-m", "venv", tmp_path / "oldest"], check=True)
    python = tmp_path / "oldest" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*pip, *map(oldest, needed())], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    package = workers.zipped(tmp_path)
    newest = printed(sys.executable, tmp_path / "by newest")
    assert len(newest) == 5
    assert printed(python, tmp_path / "by oldest", PYTHONPATH=str(package)) == newest


@pytest.mark.usefixtures("package_index")
def test_the_page_is_served_by_the_oldest_versions_of_its_extra(tmp_path: Path) -> None:
    found = [each.partition(";")[0] for each in requires("pyflinkstate") or [] if 'extra == "web"' in each]
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", tmp_path, *map(oldest, found)], check=True)
    assert (tmp_path / "starlette").is_dir()
    env = {**clean_environment(), "PYTHONPATH": str(tmp_path)}
    subprocess.run([sys.executable, "-m", "pytest", PAGE], check=True, env=env)
