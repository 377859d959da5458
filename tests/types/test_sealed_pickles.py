"""What a file calls pickled is loaded when the program asks for it as pickled, and never before."""

import pickle
import threading

import attrs
import pytest
from backend_support import MemoryReader, MemoryStreams, make_backend, restore, state_of, take_snapshot

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    OperatorStateSnapshotStrategy,
)
from pyflinkstate.backends.types.internal_types import sealed
from pyflinkstate.backends.types.table import type_from_json, type_to_json
from pyflinkstate.errors import IncompatibleCheckpointError, StateMigrationError

LONG, STRING, PICKLED = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()
loaded = []


def note(name):
    loaded.append(name)
    return name


@attrs.frozen
class Trap:
    """Notes that it was unpickled."""

    name: str

    def __reduce__(self):
        return note, (self.name,)

    def __deepcopy__(self, memo):
        return self  # state takes a copy of what it stores; without this, a pickle would make it


@pytest.fixture(autouse=True)
def _nothing_loaded():
    loaded.clear()


NESTED = {
    "alone": (PICKLED, Trap("t")),
    "tuple": (Types.TUPLE([LONG, PICKLED]), (1, Trap("t"))),
    "row": (Types.ROW([PICKLED, LONG]), (Trap("t"), 1)),
    "array": (Types.OBJECT_ARRAY(PICKLED), [Trap("t"), None]),
    "list": (Types.LIST(PICKLED), [Trap("t")]),
    "map": (Types.MAP(PICKLED, PICKLED), {("k", 1): Trap("t"), "none": None}),
}


def expected(value):
    """Return what becomes of a value: each trap gives its name."""
    return pickle.loads(pickle.dumps(value))


def written(descriptor, value, key_type=STRING):
    backend = make_backend(key_type)
    state_of(backend, descriptor, "k").update(value)
    return take_snapshot(backend)


@pytest.mark.parametrize("name", NESTED)
def test_a_restore_loads_nothing_and_who_asks_gets_it(name):
    type_info, value = NESTED[name]
    descriptor = ValueStateDescriptor("s", type_info)
    handle = written(descriptor, value)
    backend = restore([handle], STRING)
    again = restore([take_snapshot(backend)], STRING)
    assert loaded == [], "nor does it take it to write what nobody asked for"
    found = state_of(again, descriptor, "k").value()
    assert loaded == ["t"]
    wanted = expected(value)
    assert (list(found) if name == "row" else found) == (list(wanted) if name == "row" else wanted)


def test_what_expires_is_loaded_with_its_time():
    descriptor = ValueStateDescriptor("s", PICKLED)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.milliseconds(10)).build())
    handle = written(descriptor, Trap("t"))
    backend = restore([handle], STRING, clock=lambda: 9)
    assert loaded == []
    assert state_of(backend, descriptor, "k").value() == "t"
    assert state_of(restore([handle], STRING, clock=lambda: 10), descriptor, "k").value() is None


@pytest.mark.parametrize(
    "descriptor",
    [
        ValueStateDescriptor("s", LONG),
        ValueStateDescriptor("s", Types.LIST(STRING)),
        ListStateDescriptor("s", LONG),
    ],
    ids=lambda descriptor: str(descriptor.stored_type),
)
def test_state_of_a_declared_type_is_not_loaded_from_pickles(descriptor):
    """Whatever a file says: the program has declared something else."""
    backend = restore([written(ValueStateDescriptor("s", PICKLED), Trap("t"))], STRING)
    with pytest.raises(StateMigrationError, match="PICKLED_BYTE_ARRAY"):
        state_of(backend, descriptor, "k")
    assert loaded == []


def test_what_a_program_allows_for_one_state_is_not_allowed_for_another():
    backend = make_backend(STRING)
    for name in ("mine", "yours"):
        state_of(backend, ValueStateDescriptor(name, PICKLED), "k").update(Trap(name))
    mine, yours = (ValueStateDescriptor(name, STRING) for name in ("mine", "yours"))
    mine.allow_pickled_restore()
    restored = restore([take_snapshot(backend)], STRING)
    loaded.clear()
    assert state_of(restored, mine, "k").value() == "mine"
    with pytest.raises(StateMigrationError, match="loading a pickle runs code"):
        state_of(restored, yours, "k")
    assert loaded == ["mine"]


def test_what_was_migrated_is_written_as_declared_and_needs_no_leave_any_more():
    backend = make_backend(STRING)
    state_of(backend, ValueStateDescriptor("s", PICKLED), "k").update(1)
    descriptor = ValueStateDescriptor("s", LONG)
    descriptor.allow_pickled_restore()
    migrated = restore([take_snapshot(backend)], STRING)
    state_of(migrated, descriptor, "k")
    again = restore([take_snapshot(migrated)], STRING)
    assert state_of(again, ValueStateDescriptor("s", LONG), "k").value() == 1


class Gone:
    """A class that the next version of the program does not have."""


@pytest.mark.parametrize("key_type", [STRING, PICKLED], ids=str)
def test_a_class_that_is_gone_is_an_error_that_says_what_to_do(monkeypatch, key_type):
    descriptor = ValueStateDescriptor("s", PICKLED)
    backend = restore([written(descriptor, Gone(), key_type)], key_type)
    monkeypatch.delattr(f"{__name__}.Gone")
    with pytest.raises(
        StateMigrationError,
        match=r"state 's', key 'k': .*AttributeError.*Gone.*keep its class in the module",
    ):
        state_of(backend, descriptor, "k")
    with pytest.raises(StateMigrationError, match="state 's'"):
        state_of(backend, descriptor, "k")


def test_to_load_pickles_changes_nothing_for_the_next_checkpoint():
    descriptor = MapStateDescriptor("s", STRING, PICKLED)
    backend = make_backend(STRING)
    for key in ("a", "b"):
        state_of(backend, descriptor, key).put("x", [1])
    restored = restore([take_snapshot(backend)], STRING)
    restored.track_changes()
    state_of(restored, descriptor, "a").put("y", [2])
    assert [set(changed) for changed in restored.take_changes()["s"] if changed] == [{"a"}]


def test_namespaces_are_pickled_only_where_keys_are():
    backend = make_backend(STRING)
    backend.set_current_key("k")
    backend.get_partitioned_state(ValueStateDescriptor("s", LONG), Trap("t"), PICKLED).update(1)
    handle = take_snapshot(backend)
    loaded.clear()
    with pytest.raises(IncompatibleCheckpointError, match="'s' has pickled namespaces"):
        restore([handle], STRING)
    assert loaded == []


class TestOperatorState:
    def restored(self, fill):
        backend = DefaultOperatorStateBackend()
        fill(backend)
        strategy = OperatorStateSnapshotStrategy(backend)
        handle = strategy.async_snapshot(
            strategy.sync_prepare_resources(), MemoryStreams(), threading.Event()
        )
        loaded.clear()  # copies are made by the same means
        made = DefaultOperatorStateBackend()
        OperatorStateRestoreOperation(made, MemoryReader()).restore([handle])
        assert loaded == []
        return made

    def test_a_list(self):
        descriptor = ListStateDescriptor("s", PICKLED)
        made = self.restored(lambda backend: backend.get_list_state(descriptor).add(Trap("t")))
        with pytest.raises(StateMigrationError):
            made.get_list_state(ListStateDescriptor("s", LONG))
        assert loaded == []
        assert [list(made.get_list_state(descriptor)) for _ in range(2)] == [["t"], ["t"]]

    def test_of_a_class_that_is_gone_nothing_is_lost(self, monkeypatch):
        descriptor = ListStateDescriptor("s", PICKLED)
        made = self.restored(lambda backend: backend.get_list_state(descriptor).add(Gone()))
        with monkeypatch.context() as patch:
            patch.delattr(f"{__name__}.Gone")
            for _ in range(2):
                with pytest.raises(
                    StateMigrationError, match=r"operator state 's': .*keep its class in the module"
                ):
                    made.get_list_state(descriptor)
        (found,) = made.get_list_state(descriptor)
        assert isinstance(found, Gone)

    def test_broadcast_state(self):
        descriptor = MapStateDescriptor("s", STRING, PICKLED)
        made = self.restored(lambda backend: backend.get_broadcast_state(descriptor).put("k", Trap("t")))
        with pytest.raises(StateMigrationError):
            made.get_list_state(ListStateDescriptor("s", PICKLED))
        assert loaded == []
        assert dict(made.get_broadcast_state(descriptor).items()) == {"k": "t"}


@pytest.mark.parametrize("name", NESTED)
def test_files_know_nothing_of_seals(name):
    type_info, _ = NESTED[name]
    assert sealed(type_info) != type_info
    assert type_from_json(type_to_json(sealed(type_info))) == type_info
    assert sealed(Types.MAP(STRING, LONG)) == Types.MAP(STRING, LONG)
