"""The resources that a program requests for operators (``pyflink.datastream.slot_sharing_group``).

Spark places tasks and state slots, so these values are kept and have no effect.
"""

from __future__ import annotations

import attrs

from pyflinkstate.api.checks import at_least
from pyflinkstate.errors import ConfigurationError

_KIBI = 1024


@attrs.frozen(order=True, repr=False, init=False)
class MemorySize:
    """A number of bytes.

    Args:
        bytes_size: the number, 0 or more.

    Raises:
        ConfigurationError: it is not such a number.

    >>> str(MemorySize.of_mebi_bytes(100)), MemorySize(bytes_size=2048).get_kibi_bytes()
    ('100 mb', 2)
    """

    _bytes: int

    def __init__(self, bytes_size: int) -> None:
        self.__attrs_init__(at_least("MemorySize: the number of bytes", bytes_size, 0))

    @staticmethod
    def of_mebi_bytes(mebi_bytes: int) -> MemorySize:
        """Return a size in MiB."""
        return MemorySize(mebi_bytes * _KIBI**2)

    def get_bytes(self) -> int:
        """Return the number of bytes."""
        return self._bytes

    def get_kibi_bytes(self) -> int:
        """Return the size in KiB."""
        return self._bytes // _KIBI

    def get_mebi_bytes(self) -> int:
        """Return the size in MiB."""
        return self._bytes // _KIBI**2

    def get_gibi_bytes(self) -> int:
        """Return the size in GiB."""
        return self._bytes // _KIBI**3

    def get_tebi_bytes(self) -> int:
        """Return the size in TiB."""
        return self._bytes // _KIBI**4

    def __str__(self) -> str:
        power = 0
        while power < 4 and self._bytes and self._bytes % _KIBI ** (power + 1) == 0:
            power += 1
        unit = ("bytes", "kb", "mb", "gb", "tb")[power]
        return f"{self._bytes // _KIBI**power} {unit}"

    def __repr__(self) -> str:
        return f"MemorySize({self._bytes})"


@attrs.frozen
class SlotSharingGroup:
    """A name for operators that may share a slot, and the resources of each; see :meth:`builder`.

    As in Flink, groups that ask for the same are equal, whatever their names.
    """

    _name: str = attrs.field(eq=False)
    _cpu_cores: float | None = None
    _task_heap_memory: MemorySize | None = None
    _task_off_heap_memory: MemorySize | None = None
    _managed_memory: MemorySize | None = None
    _external_resources: dict[str, float] = attrs.field(factory=dict, converter=dict, hash=False)

    @staticmethod
    def builder(name: str) -> SlotSharingGroup.Builder:
        """Return a builder of a group with this name."""
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the name."""
        return self._name

    def get_cpu_cores(self) -> float | None:
        """Return the requested number of cores; None if it was not set."""
        return self._cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the requested heap memory; None if it was not set."""
        return self._task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the requested off-heap memory; None if it was not set."""
        return self._task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the requested managed memory; None if it was not set."""
        return self._managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return the other resources, by name."""
        return dict(self._external_resources)

    class Builder:
        """Makes a :class:`SlotSharingGroup`."""

        def __init__(self, name: str) -> None:
            self._group = SlotSharingGroup(name)

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the number of cores, more than 0."""
            return self._with(cpu_cores=float(cpu_cores))

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the heap memory, more than 0 bytes."""
            return self._with(task_heap_memory=task_heap_memory)

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the heap memory, in MiB."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the off-heap memory."""
            return self._with(task_off_heap_memory=task_off_heap_memory)

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the off-heap memory, in MiB."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the managed memory."""
            return self._with(managed_memory=managed_memory)

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the managed memory, in MiB."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set the amount of another resource. It replaces an earlier amount under that name."""
            return self._with(external_resources={**self._group.get_external_resources(), name: float(value)})

        def build(self) -> SlotSharingGroup:
            """Return the group; with cores and heap, memory that was not set is 0.

            Raises:
                ConfigurationError: cores are set without heap, or anything else without both.
            """
            group = self._group
            if group == SlotSharingGroup(group.get_name()):
                return group
            if group.get_cpu_cores() is None or group.get_task_heap_memory() is None:
                raise ConfigurationError(
                    f"SlotSharingGroup {group.get_name()!r}: cores and task heap memory are set together"
                )
            return attrs.evolve(
                group,
                task_off_heap_memory=group.get_task_off_heap_memory() or MemorySize(0),
                managed_memory=group.get_managed_memory() or MemorySize(0),
            )

        def _with(self, **changes: object) -> SlotSharingGroup.Builder:
            self._group = attrs.evolve(self._group, **changes)  # type: ignore[arg-type]
            return self
