"""Watches the memory of a slot, so that it ends with a clear error before the machine swaps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from pyflinkstate.errors import SlotMemoryError

#: How often to look; one look takes some ten microseconds.
CHECK_INTERVAL_S = 0.1
#: The host or container must have this fraction of its memory left, and at least this many bytes.
RESERVE_SHARE = 0.02
RESERVE_BYTES = 64 * 1024 * 1024

_CGROUP = Path("/sys/fs/cgroup")


def resident_bytes() -> int:
    """Return the memory of this process in bytes, or 0 if the system does not tell."""
    try:
        with open("/proc/self/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def available_bytes() -> tuple[int, int] | None:
    """Return the free and the total memory of the host or its container in bytes, or None if unknown."""
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
    """Raises an error when a limit is passed, or when the machine has hardly any memory left.

    Args:
        who: the owner of the memory, for the message.
        limit_bytes: how much the process may use; with None only the machine limits it.
        used: returns how much it uses.
        room: returns the free and the total memory of the machine.
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

    @property
    def limit_bytes(self) -> int | None:
        """How much the process may use; None if only the machine limits it."""
        return self._limit_bytes

    def used_bytes(self) -> int:
        """Return how much the process uses."""
        return self._used()

    def check(self) -> None:
        """Check the memory, if it is time to.

        Raises:
            SlotMemoryError: the limit is passed, or too little memory is left.
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
            f"{self._who} uses {_mebibytes(self._used())}, and {reason}: use more hosts or memory, let "
            f"state expire (StateTtlConfig), or raise the limit (set_slot_memory_limit)"
        )


def _mebibytes(size: int) -> str:
    return f"{size / 1024**2:,.0f} MiB"
