"""The memory guard: when it looks, what it minds, and what it says."""

from __future__ import annotations

import mmap
import re
import resource

import pytest
from slot_functions import Echo, FillsMemory
from support_runtime import next_event
from support_slots import Driver

from pyflinkstate.errors import SlotLostError, SlotMemoryError
from pyflinkstate.runtime.slots.control import SlotLost
from pyflinkstate.runtime.slots.memory import (
    CHECK_INTERVAL_S,
    FILL_BYTES_PER_S,
    RESERVE_BYTES,
    RESERVE_SHARE,
    MemoryGuard,
    Room,
    available_room,
    resident_bytes,
)

MIB = 1024**2
GIB = 1024**3


class Machine:
    """What the guard is told, to be changed by the test."""

    def __init__(self) -> None:
        self.used = 100 * MIB
        self.room: Room | None = Room(8 * GIB, 16 * GIB)

    def read_used(self) -> int:
        return self.used

    def read_room(self) -> Room | None:
        return self.room

    def guard(self, limit_bytes: int | None = None) -> MemoryGuard:
        return MemoryGuard("slot p-1[0]", limit_bytes, self.read_used, self.read_room)


@pytest.fixture
def machine() -> Machine:
    return Machine()


class TestLimit:
    def test_up_to_the_limit_is_allowed(self, machine: Machine) -> None:
        machine.used = 200 * MIB
        machine.guard(200 * MIB).check()

    def test_more_is_not(self, machine: Machine) -> None:
        machine.used = 200 * MIB + 1
        with pytest.raises(SlotMemoryError):
            machine.guard(200 * MIB).check()

    def test_without_a_limit_only_the_machine_counts(self, machine: Machine) -> None:
        machine.used = 10**15
        machine.guard().check()

    def test_a_machine_that_does_not_tell_is_no_reason_to_fail(self, machine: Machine) -> None:
        machine.room, machine.used = None, 0
        machine.guard(1).check()

    def test_the_limit_counts_where_the_machine_does_not_tell(self, machine: Machine) -> None:
        machine.room = None
        with pytest.raises(SlotMemoryError):
            machine.guard(100 * MIB - 1).check()


class TestRoom:
    """A part of the machine is left to others, and never less than a fixed amount."""

    @pytest.mark.parametrize(("total", "reserve"), [(64 * GIB, int(64 * GIB * 0.02)), (GIB, 64 * MIB)])
    def test_the_reserve_must_stay(self, machine: Machine, total: int, reserve: int) -> None:
        machine.room = Room(reserve + 1, total)
        machine.guard().check()
        machine.room = Room(reserve - 1, total)
        with pytest.raises(SlotMemoryError):
            machine.guard().check()

    def test_the_reserve_is_what_the_documentation_says(self) -> None:
        assert (RESERVE_SHARE, RESERVE_BYTES) == (0.02, 64 * MIB)

    def test_it_counts_below_the_limit_too(self, machine: Machine) -> None:
        machine.room = Room(MIB, 16 * GIB)
        with pytest.raises(SlotMemoryError, match="host"):
            machine.guard(10 * GIB).check()


class TestWhenItLooks:
    def test_at_an_interval(self, machine: Machine) -> None:
        assert machine.guard().check() == CHECK_INTERVAL_S

    def test_also_where_the_machine_does_not_tell(self, machine: Machine) -> None:
        machine.room = None
        assert machine.guard().check() == CHECK_INTERVAL_S

    @pytest.mark.parametrize("left", [64 * MIB, 300 * MIB])
    def test_little_room_cannot_be_filled_between_two_looks(self, machine: Machine, left: int) -> None:
        machine.room = Room(left, GIB)
        assert machine.guard().check() == left / FILL_BYTES_PER_S < CHECK_INTERVAL_S

    def test_it_looks_until_there_is_too_little(self, machine: Machine) -> None:
        waited: list[float] = []

        def wait(seconds: float) -> None:
            waited.append(seconds)
            machine.used += 40 * MIB

        error = machine.guard(200 * MIB).watch(wait)
        assert str(error).startswith("slot p-1[0] uses 220 MiB, and its limit is 200 MiB: ")
        assert waited == [CHECK_INTERVAL_S] * 3


class TestMessage:
    def test_it_says_who_has_how_much_and_what_the_limit_is(self, machine: Machine) -> None:
        machine.used = 1_536 * MIB
        with pytest.raises(SlotMemoryError) as caught:
            machine.guard(GIB).check()
        assert str(caught.value).startswith("slot p-1[0] uses 1,536 MiB, and its limit is 1,024 MiB: ")

    def test_it_says_how_much_the_host_has_left(self, machine: Machine) -> None:
        machine.room = Room(10 * MIB, 4 * GIB)
        with pytest.raises(SlotMemoryError, match="uses 100 MiB, and its host has 10 MiB of 4,096 MiB left"):
            machine.guard().check()

    def test_it_says_which_container_it_is(self, machine: Machine) -> None:
        machine.room = Room(10 * MIB, GIB, "container (/groups/jobs)")
        with pytest.raises(SlotMemoryError, match=r"its container \(/groups/jobs\) has 10 MiB of 1,024 MiB"):
            machine.guard().check()

    def test_it_says_what_to_do(self, machine: Machine) -> None:
        machine.used = GIB
        with pytest.raises(SlotMemoryError) as caught:
            machine.guard(MIB).check()
        for help_ in ("more hosts or memory", "StateTtlConfig", "set_slot_memory_limit"):
            assert help_ in str(caught.value)

    def test_the_same_records_would_need_as_much_again(self, machine: Machine) -> None:
        assert not SlotMemoryError("full").recoverable
        assert isinstance(SlotMemoryError("full"), MemoryError)


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
        assert room is not None
        assert 0 < room.left_bytes <= room.total_bytes
        assert room.total_bytes > resident_bytes()
