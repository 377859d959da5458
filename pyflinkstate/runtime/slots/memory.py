"""Watches the memory of a slot, so that it ends with a clear error before the machine swaps.

A process is in a control group of each hierarchy, which ``/proc/self/cgroup`` names, and every group above
may have a limit as well: that of its container, and of whatever that is in. ``/proc/self/mountinfo`` says
where a hierarchy is mounted, and which of its groups is seen there: all of them on a host, often only the
container's own in a container. There are two versions, and hosts that have both: memory is then counted by
one of them.
"""

from __future__ import annotations

import os
import re
import resource
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePosixPath

import attrs

from pyflinkstate.errors import SlotMemoryError
from pyflinkstate.runtime.wire import SlotId

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


#: The longest time between two looks; one takes from some ten microseconds to a millisecond.
CHECK_INTERVAL_S = 0.1
#: The processes of a host fill memory more slowly than this. What is left lasts until the next look at this
#: rate, so that looks come sooner where there is little.
FILL_BYTES_PER_S = 8 * 1024**3
#: The host or container must have this fraction of its memory left, and at least this many bytes.
RESERVE_SHARE = 0.02
RESERVE_BYTES = 64 * 1024 * 1024
#: A limit of the address space matters when this share of it is memory in use.
USED_SHARE = 0.5
#: A slot without state reserves about as much address space for Python, Arrow and its threads, and uses a
#: twentieth of it as memory.
LEAST_SPACE_BYTES = 3 * 1024**3 // 2


@attrs.frozen
class Room:
    """The memory of a host or a container, or the address space, in bytes: what is left, and all of it."""

    left_bytes: int
    total_bytes: int
    #: Whose memory it is, for the message.
    of: str = "host"

    def spare_bytes(self) -> int:
        """Return how much is left beyond the reserve; less than nothing if it is touched."""
        return self.left_bytes - max(int(self.total_bytes * RESERVE_SHARE), RESERVE_BYTES)


def resident_bytes() -> int:
    """Return the memory of this process in bytes, or 0 if the system does not tell."""
    return _memory_of_process()[1]


def _memory_of_process() -> tuple[int, int]:
    """Return the address space of this process and its memory, in bytes; zeros if they are not told."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            space, memory = map(int, statm.read().split()[:2])
    except OSError:
        return 0, 0
    page = os.sysconf("SC_PAGE_SIZE")
    return space * page, memory * page


def available_room() -> Room | None:
    """Return the room of the host, or of a container or limit with less to spare; None if it is unknown."""
    return min(
        (room for room in (*_of_containers(), _of_host(), _of_address_space()) if room is not None),
        key=Room.spare_bytes,
        default=None,
    )


def _of_host() -> Room | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo}
        return Room(sizes["MemAvailable"], sizes["MemTotal"])
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _of_address_space() -> Room | None:
    """Return the memory left below the limit that a slot inherits from its worker; None without a limit.

    Allocators reserve address space that they may never use, and do with less if they do not get it. So it
    counts only where most of it is used.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    space, memory = _memory_of_process()
    if limit == resource.RLIM_INFINITY or memory < limit * USED_SHARE:
        return None
    return Room(
        limit - space, limit, "address space (limited by spark.executor.pyspark.memory, or by ulimit -v)"
    )


def lack_of_space(slot: SlotId) -> SlotMemoryError | None:
    """Return the error if this process has too little address space for a slot, which would inherit it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY or limit >= LEAST_SPACE_BYTES:
        return None
    return SlotMemoryError(
        f"slot {slot} would have {_mebibytes(limit)} of address space, and needs "
        f"{_mebibytes(LEAST_SPACE_BYTES)} before there is any state, most of it reserved and not used: leave "
        f"spark.executor.pyspark.memory unset (or ulimit -v), and limit slots with set_slot_memory_limit()"
    )


def _of_containers() -> list[Room]:
    memories = ((group, group.memory()) for group in control_groups())
    return [Room(*memory, f"container ({group.folder})") for group, memory in memories if memory is not None]


@attrs.frozen
class MemoryGuard:
    """Raises an error when a limit is passed, or when the machine has hardly any memory left.

    Args:
        who: the owner of the memory, for the message.
        limit_bytes: how much the process may use; with None only the machine limits it.
        used: returns how much it uses.
        room: returns the memory of the host or container.
    """

    _who: str
    _limit_bytes: int | None
    _used: Callable[[], int] = resident_bytes
    _room: Callable[[], Room | None] = available_room

    def watch(self, wait: Callable[[float], object] = time.sleep) -> SlotMemoryError:
        """Look at the memory again and again; return the error when there is too little.

        This is for a thread of its own: one call of a user's function can store any amount of state.
        """
        while True:
            try:
                wait(self.check())
            except SlotMemoryError as error:
                return error

    def check(self) -> float:
        """Check the memory, and return after how many seconds to check it again.

        Raises:
            SlotMemoryError: the limit is passed, or too little memory is left.
        """
        room = self._room()
        if self._limit_bytes is not None and self._used() > self._limit_bytes:
            raise self._error(f"its limit is {_mebibytes(self._limit_bytes)}")
        if room is None:
            return CHECK_INTERVAL_S
        if room.spare_bytes() < 0:
            left, total = _mebibytes(room.left_bytes), _mebibytes(room.total_bytes)
            raise self._error(f"its {room.of} has {left} of {total} left")
        return min(CHECK_INTERVAL_S, room.left_bytes / FILL_BYTES_PER_S)

    def _error(self, reason: str) -> SlotMemoryError:
        return SlotMemoryError(
            f"{self._who} uses {_mebibytes(self._used())}, and {reason}: use more hosts or memory, let "
            f"state expire (StateTtlConfig), or raise the limit (set_slot_memory_limit)"
        )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"
