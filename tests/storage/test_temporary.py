"""Folders that last as long as their owners."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

from pyflinkstate.runtime.storage import temporary_folder

PROGRAM = """
from pyflinkstate.runtime.storage import temporary_folder

class Owner: ...

folder = temporary_folder(Owner, "kept-")
(folder / "file").write_text("content")
print(folder)
"""


class Owner:
    """Needs a folder."""


def test_a_folder_is_deleted_with_its_owner_and_nobody_is_warned(recwarn):
    owner = Owner()
    folder = temporary_folder(owner, "kept-")
    (folder / "file").write_text("content")
    assert folder.name.startswith("kept-")
    del owner
    gc.collect()
    assert not folder.exists()
    assert [str(warning.message) for warning in recwarn] == []


def test_a_folder_of_a_class_lasts_as_long_as_the_program():
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("kept-")
    assert not folder.exists()
    assert done.stderr == ""
