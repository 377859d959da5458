"""Shows jobs, live or dead: a page, an API and metrics. Nothing depends on this room."""

from pyflinkstate.monitor.hub import Monitor, show_jobs

__all__ = ["Monitor", "show_jobs"]
