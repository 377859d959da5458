"""How a user watches jobs: a line of progress on a terminal, and the monitor, which is loaded by its name.

No room depends on ``pyflinkstate.monitor``, so a program that does not ask for it loads nothing of it."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Protocol, TextIO, cast

import attrs

from pyflinkstate import notebook
from pyflinkstate.api import MetricReporter
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.observe import CheckpointStats, EpochStats, JobListener, JobObserver
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.wire import Clock


@attrs.frozen
class _Unbreakable:
    """A stream whose errors are dropped: a line that cannot be written is not a reason for a job to fail."""

    _stream: TextIO

    def write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # ValueError is that of a closed stream
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._stream.flush()

    def __getattr__(self, name: str) -> object:
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
                f"{notebook.size(self._checkpoint.checkpointed_bytes)} of "
                f"{notebook.size(self._checkpoint.size_bytes)} in "
                f"{self._checkpoint.duration_ms / 1000:.1f} s, {ago_s:.0f} s ago"
            )
        return " | ".join([*parts, *filter(None, [self._note, last])])


def _stream_handlers() -> list[logging.StreamHandler[Any]]:
    return [
        handler
        for handler in [*logging.root.handlers, *logging.getLogger(__name__.split(".")[0]).handlers]
        if isinstance(handler, logging.StreamHandler)
    ]


LOOPBACK = "127.0.0.1"
_MOST_PORT = 65_535


def _check_ports(_: object, __: object, ports: tuple[int, ...] | range) -> None:
    checked = (*ports[:1], *ports[-1:]) if isinstance(ports, range) else ports
    wrong = [port for port in checked if not (isinstance(port, int) and 0 <= port <= _MOST_PORT)]
    if wrong or not checked:
        named = wrong[0] if wrong else "none"
        raise ConfigurationError(f"the web page needs a port from 0 to {_MOST_PORT}, not {named!r}")


@attrs.frozen
class WebPageSettings:
    """How the web page of a program is served.

    Attributes:
        ports: the ports to try, in order; 0 is any free one (Flink: ``rest.bind-port``).
        host: the address to listen on (Flink: ``rest.bind-address``).
        address: the name under which browsers reach it; None for the host (Flink: ``rest.address``).
        metrics_without_token: whether ``/metrics`` is for everybody who reaches the port.
        has_actions: whether jobs can be steered from the page.
        token_file: the file that keeps the token over restarts; None for a new token with each start.
        health_timeout_ms: how long a job may make no progress before ``/health`` says so.
    """

    ports: tuple[int, ...] | range = attrs.field(default=(0,), validator=_check_ports)
    host: str = LOOPBACK
    address: str | None = None
    metrics_without_token: bool = False
    has_actions: bool = True
    token_file: str | None = None
    health_timeout_ms: int = 600_000


class MonitorOfProgram(Protocol):
    """What the runtime asks of :class:`pyflinkstate.monitor.Monitor`."""

    address: str | None

    def observe(self, directory: str | None, settings: dict[str, str] | None = None) -> JobObserver:
        """Return a listener for one job; its journal is kept in ``directory``, if there is one."""

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page steer the job of an observer."""

    def serve(self, page: WebPageSettings | None) -> None:
        """Serve the page in another way from now on; None for no longer."""

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Tell a reporter the metrics of all jobs at an interval."""

    def close(self) -> None:
        """Close the page and all reporters."""


def load_monitor() -> MonitorOfProgram:
    """Return a new monitor, which serves no page yet."""
    made: MonitorOfProgram = importlib.import_module("pyflinkstate.monitor").Monitor()
    return made
