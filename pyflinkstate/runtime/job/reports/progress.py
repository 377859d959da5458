"""One line of progress on a terminal."""

from __future__ import annotations

from typing import TextIO

from pyflinkstate.runtime.checkpoints import CheckpointStats
from pyflinkstate.runtime.job.reports.observe import EpochStats, JobListener
from pyflinkstate.runtime.job.reports.terminal import TerminalLine
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.wire import Clock

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class ProgressLine(JobListener):
    """Shows the epoch, its rate and the last checkpoint on one line that is written over.

    Of the checkpoint it shows the bytes written, and those that a restore reads.

    What is printed and logged meanwhile comes above it: see :class:`TerminalLine`.
    """

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        self._line = TerminalLine(stream)
        self._clock = clock
        self._epoch: EpochStats | None = None
        self._checkpoint: CheckpointStats | None = None
        self._completed_ms = 0
        self._note = ""

    def on_epoch(self, stats: EpochStats) -> None:
        self._epoch = stats
        self._show()

    def on_checkpoint(self, stats: CheckpointStats) -> None:
        self._checkpoint = stats
        self._completed_ms = self._clock.monotonic_ms()
        self._show()

    def on_restart(self, attempt: int, error: Exception) -> None:
        self._note = f"restarts {attempt}"
        self._show()

    def on_end(self, status: JobStatus) -> None:
        self._line.leave(self._text(status.name))

    def _show(self) -> None:
        self._line.show(self._text())

    def _text(self, last: str = "") -> str:
        parts = []
        if self._epoch is not None:
            rate = self._epoch.records * 1000 / max(1, self._epoch.duration_ms)
            parts.append(f"epoch {self._epoch.epoch} | {rate:,.0f} records/s")
        if self._checkpoint is not None:
            ago_s = (self._clock.monotonic_ms() - self._completed_ms) / 1000
            parts.append(
                f"checkpoint {self._checkpoint.checkpoint_id}: "
                f"{_size(self._checkpoint.checkpointed_bytes)} of {_size(self._checkpoint.size_bytes)} in "
                f"{self._checkpoint.duration_ms / 1000:.1f} s, {ago_s:.0f} s ago"
            )
        return " | ".join([*parts, *filter(None, [self._note, last])])


def _size(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"
