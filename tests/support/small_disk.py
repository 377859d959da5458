"""A file system that is small, and a file that takes the rest of it, for whatever fills a disk."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, megabytes: int = 1) -> Iterator[Path]:
    """Mount a file system in a new folder; skip the test if that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs to mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Take all the space that is left, to the last byte."""
    with open(folder / "other", "ab", buffering=0) as file:
        for size in (65536, 512, 1):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


def make_room(folder: Path) -> None:
    """Give the space back."""
    (folder / "other").unlink(missing_ok=True)
