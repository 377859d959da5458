"""Shows jobs, live or dead: a page, an API and metrics. Nothing depends on this room."""

from pyflinkstate.monitor.command import show_jobs
from pyflinkstate.monitor.hub import Monitor

__all__ = ["Monitor", "show_jobs"]
