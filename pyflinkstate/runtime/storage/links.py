"""Symbolic links in checkpoints are not followed: they may lead to what the job did not write."""

from __future__ import annotations

import os

from pyarrow import fs

from pyflinkstate.errors import CorruptCheckpointError


def check_no_links(file_system: fs.FileSystem, base: str, path: str) -> None:
    """Check that below ``base``, which may be reached by any way, no link leads to ``path``.

    Raises:
        CorruptCheckpointError: one does, or ``path`` is not below ``base``.
    """
    if file_system.type_name != "local":
        return  # object stores have no links
    below = os.path.relpath(path, base)
    expected = os.path.normpath(os.path.join(os.path.realpath(base), below))
    if below.split(os.sep)[0] == os.pardir or os.path.realpath(path) != expected:
        raise CorruptCheckpointError(
            f"{path} lies behind a symbolic link, or outside of {base}: a checkpoint's files are its own, "
            f"and links are not followed",
            file=path,
        )
