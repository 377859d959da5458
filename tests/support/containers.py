"""Control groups as containers, made below the group of whoever runs the tests: nothing leaves that one.

They need root, or a group that was given to this user. A test that cannot have them is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
import pytest

from pyflinkstate.runtime.slots.memory import control_groups

#: Processes that are killed are gone by then.
PATIENCE_S = 60
#: The limit, and where the kernel counts the processes that it has killed for it: both versions.
LIMITS = {"memory.max": "memory.events", "memory.limit_in_bytes": "memory.oom_control"}


@attrs.frozen
class Container:
    """A control group, with groups in it that may be made by others."""

    folder: Path

    def pids(self) -> set[int]:
        """Return all processes that are in it."""
        found: set[int] = set()
        for file in self.folder.rglob("cgroup.procs"):
            with suppress(OSError):  # the group has been removed, or is just being killed
                found.update(map(int, file.read_text().split()))
        return found

    def kill(self) -> None:
        """Kill all that is in it at once, as the end of a container does."""
        if (self.folder / "cgroup.kill").exists():
            (self.folder / "cgroup.kill").write_text("1")
            return
        deadline = time.monotonic() + PATIENCE_S  # version 1: one after the other, until no more are born
        while (pids := self.pids()) and time.monotonic() < deadline:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def remove(self) -> None:
        """Kill what is left, and remove it with the groups in it."""
        self.kill()
        deadline = time.monotonic() + PATIENCE_S
        while self.folder.exists():
            try:
                inner = [each for each in self.folder.rglob("*") if each.is_dir()]
                for folder in (*sorted(inner, reverse=True), self.folder):
                    folder.rmdir()
            except OSError:  # not all have ended
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def limit_memory(self, size_bytes: int) -> None:
        """Set its limit."""
        (name,) = (name for name in LIMITS if (self.folder / name).exists())
        (self.folder / name).write_text(str(size_bytes))

    def killed_by_the_kernel(self) -> int:
        """Return how many processes the kernel has killed for want of memory."""
        (name,) = (events for limit, events in LIMITS.items() if (self.folder / limit).exists())
        lines = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(lines["oom_kill"])


@contextmanager
def container(needs_memory: bool = False) -> Iterator[Container]:
    """Make a group, and remove it with all that is in it; skip the test where that is not possible.

    Args:
        needs_memory: whether it must be one that can have a limit.
    """
    made = _made(needs_memory)
    try:
        yield made
    finally:
        made.remove()


def _made(needs_memory: bool) -> Container:
    own: dict[str, Path] = {}
    for group in control_groups():
        own.setdefault(group.version, group.folder)
    for version in ("cgroup2", "cgroup"):
        if version in own:
            with suppress(OSError):
                made = Container(own[version] / f"pyflinkstate-test-{uuid.uuid4().hex[:12]}")
                made.folder.mkdir()
                if not needs_memory or any((made.folder / name).exists() for name in LIMITS):
                    return made
                made.folder.rmdir()
    pytest.skip("no control group can be made here")


def java_home_in(containers: Container, folder: Path) -> Path:
    """Make a Java home whose Java begins in a new group of its own, in ``containers``."""
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin:{os.environ['PATH']}")
    assert java is not None
    (folder / "bin").mkdir(parents=True)
    script = folder / "bin" / "java"
    group = f"{containers.folder}/$$"
    script.write_text(f'#!/bin/sh\nmkdir {group} && echo $$ > {group}/cgroup.procs && exec {java} "$@"\n')
    script.chmod(0o755)
    return folder
