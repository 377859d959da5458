"""Folders that are deleted with the object that needs them, or at the end of the program."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


def temporary_folder(owner: object, prefix: str) -> Path:
    """Make a folder that lasts as long as ``owner``.

    ``tempfile.TemporaryDirectory`` does the same, but warns of each folder that nobody closes, and what is
    kept for as long as a program may need it is closed by nobody.

    Args:
        owner: an object that can be referred to weakly; a class or function lasts as long as the program.
        prefix: what the folder's name begins with.
    """
    folder = tempfile.mkdtemp(prefix=prefix)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
