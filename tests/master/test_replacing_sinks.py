"""A user's own sink that writes epochs as they are prepared, under their numbers."""

from __future__ import annotations

from typing import Any

import pytest
from support_job import JobRun, latest, numbers, once

from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.settings.checkpoint_settings import CheckpointSettings
from pyflinkstate.runtime.sinks.sinks import FrameWriter, ReplacingSink
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.wire import decode_values

pytestmark = pytest.mark.timeout(60)

#: After the first one no checkpoint is due, so a later failure takes the job far back.
RARELY = CheckpointSettings(interval_ms=10**6)


class Table(ReplacingSink):
    """A table of rows by epoch, which a crash of the driver leaves as it is."""

    def __init__(self, rows: dict[int, list[int]]) -> None:
        self.rows = rows

    def open(self, job_id: str, restored_epoch: int | None) -> None:
        """Nothing to open."""

    def writer(self, epoch: int) -> FrameWriter:
        return FrameWriter()

    def prepare(self, epoch: int, results: list[Any]) -> None:
        self.rows[epoch] = [row for _, frame in results for row in decode_values(frame)]

    def commit(self, epoch: int) -> None:
        """What was prepared is there already."""

    def rewind(self, epoch: int) -> None:
        """What comes again replaces what is there."""


def test_a_restored_job_cuts_its_epochs_as_they_were_written(storage: CheckpointFolders) -> None:
    """The source would give five records at once now, but the table has epochs of three."""
    rows: dict[int, list[int]] = {}
    run = JobRun(numbers(10, 3), Table(rows), storage, checkpoints=RARELY)
    run.runner.after = once(BadRecordError("bad input"), 4)
    with pytest.raises(BadRecordError):
        run.run()
    assert rows == {1: [0, 1, 2], 2: [3, 4, 5], 3: [6, 7, 8]}
    JobRun(numbers(10, 5), Table(rows), storage, latest(storage), checkpoints=RARELY).run()
    assert rows == {1: [0, 1, 2], 2: [3, 4, 5], 3: [6, 7, 8], 4: [9]}
