"""One line of progress on a terminal."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, TextIO, cast

from pyflinkstate.runtime.master.reports.checkpoint_stats import CheckpointStats
from pyflinkstate.runtime.master.reports.observe import EpochStats, JobListener
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.wire import Clock

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class _Unbreakable:
    """A stream whose errors are dropped: a line that cannot be written is not a reason for a job to fail."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError is that of a closed stream
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class ProgressLine(JobListener):
    """Shows the epoch, its rate and the last checkpoint on the last line of a terminal.

    Of the checkpoint it shows the bytes written, and the bytes that a restore reads.
    What the program prints and logs meanwhile appears above the line. If the stream is not a terminal, only
    the line at the end of the job is written.
    """

    def __init__(self, stream: TextIO, clock: Clock) -> None:
        from rich.console import Console  # here, as most jobs do not show the line
        from rich.live import Live

        self._live = Live(console=Console(file=cast(TextIO, _Unbreakable(stream))), auto_refresh=False)
        #: The handlers of the log that write above the line.
        self._handlers: list[logging.StreamHandler[Any]] = []
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
        self._show(status.name)
        self._live.stop()
        if not self._live.console.is_terminal:
            self._live.console.line()
        self._lead(self._handlers, sys.stderr)

    def _show(self, last: str = "") -> None:
        from rich.text import Text

        text = Text(self._text(last), no_wrap=True, overflow="ellipsis")
        if not self._live.is_started:
            stderr = sys.stderr
            self._live.start()
            self._handlers = [handler for handler in _stream_handlers() if handler.stream is stderr]
            self._lead(self._handlers, sys.stderr)
        self._live.update(text, refresh=True)

    def _lead(self, handlers: Iterable[logging.StreamHandler[Any]], stream: TextIO) -> None:
        for handler in handlers:
            handler.setStream(stream)

    def _text(self, last: str) -> str:
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


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    handlers = [*logging.root.handlers, *logging.getLogger(__name__.split(".")[0]).handlers]
    return [handler for handler in handlers if isinstance(handler, logging.StreamHandler)]


def _size(size: float) -> str:
    unit = 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:.1f} {_UNITS[unit]}" if unit else f"{size:.0f} B"
