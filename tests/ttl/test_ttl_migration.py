"""Migration to and from time to live after a restore, and what it refuses (T17, T18)."""

import pytest
from backend_support import (
    ALL_KEY_GROUPS,
    MemoryReader,
    entries,
    make_backend,
    one_of_each_kind,
    prepare,
    take_snapshot,
    write,
)
from slot_functions import Mean
from tiers import cases
from ttl_contract import ClockedBackend, with_ttl

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap.backend import HeapRestoreOperation
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.errors import StateMigrationError
from pyflinkstate.testing import ManualClock

LONG, STRING = Types.LONG(), Types.STRING()
KINDS = ["value", "list", "map", "reducing", "aggregating"]

#: What is written into each kind, what is stored then without timestamps, and how it is written and read.
WRITTEN = {"value": 5, "list": ["a", "b"], "map": {"a": 1, "none": None}, "reducing": 5, "aggregating": 5}
STORED = {**WRITTEN, "aggregating": [5, 1]}
READ = {**WRITTEN, "aggregating": 5.0}
EMPTY = {"value": None, "list": [], "map": {}, "reducing": None, "aggregating": None}
METHODS = {
    "value": ("update", lambda state: state.value()),
    "list": ("add_all", lambda state: list(state.get())),
    "map": ("put_all", lambda state: dict(state.items())),
    "reducing": ("add", lambda state: state.get()),
    "aggregating": ("add", lambda state: state.get()),
}


#: Each map and each way to declare a type in the quick tier; all pairs of them in the full one.
WAYS = [f"{table}, {types}" for table in ("copy on write", "nested maps") for types in ("typed", "untyped")]


@pytest.fixture(params=cases(WAYS, quick=["copy on write, untyped", "nested maps, typed"]))
def way(request):
    return request.param


@pytest.fixture
def clocked(way):
    return ClockedBackend(way.startswith("copy on write"))


@pytest.fixture
def declared(way):
    """Gives a type as it is declared, or what stands for it when it is left out."""
    return lambda type_info: type_info if way.endswith(", typed") else Types.PICKLED_BYTE_ARRAY()


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def plain(kind, declared):
    return one_of_each_kind(declared)[kind]


@pytest.fixture
def expiring(kind, declared):
    return with_ttl(one_of_each_kind(declared)[kind])


def stamped(kind, stored, now_ms):
    if kind == "list":
        return [(now_ms, element) for element in stored]
    if kind == "map":
        return {key: (now_ms, value) for key, value in stored.items()}
    return now_ms, stored


def write_some(backend, descriptor, keys=("k",)):
    state = backend.get_partitioned_state(descriptor)
    for key in keys:
        backend.set_current_key(key)
        getattr(state, METHODS[descriptor.name][0])(WRITTEN[descriptor.name])


def read(backend, descriptor, key="k"):
    backend.set_current_key(key)
    return METHODS[descriptor.name][1](backend.get_partitioned_state(descriptor))


def restored_at_1000(clocked, descriptor):
    """Return a backend that is restored at 1000 from state that was written at 0."""
    write_some(clocked.backend, descriptor)
    clocked.at(1000)
    return clocked.restored(take_snapshot(clocked.backend))


@pytest.fixture
def from_plain(clocked, plain):
    return restored_at_1000(clocked, plain)


@pytest.fixture
def from_ttl(clocked, expiring):
    return restored_at_1000(clocked, expiring)


# --- to time to live ---------------------------------------------------------------------------------


def test_plain_state_lives_on_from_the_migration(clocked, from_plain, kind, expiring):
    """T18."""
    from_plain.get_partitioned_state(expiring)
    clocked.at(1099)
    assert read(from_plain, expiring) == READ[kind]
    clocked.at(1100)
    assert read(from_plain, expiring) == EMPTY[kind]


def test_plain_state_is_stamped_when_it_is_asked_for_not_when_it_is_restored(
    clocked, from_plain, kind, expiring
):
    """T18."""
    clocked.at(5000)
    from_plain.get_partitioned_state(expiring)
    assert entries(from_plain, kind) == [("k", stamped(kind, STORED[kind], 5000))]


def test_folding_goes_on_from_the_migrated_value(clocked, declared):
    descriptors = one_of_each_kind(declared)
    for kind in ("reducing", "aggregating"):
        write_some(clocked.backend, descriptors[kind])
    clocked.at(1000)
    restored = clocked.restored(take_snapshot(clocked.backend))
    results = {}
    for kind in ("reducing", "aggregating"):
        state = restored.get_partitioned_state(with_ttl(one_of_each_kind(declared)[kind]))
        state.add(7)
        results[kind] = state.get()
    assert results == {"reducing": 12, "aggregating": 6.0}


# --- from time to live -------------------------------------------------------------------------------


def test_without_time_to_live_what_had_expired_is_there_again(clocked, from_ttl, kind, plain):
    """T18: it is not checked."""
    assert read(from_ttl, plain) == READ[kind]
    clocked.at(10**15)
    assert read(from_ttl, plain) == READ[kind]


def test_without_time_to_live_nothing_is_left_of_the_timestamps(from_ttl, kind, plain):
    from_ttl.get_partitioned_state(plain)
    assert entries(from_ttl, kind) == [("k", STORED[kind])]


def test_with_time_to_live_on_both_sides_timestamps_are_kept(clocked, from_ttl, kind, expiring):
    """T17."""
    from_ttl.get_partitioned_state(expiring)
    assert entries(from_ttl, kind) == [("k", stamped(kind, STORED[kind], 0))]
    assert read(from_ttl, expiring) == EMPTY[kind]


# --- beside an open snapshot -------------------------------------------------------------------------


@pytest.mark.parametrize("to_ttl", [True, False], ids=["to ttl", "from ttl"])
def test_a_snapshot_taken_before_the_migration_holds_the_old_type(kind, declared, plain, expiring, to_ttl):
    clocked = ClockedBackend(async_snapshots=True)
    old, new = (plain, expiring) if to_ttl else (expiring, plain)
    write_some(clocked.backend, old, range(50))
    restored = clocked.restored(take_snapshot(clocked.backend))
    stored = sorted(entries(restored, kind))
    resources = prepare(restored)
    clocked.at(1000)
    restored.get_partitioned_state(new)
    write_some(restored, new, range(25, 75))
    restored.get_partitioned_state(new).clear()
    again = clocked.restored(write(restored, resources))
    assert sorted(entries(again, kind)) == stored
    assert read(again, old, 30) == (READ[kind] if to_ttl else EMPTY[kind])


@pytest.mark.parametrize("to_ttl", [True, False], ids=["to ttl", "from ttl"])
def test_what_changes_in_place_after_the_migration_is_not_in_a_snapshot_taken_before(to_ttl):
    clocked = ClockedBackend(async_snapshots=True)
    kinds = (ValueStateDescriptor("v"), with_ttl(ValueStateDescriptor("v")))
    old, new = kinds if to_ttl else kinds[::-1]
    clocked.backend.get_partitioned_state(old).update([1])
    restored = clocked.restored(take_snapshot(clocked.backend))
    resources = prepare(restored)
    restored.get_partitioned_state(new).value().append(2)
    again = clocked.restored(write(restored, resources))
    assert again.get_partitioned_state(old).value() == [1]
    assert restored.get_partitioned_state(new).value() == [1, 2]


# --- what is refused -----------------------------------------------------------------------------------

REFUSED = {
    "value type": (lambda: ValueStateDescriptor("s", LONG), lambda: ValueStateDescriptor("s", STRING)),
    "pickled to declared": (lambda: ValueStateDescriptor("s"), lambda: ValueStateDescriptor("s", LONG)),
    "element type": (lambda: ListStateDescriptor("s", LONG), lambda: ListStateDescriptor("s", STRING)),
    "user key type": (
        lambda: MapStateDescriptor("s", LONG, LONG),
        lambda: MapStateDescriptor("s", STRING, LONG),
    ),
    "user value type": (
        lambda: MapStateDescriptor("s", LONG, LONG),
        lambda: MapStateDescriptor("s", LONG, STRING),
    ),
    "reduced type": (
        lambda: ReducingStateDescriptor("s", max, LONG),
        lambda: ReducingStateDescriptor("s", max, Types.DOUBLE()),
    ),
    "accumulator type": (
        lambda: AggregatingStateDescriptor("s", Mean(), Types.LIST(LONG)),
        lambda: AggregatingStateDescriptor("s", Mean(), Types.LIST(Types.DOUBLE())),
    ),
    "kind": (lambda: ValueStateDescriptor("s", LONG), lambda: ReducingStateDescriptor("s", max, LONG)),
    "a value of lists to a list": (
        lambda: ValueStateDescriptor("s", Types.LIST(LONG)),
        lambda: ListStateDescriptor("s", LONG),
    ),
}


@pytest.mark.parametrize("change", REFUSED)
@pytest.mark.parametrize("ttl", ["before", "after", "both"])
def test_another_type_beside_time_to_live_is_refused(clocked, change, ttl):
    old, new = (make() for make in REFUSED[change])
    clocked.backend.get_partitioned_state(old if ttl == "after" else with_ttl(old))
    restored = clocked.restored(take_snapshot(clocked.backend))
    with pytest.raises(StateMigrationError, match="cannot change"):
        restored.get_partitioned_state(new if ttl == "before" else with_ttl(new))


def test_after_a_refusal_the_state_can_be_asked_for_as_it_was(clocked):
    clocked.backend.get_partitioned_state(ValueStateDescriptor("s", LONG)).update(1)
    restored = clocked.restored(take_snapshot(clocked.backend))
    with pytest.raises(StateMigrationError):
        restored.get_partitioned_state(with_ttl(ValueStateDescriptor("s", STRING)))
    assert restored.get_partitioned_state(ValueStateDescriptor("s", LONG)).value() == 1


# --- subtasks that differ ------------------------------------------------------------------------------


def two_subtasks(clock, before, after, migrated):
    """Return the snapshots of two subtasks, restored from plain or expiring state; one is migrated."""
    whole = make_backend(clock=clock)
    write_some(whole, before, range(40))
    snapshot = take_snapshot(whole)
    handles = []
    for subtask in range(2):
        backend = make_backend(own=key_group_range(128, 2, subtask), clock=clock)
        HeapRestoreOperation(backend, MemoryReader()).restore([snapshot])
        if subtask == migrated:
            backend.get_partitioned_state(after)
        handles.append(take_snapshot(backend))
    return handles


def restored_into_one(clock, handles):
    backend = make_backend(own=ALL_KEY_GROUPS, clock=clock)
    HeapRestoreOperation(backend, MemoryReader()).restore(handles)
    return backend


migrated = pytest.mark.parametrize("migrated", [0, 1], ids=["first migrated", "second migrated"])


@migrated
def test_what_one_subtask_has_stamped_keeps_its_time_beside_a_plain_file(kind, plain, expiring, migrated):
    """T17: whichever file is read first."""
    clock = ManualClock(1000)
    handles = two_subtasks(clock, plain, expiring, migrated)
    clock.now_ms = 1050
    backend = restored_into_one(clock, handles)
    backend.get_partitioned_state(expiring)
    mine = key_group_range(128, 2, migrated)
    assert dict(entries(backend, kind)) == {
        key: stamped(kind, STORED[kind], 1000 if backend.key_group_of(key) in mine else 1050)
        for key in range(40)
    }


@migrated
def test_a_file_migrated_from_ttl_and_one_not_yet_are_restored_into_one(kind, plain, expiring, migrated):
    clock = ManualClock(0)
    handles = two_subtasks(clock, expiring, plain, migrated)
    clock.now_ms = 1000
    backend = restored_into_one(clock, handles)
    for key in range(40):
        assert read(backend, plain, key) == READ[kind]
