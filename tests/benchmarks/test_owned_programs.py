"""A program of a benchmark ends with the one that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from support_runtime import wait_for_exit

STAYS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
OWNER = f"import sys; from engines import owned; owned.run([sys.executable, '-c', {STAYS!r}])"
ASKS = """
import subprocess, sys
from engines import owned
done = owned.run([sys.executable, "-c", "print('said'); exit(3)"], stdout=subprocess.PIPE)
assert (done.returncode, done.stdout) == (3, "said\\n")
"""
#: Programs are started by processes of one thread.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_it_is_run_as_by_subprocess() -> None:
    subprocess.run([sys.executable, "-c", ASKS], check=True, env=ENVIRONMENT)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux does it")
def test_it_ends_when_its_owner_is_killed() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as owner:
        assert owner.stdout is not None
        process_fd = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
        wait_for_exit(process_fd)
        os.close(process_fd)
    assert owner.returncode == -signal.SIGKILL
