"""Symbolic links in checkpoints are not followed, as they may lead to files that the job did not write."""

from __future__ import annotations

import os

from pyarrow import fs

from pyflinkstate.errors import CorruptCheckpointError


def check_no_links(file_system: fs.FileSystem, base: str, path: str) -> None:
    """Check that no symbolic link below ``base`` leads to ``path``; links to ``base`` itself are allowed.

    Raises:
        CorruptCheckpointError: there is such a link, or ``path`` is not below ``base``.
    """
    if file_system.type_name != "local":
        return  # object stores have no links
    below = os.path.relpath(path, base)
    expected = os.path.normpath(os.path.join(os.path.realpath(base), below))
    if below.split(os.sep)[0] == os.pardir or os.path.realpath(path) != expected:
        raise CorruptCheckpointError(
            f"{path} is behind a symbolic link, or outside of {base}: links in a checkpoint are not "
            f"followed, as its files must be its own",
            file=path,
        )
