"""A real PostgreSQL server on loopback, of Debian's packages; it ends with the process that started it."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

#: Where Debian has the server's programs, which are not on the path.
_PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "fsync": "off",  # these tests kill processes, and cut no power
    "shared_buffers": "16MB",
    "max_connections": "20",
}


def is_there() -> bool:
    """Return whether the programs of a server, and a user that may run it, are on this machine."""
    return bool(_PROGRAMS) and (os.geteuid() != 0 or "postgres" in {user.pw_name for user in pwd.getpwall()})


class PostgresServer:
    """A server with an empty database; it may be killed and started again.

    Args:
        settings: further settings, by name.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._user = "postgres" if os.geteuid() == 0 else None
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        data = str(self._folder / "data")
        self._run(["initdb", "-D", data, "-U", "tester", "--auth=trust", "--no-sync"])
        given = [f"-c{name}={value}" for name, value in {**SETTINGS, **(settings or {})}.items()]
        self._command = ["postgres", "-D", data, f"-p{self.port}", f"-k{self._folder}", *given]
        self.start()

    @property
    def url(self) -> str:
        return f"postgresql+psycopg://tester@127.0.0.1:{self.port}/postgres"

    @property
    def conninfo(self) -> str:
        return f"host=127.0.0.1 port={self.port} user=tester dbname=postgres"

    def _program(self, command: list[str]) -> list[str]:
        return [str(_PROGRAMS[-1] / command[0]), *command[1:]]

    def _run(self, command: list[str]) -> None:
        subprocess.run(self._program(command), user=self._user, cwd="/", check=True, capture_output=True)

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        as_user = [] if self._user is None else ["--reuid", self._user, "--clear-groups"]
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "QUIT", *as_user, *self._program(self._command)],
            cwd="/",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        log = self._process.stderr
        assert log is not None
        said = []
        while not said or "is ready to accept connections" not in said[-1]:
            said.append(log.readline())
            assert said[-1], f"the server has ended: {''.join(said)}"
        self._reader = threading.Thread(target=log.read, daemon=True)
        self._reader.start()

    def kill(self) -> None:
        """End the server at once, as with ``kill -9`` of all of it."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)
        self._reader.join(30)
        assert self._process.stderr is not None
        self._process.stderr.close()

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)
