"""Fixtures of the tests of both houses; how Hypothesis runs."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import backend_support
import contract_backends
import pytest
import slot_nursery
from hypothesis import settings
from support_sinks import Flushed
from support_slots import Driver
from tiers import cases

from pyflinkstate import Types
from pyflinkstate.runtime.storage import CheckpointFolders, file_systems
from pyflinkstate.runtime.tasks import TaskLink, slot_client

# No deadline: a test never depends on how fast the machine is.
settings.register_profile("pyflinkstate", deadline=None, print_blob=True)
settings.load_profile("pyflinkstate")


@pytest.fixture
def backend():
    """A backend that owns all 128 key groups, bound to the key ``"k"``."""
    made = backend_support.make_backend()
    made.set_current_key("k")
    return made


@pytest.fixture(params=["typed", "untyped"])
def declared(request):
    """Gives a type as it is declared, or what stands for it when it is left out."""
    if request.param == "typed":
        return lambda type_info: type_info
    return lambda type_info: Types.PICKLED_BYTE_ARRAY()


@pytest.fixture(params=cases(contract_backends.EVERYWHERE, contract_backends.QUICK))
def everywhere(request):
    """Keyed state: copy-on-write, plain, both with snapshots open, and inside an operator."""
    with contract_backends.opened(request.param) as contract:
        yield contract


@pytest.fixture(params=cases(contract_backends.BARE, contract_backends.QUICK))
def bare(request):
    """As ``everywhere``, without the operator."""
    with contract_backends.opened(request.param) as contract:
        yield contract


@pytest.fixture
def flushed(monkeypatch) -> Flushed:
    """What is flushed to the disk from now on."""
    made = Flushed()
    monkeypatch.setattr(file_systems.os, "fsync", made.fsync)
    return made


@pytest.fixture
def driver() -> Iterator[Driver]:
    """A driver's control server; whatever slots it has started end with the test."""
    made = Driver()
    yield made
    made.close()


@pytest.fixture
def link(driver: Driver) -> TaskLink:
    """A task's link to the driver, in epoch 3."""
    return TaskLink(driver.link, 3)


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


@pytest.fixture
def nothing_unpickled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if anything is unpickled: the program has declared all of its state."""
    loaded: list[object] = []
    monkeypatch.setattr(pickle, "loads", loaded.append)
    yield
    monkeypatch.undo()
    assert loaded == []
