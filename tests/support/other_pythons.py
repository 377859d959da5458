"""Pythons of the same version with other packages than this one has: virtual environments without pip."""

from __future__ import annotations

import os
import site
import subprocess
import sys
import venv
from pathlib import Path


def bare_python(folder: Path) -> Path:
    """Make a Python that has no packages at all."""
    venv.create(folder, symlinks=True, with_pip=False)
    return folder / "bin" / "python"


def python_without_this_package(folder: Path) -> Path:
    """Make a Python that has all packages of this one, but for the package under test.

    That one is installed in place, which takes a file beside the packages that only their own Python reads.
    """
    python = bare_python(folder)
    (packages_of(folder) / "others.pth").write_text("\n".join(site.getsitepackages()))
    return python


def packages_of(folder: Path) -> Path:
    """Return the folder of an environment's packages."""
    return folder / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


def clean_environment(*others: str) -> dict[str, str]:
    """Return this process's environment without its paths, and without names that begin as ``others``."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", *others))}


def run_program(python: Path, program: str, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run a program with nothing of this process's paths, and in a folder where no package lies."""
    return subprocess.run(
        [str(python), "-c", program, *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=python.parent,
        env={**clean_environment(), "SPARK_LOCAL_IP": "127.0.0.1", **env},
    )
