"""Shows on a terminal how much long work has read."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich import progress as rich_progress

#: Work that takes less than this, in seconds, shows nothing.
_PATIENCE_S = 1.0


class Progress:
    """Shows on the standard error how many bytes have been read, on a terminal only.

    Args:
        is_wanted: False shows nothing in any case.
        clock: returns the time in seconds, from any moment on.
    """

    def __init__(self, is_wanted: bool = True, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_wanted = is_wanted and sys.stderr.isatty()
        self._clock = clock
        self._begin = clock()
        self._bytes_read = 0
        self._total: int | None = None
        self._display: rich_progress.Progress | None = None

    def expect(self, size_bytes: int) -> None:
        """Say how much there is to read."""
        self._total = size_bytes

    def advance(self, size_bytes: int) -> None:
        """Add to the number of bytes read."""
        self._bytes_read += size_bytes
        if self._is_wanted and self._clock() - self._begin >= _PATIENCE_S:
            self._show()

    def hide(self) -> None:
        """Take the display away, so that other lines can be printed. The next advance brings it back."""
        if self._display is not None:
            self._display.stop()
            self._display = None

    def _show(self) -> None:
        if self._display is None:
            self._display = _started()
        (task,) = self._display.task_ids
        self._display.update(task, completed=self._bytes_read, total=self._total)


def _started() -> rich_progress.Progress:
    """Return a display that is shown."""
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TransferSpeedColumn

    columns = (SpinnerColumn(), TextColumn("read"), DownloadColumn(), TransferSpeedColumn())
    made = Progress(
        *columns, console=Console(stderr=True), transient=True, redirect_stdout=False, redirect_stderr=False
    )
    made.add_task("read", total=None)
    made.start()
    return made
