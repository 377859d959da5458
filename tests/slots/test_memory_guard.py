"""The memory of a slot: that of its containers, the guard, and a slot without a deployment."""

from __future__ import annotations

import mmap
import re
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Echo, FillsMemory
from support_runtime import next_event
from support_slots import Driver

from pyflinkstate.errors import SlotLostError, SlotMemoryError
from pyflinkstate.runtime.slots import SlotLost, memory
from pyflinkstate.runtime.slots.memory import (
    CHECK_INTERVAL_S,
    FILL_BYTES_PER_S,
    ControlGroup,
    MemoryGuard,
    Room,
    available_room,
    control_groups,
    resident_bytes,
)

MIB = 1024**2
NO_LIMIT_OF_VERSION_1 = 9223372036854771712


@attrs.frozen
class Kernel:
    """Files as those of the kernel, below a folder."""

    folder: Path

    def tells(self, names: str, *mounts: str) -> tuple[ControlGroup, ...]:
        """Write down the groups of the process and the mounts; return the groups that are found."""
        proc = self.folder / "proc"
        proc.mkdir()
        (proc / "cgroup").write_text(names)
        (proc / "mountinfo").write_text("".join(f"{mount}\n" for mount in mounts))
        return control_groups(proc)

    def mount(self, root: str, place: str, version: str, options: str = "rw") -> str:
        """Return a line of ``mountinfo``, in which the kernel writes a blank of a name as a number."""
        seen = f"{root} {str(self.folder / place).replace(' ', chr(92) + '040')}"
        return f"35 31 0:32 {seen} rw,relatime shared:1 - {version} name {options}"

    def write(self, group: str, limit: object, used: int, reclaimable: int = 0) -> None:
        """Write what version 2 tells of a group."""
        self._write(group, {"memory.max": limit, "memory.current": used}, f"inactive_file {reclaimable}")

    def write_1(self, group: str, limit: object, used: int, reclaimable: int = 0) -> None:
        """Write what version 1 tells of a group; without ``total`` it is of the group alone."""
        files = {"memory.limit_in_bytes": limit, "memory.usage_in_bytes": used}
        self._write(group, files, f"inactive_file 0\ntotal_inactive_file {reclaimable}")

    def _write(self, group: str, files: dict[str, object], stat: str) -> None:
        folder = self.folder / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (folder / name).write_text(f"{content}\n")
        (folder / "memory.stat").write_text(f"anon 1\n{stat}\n")


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    return Kernel(tmp_path)


def memories(groups: tuple[ControlGroup, ...]) -> list[tuple[int, int] | None]:
    return [group.memory() for group in groups]


V1, V2 = "write_1", "write"
#: By what they show: groups with limit, use and what is reclaimable; the names of this process's groups;
#: mounts; and the memory of each group that is seen.
GROUPS: dict[str, tuple[list[tuple[Any, ...]], str, list[tuple[str, ...]], list[tuple[int, int] | None]]] = {
    "a container sees its own group as the root": (
        [(V2, "cgroup", 1000 * MIB, 600 * MIB, 100 * MIB)],
        "0::/\n",
        [("/", "cgroup", "cgroup2")],
        [(500 * MIB, 1000 * MIB)],
    ),
    "a container without a view of its own has a group of the host, and any above may have a limit": (
        [(V2, "cgroup/yarn/container_1", "max", 600 * MIB), (V2, "cgroup/yarn", 2000 * MIB, 900 * MIB)],
        "0::/yarn/container_1\n",
        [("/", "cgroup", "cgroup2")],
        [None, (1100 * MIB, 2000 * MIB), None],
    ),
    "version 1 has memory in a hierarchy of its own": (
        [
            (V1, "memory/jobs/one", 500 * MIB, 400 * MIB, 50 * MIB),
            (V1, "memory/jobs", NO_LIMIT_OF_VERSION_1, 700 * MIB),
            (V1, "memory", NO_LIMIT_OF_VERSION_1, 900 * MIB),
            (V1, "cpu/jobs/one", 1, 1),
        ],
        "5:cpu,cpuacct:/jobs/one\n4:memory:/jobs/one\n1:name=systemd:/\n0::/other\n",
        [
            ("/", "cpu", "cgroup", "rw,cpu,cpuacct"),
            ("/", "memory", "cgroup", "rw,memory"),
            ("/", "disk", "ext4"),
        ],
        [(150 * MIB, 500 * MIB), None, None],
    ),
    "a mount may begin below the root, as in a container that has the host's names of its groups": (
        [(V1, "memory", 500 * MIB, 400 * MIB)],
        "4:memory:/docker/1\n",
        [("/docker/1", "memory", "cgroup", "rw,memory")],
        [(100 * MIB, 500 * MIB)],
    ),
    "a name may have blanks": (
        [(V2, "a place/a group", 500 * MIB, 400 * MIB)],
        "0::/the root/a group\n",
        [(r"/the\040root", "a place", "cgroup2")],
        [(100 * MIB, 500 * MIB), None],
    ),
    **{
        f"a group that is not seen, {name}, has what is mounted above it": (
            [(V2, "cgroup", 500 * MIB, 400 * MIB)],
            f"0::{name}\n",
            [(root, "cgroup", "cgroup2")],
            [(100 * MIB, 500 * MIB)],
        )
        for name, root in (("/elsewhere/1", "/docker/1"), ("/../sibling", "/"))
    },
}


@pytest.mark.parametrize("name", GROUPS)
def test_which_groups_are_seen_and_what_they_leave(kernel: Kernel, name: str) -> None:
    groups, names, mounts, expected = GROUPS[name]
    for write, *group in groups:
        getattr(kernel, write)(*group)
    found = kernel.tells(names, *(kernel.mount(*mount) for mount in mounts))
    assert memories(found) == expected
    assert len({group.folder for group in found}) == len(found)


def test_where_there_are_no_control_groups_nothing_is_found(tmp_path: Path) -> None:
    assert control_groups(tmp_path) == ()


def test_a_group_that_tells_something_else_has_no_limit(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("500\n")
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "memory.stat").write_text("anon 1\n")
    assert ControlGroup(tmp_path, "cgroup2").memory() is None


def test_who_has_least_to_spare_counts(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large host needs a large reserve: it may be short of memory while a container has less left."""
    kernel.write("cgroup", 1000 * MIB, 600 * MIB)
    groups = kernel.tells("0::/\n", kernel.mount("/", "cgroup", "cgroup2"))
    monkeypatch.setattr(memory, "control_groups", lambda: groups)
    monkeypatch.setattr(memory, "_of_host", lambda: Room(1000 * MIB, 2000 * MIB))
    container = f"container ({kernel.folder}/cgroup)"
    assert available_room() == Room(400 * MIB, 1000 * MIB, container)
    monkeypatch.setattr(memory, "_of_host", lambda: Room(500 * MIB, 100_000 * MIB))
    assert available_room() == Room(500 * MIB, 100_000 * MIB)


def test_a_limit_of_the_address_space_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark sets one for its workers if ``spark.executor.pyspark.memory`` is set, and slots inherit it."""
    monkeypatch.setattr(memory, "control_groups", list)
    monkeypatch.setattr(memory, "_of_host", lambda: Room(10**12, 10**12))
    assert available_room() == Room(10**12, 10**12)
    limit = 2**33
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    monkeypatch.setattr(memory, "_memory_of_process", lambda: (limit - MIB, limit // 4))
    assert available_room() == Room(10**12, 10**12), "most of its address space is only reserved"
    monkeypatch.setattr(memory, "_memory_of_process", lambda: (limit - MIB, limit // 2))
    found = available_room()
    assert found.total_bytes == limit
    assert 0 < found.left_bytes < limit
    assert "spark.executor.pyspark.memory" in found.of


GIB = 1024**3


HOST = Room(8 * GIB, 16 * GIB)
#: A part of the machine is left to others, and never less than a fixed amount, as the documentation says.
RESERVES = [(64 * GIB, int(64 * GIB * 0.02)), (GIB, 64 * MIB)]


def guard(used: Callable[[], int], limit_bytes: int | None, room: Room | None = HOST) -> MemoryGuard:
    return MemoryGuard("slot p-1[0]", limit_bytes, used, lambda: room)


@pytest.mark.parametrize(
    ("used", "limit_bytes", "room", "next_s"),
    [
        (200 * MIB, 200 * MIB, HOST, CHECK_INTERVAL_S),
        (10**15, None, HOST, CHECK_INTERVAL_S),
        (0, 1, None, CHECK_INTERVAL_S),
        (100 * MIB, None, None, CHECK_INTERVAL_S),
        # little room cannot be filled between two looks
        *((0, None, Room(left, GIB), left / FILL_BYTES_PER_S) for left in (64 * MIB, 300 * MIB)),
        *(
            (0, None, Room(left + 1, total), min((left + 1) / FILL_BYTES_PER_S, CHECK_INTERVAL_S))
            for total, left in RESERVES
        ),
    ],
)
def test_what_is_enough_and_when_it_looks_again(
    used: int, limit_bytes: int | None, room: Room | None, next_s: float
) -> None:
    assert guard(lambda: used, limit_bytes, room).check() == next_s


@pytest.mark.parametrize(
    ("used", "limit_bytes", "room", "why"),
    [
        (200 * MIB + 1, 200 * MIB, HOST, "its limit is 200 MiB"),
        (100 * MIB, 100 * MIB - 1, None, "its limit is 100 MiB"),
        *((0, None, Room(left - 1, total), "its host has") for total, left in RESERVES),
        (0, 10 * GIB, Room(MIB, 16 * GIB), "its host has"),
        (100 * MIB, None, Room(10 * MIB, 4 * GIB), "100 MiB, and its host has 10 MiB of 4,096 MiB left"),
        (
            0,
            None,
            Room(10 * MIB, GIB, "container (/groups/jobs)"),
            r"its container \(/groups/jobs\) has 10 MiB of 1,024 MiB",
        ),
        (
            1_536 * MIB,
            GIB,
            HOST,
            r"^slot p-1\[0\] uses 1,536 MiB, and its limit is 1,024 MiB: "
            r"use more hosts or memory, .*StateTtlConfig.*set_slot_memory_limit",
        ),
    ],
)
def test_what_is_too_little_and_what_is_told_of_it(
    used: int, limit_bytes: int | None, room: Room | None, why: str
) -> None:
    with pytest.raises(SlotMemoryError, match=why) as caught:
        guard(lambda: used, limit_bytes, room).check()
    assert not caught.value.recoverable, "the same records would need as much again"
    assert isinstance(caught.value, MemoryError)


def test_it_looks_until_there_is_too_little() -> None:
    waited: list[float] = []
    error = guard(lambda: (100 + 40 * len(waited)) * MIB, 200 * MIB).watch(waited.append)
    assert str(error).startswith("slot p-1[0] uses 220 MiB, and its limit is 200 MiB: ")
    assert waited == [CHECK_INTERVAL_S] * 3


@pytest.mark.timeout(60)
class TestInASlot:
    """A real process, whose function is in the middle of a record when the limit is passed."""

    def test_it_ends_in_the_middle_of_a_record(self, driver: Driver) -> None:
        """The memory was checked after a frame only: a record that needs too much could fill the host."""
        slot = driver.start_slot(FillsMemory(), memory_bytes=400 * MIB)
        with pytest.raises(SlotLostError):
            slot.feed(1, [("a", 500 * MIB)])
        error = next_event(driver.events, SlotLost).error
        assert isinstance(error, SlotMemoryError)
        assert re.match(r"slot count-1\[0\] uses .* MiB, and its limit is 400 MiB: ", str(error))

    def test_it_goes_on_below_its_limit(self, driver: Driver) -> None:
        slot = driver.start_slot(Echo(), memory_bytes=4 * GIB)
        assert slot.feed(1, [("a", 1)])[0] == [("a", 1)]

    def test_none_is_started_in_too_little_address_space(
        self, driver: Driver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Threads and allocators failed at random, most often in the first checkpoint."""
        monkeypatch.setattr(resource, "getrlimit", lambda _: (700 * MIB, 700 * MIB))
        told = r"slot count-1\[0\] would have 700 MiB of address space, and needs 1,536 MiB .*pyspark.memory"
        with pytest.raises(SlotMemoryError, match=told):
            driver.start_slot(Echo())
        assert isinstance(next_event(driver.events, SlotLost).error, SlotMemoryError)


class TestRealReaders:
    """What the machine that runs the tests says of itself."""

    def test_resident_memory_is_plausible(self) -> None:
        peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        assert 5 * MIB < resident_bytes() <= peak_bytes + 16 * MIB

    def test_resident_memory_grows_with_what_is_held(self) -> None:
        before = resident_bytes()
        with mmap.mmap(-1, 64 * MIB) as held:  # not from memory that tests before this one have freed
            for _ in range(64):
                held.write(b"\x01" * MIB)
            grown = resident_bytes() - before
        assert 32 * MIB < grown < 128 * MIB

    def test_room_is_plausible(self) -> None:
        room = available_room()
        assert 0 < room.left_bytes <= room.total_bytes
        assert room.total_bytes > resident_bytes()
