"""Savepoints of Flink that were damaged and are converted: an error of the project's own, or values."""

from __future__ import annotations

import shutil
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from flink_savepoints import FOLDERS, damaging_rounds, load
from tiers import cases

from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.state_access import edit_flink_savepoint
from pyflinkstate.state_access.flink import FlinkSavepoint

pytestmark = pytest.mark.usefixtures("nothing_unpickled")

#: Those with states of which Python has not every value, or for which a program is needed, are left out.
NAMES = [name for name in FOLDERS if not name.endswith(("-java", "-java-native"))]
NAMES = ["2.3.0-java", *[name for name in NAMES if "process" not in name]]
#: States of which Python has no value, or only the bytes.
UNREADABLE = ("local_date", "kryo", "pojo")


def convert(files: dict[str, bytes], folder: Path) -> None:
    """Convert a savepoint with these files, as far as Python has values."""
    for file, data in files.items():
        (folder / file).write_bytes(data)
    shutil.rmtree(folder / "here", ignore_errors=True)
    operators = FlinkSavepoint.open(folder).content.operators
    edit = edit_flink_savepoint(folder, uids={one.id.hex(): one.uid or one.id.hex() for one in operators})
    with suppress(UnknownOperatorError, UnknownStateError):
        for state in UNREADABLE:
            edit.drop_state("values", state)
    edit.write(folder / "here")


def is_clear(error: Exception) -> bool:
    return isinstance(error, (CheckpointError, ConfigurationError, StateTableError))


def rounds(name: str, seeds: range, folder: Path) -> int:
    return damaging_rounds(load(FOLDERS[name]), seeds, partial(convert, folder=folder), is_clear)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("block", cases(range(5), quick=[0]))
def test_damage_is_found_or_gives_values(name: str, block: int, tmp_path: Path) -> None:
    rounds(name, range(10 * block, 10 * (block + 1)), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", NAMES)
def test_5_000_mutations(name: str, tmp_path: Path) -> None:
    """Those of ``flink_format``, which are many more, open no files and make no state of this project."""
    first = 10_000 + NAMES.index(name) * 500
    assert rounds(name, range(first, first + 500), tmp_path) > 50
