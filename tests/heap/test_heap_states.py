"""What all five states promise through the backend: keys, isolation, registration, counting.

Flink's ``StateBackendTestBase``, split by kind; the kinds themselves are in the files beside this one.
"""

import pytest
from backend_support import Mean, make_backend, state_of

from pyflinkstate.api.descriptors import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from pyflinkstate.api.state import AggregatingState, ListState, MapState, ReducingState, ValueState
from pyflinkstate.api.types import Types
from pyflinkstate.backends.keys.key_groups import KeyGroupRange
from pyflinkstate.errors import (
    InvalidKeyError,
    KeyGroupRangeError,
    NoCurrentKeyError,
    StateMigrationError,
    StateRegistrationError,
    StateValueError,
)

LONG, STRING = Types.LONG(), Types.STRING()

MAKERS = {
    "value": lambda name: ValueStateDescriptor(name, LONG),
    "list": lambda name: ListStateDescriptor(name, LONG),
    "map": lambda name: MapStateDescriptor(name, STRING, LONG),
    "reducing": lambda name: ReducingStateDescriptor(name, lambda old, new: old + new, LONG),
    "aggregating": lambda name: AggregatingStateDescriptor(name, Mean(), Types.LIST(LONG)),
}

FACES = {
    "value": ValueState,
    "list": ListState,
    "map": MapState,
    "reducing": ReducingState,
    "aggregating": AggregatingState,
}

#: kind: (store one number, read it back).
ACCESS = {
    "value": (lambda state, number: state.update(number), lambda state: state.value()),
    "list": (lambda state, number: state.update([number]), lambda state: next(iter(state), None)),
    "map": (lambda state, number: state.put("n", number), lambda state: state.get("n")),
    "reducing": (lambda state, number: state.add(number), lambda state: state.get()),
    "aggregating": (lambda state, number: state.add(number), lambda state: state.get()),
}

METHODS_WITHOUT_KEY = {
    "value": [lambda s: s.value(), lambda s: s.update(1), lambda s: s.update(None), lambda s: s.clear()],
    "list": [
        *(lambda s: s.get(), lambda s: s.add(1), lambda s: s.add_all([1])),
        *(lambda s: s.update([1]), lambda s: s.update([]), lambda s: s.clear(), list),
    ],
    "map": [
        *(lambda s: s.get("n"), lambda s: s.put("n", 1), lambda s: s.put_all({"n": 1})),
        *(lambda s: s.remove("n"), lambda s: s.contains("n"), lambda s: s.is_empty()),
        *(lambda s: s.items(), lambda s: s.keys(), lambda s: s.values(), lambda s: s.clear()),
    ],
    "reducing": [lambda s: s.get(), lambda s: s.add(1), lambda s: s.add(None), lambda s: s.clear()],
    "aggregating": [lambda s: s.get(), lambda s: s.add(1), lambda s: s.add(None), lambda s: s.clear()],
}

WRONG_VALUES = {
    "value": lambda state: state.update("wrong"),
    "list": lambda state: state.add("wrong"),
    "map": lambda state: state.put("n", "wrong"),
    "reducing": lambda state: state.add("wrong"),
}

every_kind = pytest.mark.parametrize("kind", MAKERS)


@pytest.fixture
def unbound():
    """A backend with no current key."""
    return make_backend()


class TestCurrentKey:
    @every_kind
    def test_a_state_without_a_key_cannot_be_used(self, unbound, kind):
        """G1: Flink throws "No key set"."""
        state = unbound.get_partitioned_state(MAKERS[kind]("spend"))
        for method in METHODS_WITHOUT_KEY[kind]:
            with pytest.raises(NoCurrentKeyError, match="'spend' was used with no key set") as error:
                method(state)
            assert error.value.context["state"] == "spend"
        assert unbound.num_key_value_state_entries() == 0

    @every_kind
    def test_a_state_cannot_be_used_once_the_key_is_cleared(self, backend, kind):
        state = backend.get_partitioned_state(MAKERS[kind]("spend"))
        store, read = ACCESS[kind]
        store(state, 1)
        backend.clear_current_key()
        with pytest.raises(NoCurrentKeyError):
            read(state)
        backend.set_current_key("k")
        assert read(state) == 1

    def test_none_is_no_key(self, unbound):
        """G2: Flink throws "Assigned key must not be null!"."""
        with pytest.raises(InvalidKeyError, match="None cannot be a key"):
            unbound.set_current_key(None)

    @pytest.mark.parametrize("key", [float("nan"), [1], object()], ids=["NaN", "list", "object"])
    def test_an_invalid_key_is_refused_and_the_current_one_stays(self, backend, key):
        state = backend.get_partitioned_state(ValueStateDescriptor("spend"))
        state.update(1)
        with pytest.raises(InvalidKeyError):
            backend.set_current_key(key)
        assert backend.get_current_key() == "k"
        assert state.value() == 1

    def test_a_key_of_another_subtask_is_refused(self):
        """G3: the empty string is in key group 94."""
        backend = make_backend(STRING, KeyGroupRange(0, 3))
        with pytest.raises(KeyGroupRangeError, match=r"'' is in key group 94, .* range 0\.\.3") as error:
            backend.set_current_key("")
        assert error.value.context["key"] == "''"
        make_backend(STRING, KeyGroupRange(94, 94)).set_current_key("")

    def test_the_current_key_is_kept_as_its_type_keeps_it(self):
        backend = make_backend(Types.DOUBLE())
        backend.set_current_key(1)
        assert type(backend.get_current_key()) is float

    def test_a_key_of_the_wrong_type_is_refused(self):
        with pytest.raises(InvalidKeyError, match="does not fit LONG"):
            make_backend(LONG).set_current_key("1")

    def test_equal_keys_share_their_state(self, unbound):
        state_of(unbound, MAKERS["value"]("spend"), 1).update(7)
        for key in (1.0, True):
            assert state_of(unbound, MAKERS["value"]("spend"), key).value() == 7
        assert unbound.num_key_value_state_entries() == 1


class TestIsolation:
    """G16."""

    @every_kind
    def test_a_state_gives_each_key_its_own(self, unbound, kind):
        state = unbound.get_partitioned_state(MAKERS[kind]("spend"))
        store, read = ACCESS[kind]
        for key in range(100):
            unbound.set_current_key(key)
            assert not read(state)
            store(state, key)
        for key in reversed(range(100)):
            unbound.set_current_key(key)
            assert read(state) == key
        assert unbound.num_key_value_state_entries() == 100

    @every_kind
    def test_clear_removes_just_the_current_key(self, unbound, kind):
        state = unbound.get_partitioned_state(MAKERS[kind]("spend"))
        store, read = ACCESS[kind]
        for key in ("a", "b"):
            unbound.set_current_key(key)
            store(state, 1)
        state.clear()
        assert not read(state)
        state.clear()
        unbound.set_current_key("a")
        assert read(state) == 1

    @every_kind
    def test_states_of_different_names_are_independent(self, backend, kind):
        one = backend.get_partitioned_state(MAKERS[kind]("one"))
        other = backend.get_partitioned_state(MAKERS[kind]("other"))
        store, read = ACCESS[kind]
        store(one, 1)
        assert not read(other)
        store(other, 2)
        one.clear()
        assert (read(one) or None, read(other)) == (None, 2)

    def test_all_kinds_live_beside_each_other(self, backend):
        states = {kind: backend.get_partitioned_state(make(kind)) for kind, make in MAKERS.items()}
        for number, (kind, state) in enumerate(states.items()):
            ACCESS[kind][0](state, number)
        assert [ACCESS[kind][1](state) for kind, state in states.items()] == [0, 1, 2, 3, 4]
        assert backend.num_key_value_state_entries() == 5


class TestCounting:
    """G19."""

    @every_kind
    def test_an_entry_counts_once_and_not_after_clear(self, unbound, kind):
        state = unbound.get_partitioned_state(MAKERS[kind]("spend"))
        store, read = ACCESS[kind]
        for count, key in enumerate("abc", start=1):
            unbound.set_current_key(key)
            read(state)
            assert unbound.num_key_value_state_entries() == count - 1
            store(state, 1)
            store(state, 2)
            assert unbound.num_key_value_state_entries() == count
        for key in "abc":
            unbound.set_current_key(key)
            state.clear()
        assert unbound.num_key_value_state_entries() == 0

    @every_kind
    def test_keys_are_listed_once_each(self, unbound, kind):
        state = unbound.get_partitioned_state(MAKERS[kind]("spend"))
        store, _ = ACCESS[kind]
        for key in ("a", "b", "a", 3):
            unbound.set_current_key(key)
            store(state, 1)
        assert sorted(unbound.get_keys("spend"), key=str) == [3, "a", "b"]
        state.clear()
        assert sorted(unbound.get_keys("spend")) == ["a", "b"]

    def test_a_map_lists_its_key_once_whatever_it_holds(self, backend):
        backend.get_partitioned_state(MAKERS["map"]("spend")).put_all({"a": 1, "b": 2})
        assert list(backend.get_keys("spend")) == ["k"]

    def test_no_keys_of_a_state_that_is_not_there(self, backend):
        assert list(backend.get_keys("unknown")) == []

    def test_state_may_change_while_its_keys_are_listed(self, unbound):
        state = unbound.get_partitioned_state(MAKERS["value"]("spend"))
        for key in range(50):
            unbound.set_current_key(key)
            state.update(key)
        visited = []
        for key in unbound.get_keys("spend"):
            unbound.set_current_key(key)
            visited.append(key)
            state.clear()
        assert sorted(visited) == list(range(50))
        assert unbound.num_key_value_state_entries() == 0


class TestRegistration:
    @every_kind
    def test_the_same_descriptor_gives_the_same_object(self, backend, kind):
        """G7."""
        descriptor = MAKERS[kind]("spend")
        state = backend.get_partitioned_state(descriptor)
        assert isinstance(state, FACES[kind])
        assert backend.get_partitioned_state(descriptor) is state
        assert backend.get_partitioned_state(MAKERS[kind]("spend")) is state
        assert backend.get_partitioned_state(MAKERS[kind]("other")) is not state

    @every_kind
    @pytest.mark.parametrize("other", MAKERS)
    def test_a_name_cannot_be_used_for_two_kinds(self, backend, kind, other):
        """G8: Flink fails with a ClassCastException."""
        state = backend.get_partitioned_state(MAKERS[kind]("spend"))
        if kind == other:
            assert backend.get_partitioned_state(MAKERS[other]("spend")) is state
            return
        with pytest.raises(StateRegistrationError, match=f"'spend' is in use as {kind.upper()} of") as error:
            backend.get_partitioned_state(MAKERS[other]("spend"))
        assert not isinstance(error.value, StateMigrationError)
        assert error.value.context["state"] == "spend"
        assert other.upper() in str(error.value)
        assert backend.get_partitioned_state(MAKERS[kind]("spend")) is state

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            (ValueStateDescriptor("s", LONG), ValueStateDescriptor("s", STRING)),
            (ValueStateDescriptor("s", LONG), ValueStateDescriptor("s")),
            (ListStateDescriptor("s", LONG), ListStateDescriptor("s", Types.INT())),
            (MapStateDescriptor("s", LONG, LONG), MapStateDescriptor("s", STRING, LONG)),
            (MapStateDescriptor("s", LONG, LONG), MapStateDescriptor("s", LONG, STRING)),
            (ReducingStateDescriptor("s", max, LONG), ReducingStateDescriptor("s", max, STRING)),
            (AggregatingStateDescriptor("s", Mean(), LONG), AggregatingStateDescriptor("s", Mean())),
            (ListStateDescriptor("s", LONG), ValueStateDescriptor("s", Types.LIST(LONG))),
        ],
        ids=lambda descriptor: f"{descriptor.kind.value} {descriptor.stored_type}",
    )
    def test_a_name_cannot_be_used_for_two_types(self, backend, first, second):
        """Flink's heap backend overlooks a changed type (G7); this one does not."""
        backend.get_partitioned_state(first)
        with pytest.raises(StateRegistrationError, match="'s'") as error:
            backend.get_partitioned_state(second)
        assert str(first.stored_type) in str(error.value)
        assert str(second.stored_type) in str(error.value)

    @pytest.mark.parametrize("thing", ["spend", None, LONG, ValueStateDescriptor], ids=repr)
    def test_a_state_is_asked_for_by_descriptor(self, backend, thing):
        with pytest.raises(StateRegistrationError, match="descriptor"):
            backend.get_partitioned_state(thing)

    def test_the_empty_name_is_legal(self, backend):
        """G6."""
        state = backend.get_partitioned_state(ValueStateDescriptor(""))
        state.update(1)
        assert state.value() == 1


@pytest.mark.parametrize("kind", WRONG_VALUES)
def test_a_refused_value_names_state_and_key_and_changes_nothing(backend, kind):
    state = backend.get_partitioned_state(MAKERS[kind]("spend"))
    store, read = ACCESS[kind]
    store(state, 1)
    with pytest.raises(StateValueError, match=r"state 'spend', key 'k'.*'wrong'") as error:
        WRONG_VALUES[kind](state)
    assert error.value.context == {"state": "spend", "key": "'k'"}
    assert read(state) == 1


@pytest.mark.parametrize("kind", WRONG_VALUES)
def test_a_refused_value_creates_no_entry(backend, kind):
    with pytest.raises(StateValueError):
        WRONG_VALUES[kind](backend.get_partitioned_state(MAKERS[kind]("spend")))
    assert backend.num_key_value_state_entries() == 0
