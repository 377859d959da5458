"""Starts slots as forks of one process that has already imported what a slot imports.

A job of a test has a handful of records: the start of an interpreter per slot would be most of what it costs.
Only that is replaced: ``runtime/tasks/slot_client.py`` starts slots through this module as it does through
``subprocess``, and a fork runs the same program with the same input, environment and session of its own.
Tests of processes, of their heartbeats and ends, and those on Spark start slots as every job of a user does.

As a program, this file is the process that is forked.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import select
import socket
import subprocess
import sys
import threading
import traceback
from functools import cache
from typing import Any, NoReturn

import pyarrow

PIPE = subprocess.PIPE
STDOUT = subprocess.STDOUT
#: Longer than an environment and a path are.
_LARGEST = 1 << 18


class Popen:
    """What ``slot_client`` uses of :class:`subprocess.Popen`."""

    def __init__(
        self,
        command: list[str],
        *,
        stdin: int,
        stdout: int,
        stderr: int,
        pass_fds: tuple[int, ...],
        start_new_session: bool,
        env: dict[str, str],
    ) -> None:
        assert (stdin, stdout, stderr) == (PIPE, PIPE, STDOUT)
        assert start_new_session
        assert command[:2] == [sys.executable, "-m"]
        self.returncode: int | None = None
        self._ended, ended = socket.socketpair()
        reads, writes = os.pipe()
        self.stdin = os.fdopen(writes, "wb")
        output, prints = os.pipe()
        self.stdout = os.fdopen(output, "rb")
        request = {"argv": command[2:], "env": env, "cwd": os.getcwd(), "streams": pass_fds}
        _nursery().fork(request, [reads, prints, prints, *pass_fds, ended.fileno()])
        os.close(reads)
        os.close(prints)
        ended.close()

    def poll(self) -> int | None:
        """Return the exit code, or None while the process runs."""
        return self.wait() if self.returncode is None and _is_ready(self._ended) else self.returncode

    def wait(self) -> int:
        """Return the exit code when the process has ended."""
        if self.returncode is None:
            with self._ended:
                self.returncode = int(self._ended.recv(20) or b"-1")
        return self.returncode

    def kill(self) -> None:
        """Do nothing: it ends by itself, as no test stops one of these before it is connected."""


def _is_ready(connection: socket.socket) -> bool:
    return bool(select.select([connection], [], [], 0)[0])


class _Nursery:
    """The process that is forked; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno())]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                # One thread: threads do not survive a fork.
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            )

    def fork(self, request: dict[str, Any], files: list[int]) -> None:
        """Start a process whose standard files are the first three of ``files``."""
        with self._lock:
            socket.send_fds(self._requests, [json.dumps(request).encode()], files)

    def close(self) -> None:
        """End the process; slots that still run go on."""
        self._requests.close()
        self._process.wait()


@cache
def _nursery() -> _Nursery:
    made = _Nursery()
    atexit.register(made.close)
    return made


# --- in the process that is forked ---------------------------------------------------------------------


def _serve(requests: socket.socket) -> None:
    """Fork for each request; tell whoever asked when the fork has ended, and how."""
    running: dict[int, tuple[int, int]] = {}
    while True:
        ready, _, _ = select.select([requests, *running], [], [])
        for process_fd in set(ready) & set(running):
            _tell_end(process_fd, *running.pop(process_fd))
        if requests in ready:
            data, files, _, _ = socket.recv_fds(requests, _LARGEST, 6)
            if not data:
                return
            pid = os.fork()
            if pid == 0:
                _run(json.loads(data), files)
            running[os.pidfd_open(pid)] = (pid, files.pop())
            for file in files:
                os.close(file)


def _tell_end(process_fd: int, pid: int, ended: int) -> None:
    os.close(process_fd)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(BrokenPipeError):
        os.write(ended, str(code).encode())
    os.close(ended)


def _run(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Be the program that was asked for."""
    try:
        os.setsid()
        # Out of the way first: the wanted numbers may be taken.
        files = [fcntl.fcntl(file, fcntl.F_DUPFD, 1000) for file in files[:5]]
        os.closerange(3, 1000)
        for target, file in zip([0, 1, 2, *request["streams"]], files, strict=True):
            os.dup2(file, target)
        os.closerange(1000, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        sys.path[:] = [request["cwd"], *os.environ["PYTHONPATH"].split(os.pathsep)]
        sys.argv[:] = request["argv"]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except BaseException:  # noqa: BLE001 - as an interpreter does, after which nothing here goes on
        traceback.print_exc()
    os._exit(1)


if __name__ == "__main__":
    importlib.import_module("pyflinkstate.runtime.slots.slot")
    pyarrow.array([0])  # the first array imports pandas, if it is there

    gc.freeze()
    _serve(socket.socket(fileno=int(sys.argv[1])))
