"""What must survive a power cut: files and folders are brought to the disk before a rename counts on them.

A rename is atomic, but neither the renamed file's content nor the folder's entries need be on the disk
when it is. So a file is fsynced before it is renamed, and the folder after. Only local file systems need
this; on others a file is durable when it is closed.
"""

from __future__ import annotations

import os


def fsync_file(path: str) -> None:
    """Bring a local file's content to the disk; raises ``OSError``, as where the disk is full."""
    _fsync(path, os.O_RDONLY)


def fsync_folder(path: str) -> None:
    """Bring a local folder's entries to the disk: what was made, renamed or deleted in it."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
