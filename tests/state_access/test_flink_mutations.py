"""Savepoints of Flink that were damaged and are converted: an error of the project's own, or values."""

from __future__ import annotations

import random
import resource
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest
from flink_savepoints import FOLDERS, damaged, load
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

#: A savepoint of less than 1 MiB must not need more than this.
MOST_KIB = 512 * 1024
#: Seconds of the processor.
MOST_S = 10
#: Those with states of which Python has not every value, or for which a program is needed, are left out.
NAMES = [name for name in FOLDERS if not name.endswith(("-java", "-java-native"))]
NAMES = ["2.3.0-java", *[name for name in NAMES if "process" not in name]]
#: States of which Python has no value, or only the bytes.
UNREADABLE = ("local_date", "kryo", "pojo")


def rounds(name: str, seeds: range, folder: Path) -> int:
    """Damage a file in each round; return how many savepoints were refused."""
    files, found = load(FOLDERS[name]), 0
    names = [name for name, data in sorted(files.items()) for _ in range(1 + len(data) // 1000)]
    for file, data in files.items():
        (folder / file).write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in seeds:
        seed = random.Random(number)
        changed, begun = seed.choice(names), time.process_time()
        (folder / changed).write_bytes(damaged(files[changed], seed))
        error = _error_of(folder)
        shutil.rmtree(folder / "here", ignore_errors=True)
        (folder / changed).write_bytes(files[changed])
        assert time.process_time() - begun < MOST_S, f"seed {number}"
        found += error is not None
        is_clear = error is None or isinstance(error, (CheckpointError, ConfigurationError, StateTableError))
        assert is_clear, f"seed {number}: {error!r}"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST_KIB
    return found


def _error_of(folder: Path) -> Exception | None:
    try:
        operators = FlinkSavepoint.open(folder).content.operators
        edit = edit_flink_savepoint(folder, uids={one.id.hex(): one.uid or one.id.hex() for one in operators})
        with suppress(UnknownOperatorError, UnknownStateError):
            for state in UNREADABLE:
                edit.drop_state("values", state)
        edit.write(folder / "here")
    except Exception as error:  # noqa: BLE001 - every one that is not clear is found
        return error
    return None


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
