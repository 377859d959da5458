"""The memory that is left in the control groups of this process: its container, and whatever that is in.

A process is in a group of each hierarchy, which ``/proc/self/cgroup`` names, and every group above may have
a limit as well. ``/proc/self/mountinfo`` says where a hierarchy is mounted, and which of its groups is seen
there: all of them on a host, often only the container's own in a container. There are two versions, and hosts
that have both: memory is then counted by one of them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path, PurePosixPath

import attrs

#: The kernel's files about the calling process.
PROC = Path("/proc/self")
#: Version 1 has a limit always, the largest number of whole pages where nobody has set one.
_NO_LIMIT_BYTES = 1 << 62


@attrs.frozen
class _Version:
    """How files are named. ``reclaimable`` in ``memory.stat``: file contents that are dropped when needed."""

    limit: str
    used: str
    reclaimable: str


#: By the type of the file system.
_VERSIONS = {
    "cgroup": _Version("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    "cgroup2": _Version("memory.max", "memory.current", "inactive_file"),
}


@attrs.frozen
class ControlGroup:
    """A group that this process is in, directly or not."""

    folder: Path
    version: str

    def memory(self) -> tuple[int, int] | None:
        """Return how many bytes are left of the limit, and the limit; None if there is none."""
        version = _VERSIONS[self.version]
        try:
            limit = int((self.folder / version.limit).read_text())
            if limit >= _NO_LIMIT_BYTES:
                return None
            used = int((self.folder / version.used).read_text())
            lines = (self.folder / "memory.stat").read_text().splitlines()
            stat = dict(line.split() for line in lines)
            return limit - used + int(stat[version.reclaimable]), limit
        except (OSError, KeyError, ValueError):
            return None  # version 2 says "max" where there is no limit; its root has no such files


@cache
def control_groups(proc: Path = PROC) -> tuple[ControlGroup, ...]:
    """Return the groups that count the memory of this process, each before the one that it is in.

    They are looked up once: containers do not change while a process lives in them, but for their limits.
    """
    try:
        names = _names((proc / "cgroup").read_text())
        mounts = (proc / "mountinfo").read_text().splitlines()
    except OSError:
        return ()  # no Linux
    found = (_mounted(line, names) for line in mounts)
    return tuple(group for groups in found for group in groups)


def _names(text: str) -> dict[str, str]:
    """Return the name of this process's group by version, from lines such as ``4:memory:/a/b``."""
    names = {}
    for line in text.splitlines():
        _, controllers, name = line.split(":", 2)
        if not controllers:
            names["cgroup2"] = name
        elif "memory" in controllers.split(","):
            names["cgroup"] = name
    return names


def _mounted(line: str, names: dict[str, str]) -> list[ControlGroup]:
    """Return the groups of this process that are seen at a mount; a line of ``mountinfo`` describes it."""
    before, _, after = line.partition(" - ")
    _, _, _, root, place, *_ = map(_unescaped, before.split())
    version, _, options = after.split(" ", 2)
    if version not in names or (version == "cgroup" and "memory" not in options.split(",")):
        return []
    return [ControlGroup(folder, version) for folder in _folders(Path(place), root, names[version])]


def _unescaped(name: str) -> str:
    """Return a name of ``mountinfo`` as it is: there, a blank in it is written as ``\\040``."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), name)


def _folders(place: Path, root: str, name: str) -> list[Path]:
    """Return the folder of a group and of those above it, up to the ``root`` that is mounted at ``place``."""
    below = PurePosixPath()
    # Else it is named as on the host, or lies beside what the container sees.
    if PurePosixPath(name).is_relative_to(root) and ".." not in name.split("/"):
        below = PurePosixPath(name).relative_to(root)
    return [place / below, *(place / above for above in below.parents)]
