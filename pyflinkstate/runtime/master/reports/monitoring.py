"""What the runtime knows of the monitor: how it is set up, and what it is asked for.

No room depends on ``pyflinkstate.monitor``. It is loaded by its name when a program asks for it, so a program
that does not ask loads nothing of it.
"""

from __future__ import annotations

import importlib
from typing import Protocol

import attrs

from pyflinkstate.api.metrics import MetricReporter
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master.loop import Job
from pyflinkstate.runtime.master.reports.observe import JobObserver

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
    """

    ports: tuple[int, ...] | range = attrs.field(default=(0,), validator=_check_ports)
    host: str = LOOPBACK
    address: str | None = None
    metrics_without_token: bool = False
    has_actions: bool = True


class MonitorOfProgram(Protocol):
    """What the runtime asks of :class:`pyflinkstate.monitor.Monitor`."""

    address: str | None

    def observe(self, directory: str | None) -> JobObserver:
        """Return a listener for one job; its journal is kept in ``directory``, if there is one."""
        ...

    def attach(self, observer: JobObserver, job: Job, savepoints: str | None) -> None:
        """Let the page steer the job of an observer."""
        ...

    def serve(self, page: WebPageSettings | None) -> None:
        """Serve the page in another way from now on; None for no longer."""
        ...

    def add_reporter(self, reporter: MetricReporter, interval_ms: int) -> None:
        """Tell a reporter the metrics of all jobs at an interval."""
        ...

    def close(self) -> None:
        """Close the page and all reporters."""
        ...


def load_monitor() -> MonitorOfProgram:
    """Return a new monitor, which serves no page yet."""
    made: MonitorOfProgram = importlib.import_module("pyflinkstate.monitor").Monitor()
    return made
