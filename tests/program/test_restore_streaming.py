"""What a streaming job is restored from, and whether a newer checkpoint may take its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support_runtime import metadata

from pyflinkstate.runtime.program.jobs import restore_streaming
from pyflinkstate.runtime.sources import StreamingSource
from pyflinkstate.runtime.sources.spark_sources import NextBatch, position_of
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage

JOB, QUERY = "0" * 32, "8b1f"


class Log:
    """The log of a query that goes on with a batch that Spark has not planned yet."""

    def __init__(self, number: int) -> None:
        self.number = number

    def next_batch(self) -> NextBatch:
        return NextBatch(self.number)

    def query_id(self) -> str:
        return QUERY


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointFolders:
    """Storage with checkpoints 1 to 3, of batches 0 to 2."""
    made = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
    for number in (1, 2, 3):
        made.begin(JOB, number)
        position = position_of(number - 1, QUERY, "cut")
        made.complete(metadata(number, JOB, epoch=number, source_position=position))
    return made


def chosen(storage: CheckpointFolders, next_batch: int, path: str | None) -> Any:
    log: Any = Log(next_batch)
    source = StreamingSource(lambda _: None, lambda: log)
    return restore_streaming(source, storage, storage.load(storage.uri_of(JOB, 1)).job_name, path)


@pytest.mark.parametrize("path", [None, "latest"])
def test_an_older_driver_may_complete_a_newer_one_than_the_newest(
    storage: CheckpointFolders, path: str | None
) -> None:
    restore = chosen(storage, 3, path)
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (3, True)


def test_a_query_that_was_set_back_is_restored_from_an_older_one_and_no_other(
    storage: CheckpointFolders,
) -> None:
    restore = chosen(storage, 2, None)
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (2, False)


def test_neither_has_a_savepoint_that_was_named_another_in_its_place(storage: CheckpointFolders) -> None:
    restore = chosen(storage, 3, storage.uri_of(JOB, 3))
    assert (restore.metadata.checkpoint_id, restore.is_latest) == (3, False)
