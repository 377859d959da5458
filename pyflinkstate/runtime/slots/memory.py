"""Watches how much memory a slot has, so that it ends with a clear error before the machine swaps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from pyflinkstate.errors import SlotMemoryError

#: Looking costs some ten microseconds; so often is soon enough.
CHECK_INTERVAL_S = 0.1
#: The host, or the container, must have so much left: this part, and no less than that many bytes.
RESERVE_SHARE = 0.02
RESERVE_BYTES = 64 * 1024 * 1024

_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def available_bytes() -> tuple[int, int] | None:
    """Return how much the host or its container has left, and how much it has in all; None if unknown."""
    found = [room for room in (_of_host(), _of_cgroup()) if room is not None]
    return min(found, default=None)


def _of_host() -> tuple[int, int] | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as meminfo:
            sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in meminfo}
        return sizes["MemAvailable"], sizes["MemTotal"]
    except (OSError, KeyError, ValueError, IndexError):
        return None


def _of_cgroup() -> tuple[int, int] | None:
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        stat = dict(line.split() for line in (_CGROUP / "memory.stat").read_text().splitlines())
        return limit - used + int(stat["inactive_file"]), limit
    except (OSError, KeyError, ValueError):
        return None  # no cgroup of version 2, or no limit ("max")


class MemoryGuard:
    """Raises when a limit is passed, or the machine has hardly anything left.

    Args:
        who: whose memory it is, for the message.
        limit_bytes: what the process may have; None leaves it to the machine.
        used: gives what it has.
        room: gives what the machine has left, and in all.
    """

    def __init__(
        self,
        who: str,
        limit_bytes: int | None,
        used: Callable[[], int] = resident_bytes,
        room: Callable[[], tuple[int, int] | None] = available_bytes,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._who = who
        self._limit_bytes = limit_bytes
        self._used = used
        self._room = room
        self._clock_s = clock_s
        self._next_s = 0.0

    def check(self) -> None:
        """Look, if it is time to.

        Raises:
            SlotMemoryError: there is too little left.
        """
        now = self._clock_s()
        if now < self._next_s:
            return
        self._next_s = now + CHECK_INTERVAL_S
        if self._limit_bytes is not None and self._used() > self._limit_bytes:
            raise self._error(f"its limit is {_mebibytes(self._limit_bytes)}")
        room = self._room()
        if room is not None and room[0] < max(room[1] * RESERVE_SHARE, RESERVE_BYTES):
            raise self._error(f"its host has {_mebibytes(room[0])} of {_mebibytes(room[1])} left")

    def _error(self, reason: str) -> SlotMemoryError:
        return SlotMemoryError(
            f"{self._who} holds {_mebibytes(self._used())}, and {reason}: use more hosts or memory, let "
            f"state expire (StateTtlConfig), or raise the limit (set_slot_memory_limit)"
        )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"
