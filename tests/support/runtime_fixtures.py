"""Fixtures of the runtime tests; how Hypothesis runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import slot_nursery
from hypothesis import settings
from support_slots import Driver

from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.tasks import slot_client

# No deadline: a test never depends on how fast the machine is.
settings.register_profile("pyflinkstate", deadline=None, print_blob=True)
settings.load_profile("pyflinkstate")


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver's control server; whatever slots it has started end with the test."""
    made = Driver()
    yield made
    made.close()


@pytest.fixture
def forked_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slots start in milliseconds; ``slot_nursery`` says what is not as it is in a user's job."""
    monkeypatch.setattr(slot_client, "subprocess", slot_nursery)


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointFolders:
    """Storage in a directory that is not there yet."""
    return CheckpointFolders(str(tmp_path / "checkpoints"))


@pytest.fixture
def blocked(tmp_path: Path) -> str:
    """A path below a regular file: nobody can write there, root neither."""
    (tmp_path / "file").write_text("in the way")
    return str(tmp_path / "file" / "checkpoints")
