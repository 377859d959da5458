"""A file sink deletes the epochs that are older than its retention, and no others."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pyflinkstate import FileSink, errors

HOUR_MS = 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now_ms = 1_000 * HOUR_MS

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def clock() -> Clock:
    return Clock()


def opened(folder: Path, clock: Clock, restored: int | None = None, **options: Any) -> FileSink:
    sink = FileSink(str(folder), now_ms=clock, **options)
    sink.open("job", restored)
    return sink


def write(sink: FileSink, folder: Path, clock: Clock, epoch: int) -> None:
    """Write an epoch, whose folder is an hour younger than that of the one before, and commit it."""
    clock.now_ms += HOUR_MS
    sink.prepare(epoch, list(sink.writer(epoch).write(0, iter([{"n": epoch}]))))
    (prepared,) = folder.glob(f"_runs/*/prepared/epoch={epoch}")
    os.utime(prepared, (clock.now_ms / 1000, clock.now_ms / 1000))
    sink.commit(epoch)


def epochs(folder: Path) -> list[int]:
    return sorted(int(path.name.partition("=")[2]) for path in folder.glob("epoch=*"))


def test_by_default_all_stay(tmp_path: Path, clock: Clock) -> None:
    sink = opened(tmp_path, clock)
    for epoch in range(1, 5):
        write(sink, tmp_path, clock, epoch)
    assert epochs(tmp_path) == [1, 2, 3, 4]


@pytest.mark.parametrize(("hours", "left"), [(1, [4, 5]), (2, [3, 4, 5]), (10, [1, 2, 3, 4, 5])])
def test_older_ones_go_with_a_commit(tmp_path: Path, clock: Clock, hours: int, left: list[int]) -> None:
    sink = opened(tmp_path, clock, retention_ms=hours * HOUR_MS)
    for epoch in range(1, 6):
        write(sink, tmp_path, clock, epoch)
    assert epochs(tmp_path) == left
    assert not list(tmp_path.glob("_runs/*/dropped/*")), "nothing waits to be deleted"


def test_what_was_just_committed_stays_however_old_it_looks(tmp_path: Path, clock: Clock) -> None:
    sink = opened(tmp_path, clock, retention_ms=1)
    write(sink, tmp_path, clock, 1)
    clock.now_ms += 100 * HOUR_MS
    sink.commit(1)
    assert epochs(tmp_path) == [1]


def test_a_job_goes_on_where_older_epochs_are_gone(tmp_path: Path, clock: Clock) -> None:
    sink = opened(tmp_path, clock, retention_ms=HOUR_MS)
    for epoch in range(1, 5):
        write(sink, tmp_path, clock, epoch)
    again = opened(tmp_path, clock, restored=3, retention_ms=HOUR_MS)
    assert epochs(tmp_path) == [3], "what came after the checkpoint is taken back, and comes again"
    write(again, tmp_path, clock, 4)
    assert epochs(tmp_path) == [4]


@pytest.mark.parametrize("retention_ms", [0, -1, 1.5, "1 day"])
def test_a_retention_is_a_positive_number(tmp_path: Path, retention_ms: Any) -> None:
    with pytest.raises(errors.SinkError, match="retention_ms"):
        FileSink(str(tmp_path), retention_ms=retention_ms)
