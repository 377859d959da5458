"""What control groups leave to a process, as the kernel tells it: both versions, hosts and containers."""

from __future__ import annotations

import resource
from pathlib import Path

import attrs
import pytest

from pyflinkstate.runtime.slots import memory
from pyflinkstate.runtime.slots.container_memory import ControlGroup, control_groups
from pyflinkstate.runtime.slots.memory import Room, available_room

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


def test_a_container_sees_its_own_group_as_the_root(kernel: Kernel) -> None:
    kernel.write("cgroup", 1000 * MIB, 600 * MIB, 100 * MIB)
    found = kernel.tells("0::/\n", kernel.mount("/", "cgroup", "cgroup2"))
    assert memories(found) == [(500 * MIB, 1000 * MIB)]


def test_a_container_without_a_view_of_its_own_has_a_group_of_the_host(kernel: Kernel) -> None:
    """As those of YARN, and services: the limit may be of any group above as well."""
    kernel.write("cgroup/yarn/container_1", "max", 600 * MIB)
    kernel.write("cgroup/yarn", 2000 * MIB, 900 * MIB)
    (kernel.folder / "cgroup" / "cgroup.procs").touch()  # the root tells nothing of memory
    found = kernel.tells("0::/yarn/container_1\n", kernel.mount("/", "cgroup", "cgroup2"))
    assert [group.folder.name for group in found] == ["container_1", "yarn", "cgroup"]
    assert memories(found) == [None, (1100 * MIB, 2000 * MIB), None]


def test_version_1_has_memory_in_a_hierarchy_of_its_own(kernel: Kernel) -> None:
    kernel.write_1("memory/jobs/one", 500 * MIB, 400 * MIB, 50 * MIB)
    kernel.write_1("memory/jobs", NO_LIMIT_OF_VERSION_1, 700 * MIB)
    kernel.write_1("memory", NO_LIMIT_OF_VERSION_1, 900 * MIB)
    kernel.write_1("cpu/jobs/one", 1, 1)
    found = kernel.tells(
        "5:cpu,cpuacct:/jobs/one\n4:memory:/jobs/one\n1:name=systemd:/\n0::/other\n",
        kernel.mount("/", "cpu", "cgroup", "rw,cpu,cpuacct"),
        kernel.mount("/", "memory", "cgroup", "rw,memory"),
        kernel.mount("/", "disk", "ext4"),
    )
    assert memories(found) == [(150 * MIB, 500 * MIB), None, None]


def test_a_mount_may_begin_below_the_root(kernel: Kernel) -> None:
    """As in a container that has the host's names of its groups."""
    kernel.write_1("memory", 500 * MIB, 400 * MIB)
    found = kernel.tells("4:memory:/docker/1\n", kernel.mount("/docker/1", "memory", "cgroup", "rw,memory"))
    assert memories(found) == [(100 * MIB, 500 * MIB)]


def test_a_name_may_have_blanks(kernel: Kernel) -> None:
    kernel.write("a place/a group", 500 * MIB, 400 * MIB)
    found = kernel.tells("0::/the root/a group\n", kernel.mount(r"/the\040root", "a place", "cgroup2"))
    assert memories(found) == [(100 * MIB, 500 * MIB), None]


@pytest.mark.parametrize("name", ["/elsewhere/1", "/../sibling"])
def test_a_group_that_is_not_seen_has_what_is_mounted_above_it(kernel: Kernel, name: str) -> None:
    kernel.write("cgroup", 500 * MIB, 400 * MIB)
    root = "/docker/1" if name == "/elsewhere/1" else "/"
    found = kernel.tells(f"0::{name}\n", kernel.mount(root, "cgroup", "cgroup2"))
    assert memories(found) == [(100 * MIB, 500 * MIB)]


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
    assert found is not None
    assert found.total_bytes == limit
    assert 0 < found.left_bytes < limit
    assert "spark.executor.pyspark.memory" in found.of
