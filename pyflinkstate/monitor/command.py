"""``pyflinkstate ui``: the page of jobs of other processes."""

from __future__ import annotations

import threading

from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.runtime.master import WebPageSettings


def show_jobs(path: str, port: int = 0, host: str = "127.0.0.1") -> None:
    """Serve the page of the jobs at a path until the user ends it with Ctrl-C.

    New events and new jobs are shown within seconds while a viewer is connected.

    Raises:
        CheckpointNotFoundError: there is no job.
        CheckpointStorageError: the storage cannot be read.
        ConfigurationError: the page cannot listen there, or its extra is not installed.
    """
    monitor = Monitor(is_told=False)
    monitor.follow(path)
    monitor.serve(WebPageSettings((port,), host, has_actions=False))
    print(f"{monitor.address}\nThe page is there until you press Ctrl-C.", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        monitor.close()
