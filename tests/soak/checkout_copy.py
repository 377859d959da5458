"""Copies of the package and of the checkout: faults are put in there, and tests are run on them."""

from __future__ import annotations

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: What is made from the sources, or is of one place only. Compiled modules would hide what is changed.
LEFT_OUT = (".git", ".venv", "build", "*.so", "*.egg-info", "__pycache__", ".hypothesis", ".*_cache")


def copy_package(folder: Path) -> Path:
    """Copy the package, as it is without a C compiler, into a folder; returns where it lies."""
    return copy(ROOT / "pyflinkstate", folder / "pyflinkstate")


def copy_checkout(folder: Path) -> Path:
    """Copy all that tests look at into a folder that is not yet there; returns where the package lies."""
    return copy(ROOT, folder) / "pyflinkstate"


def copy(source: Path, target: Path) -> Path:
    """Copy a folder without what is left out."""
    return Path(shutil.copytree(source, target, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True))
