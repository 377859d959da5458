"""Fixtures of the tests of connections."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyflinkstate.runtime.wire import transport


@pytest.fixture(scope="session", autouse=True)
def short_folder() -> Iterator[None]:
    """Unix sockets lie in a folder whose path is short enough for them, however long that of TMPDIR is."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_private_folder", lambda: Path(folder))
        yield
