"""Shows jobs, live or dead: a page, an API and metrics. Nothing depends on this room."""

from pyflinkstate.monitor.hub import Monitor as Monitor, show_jobs as show_jobs
