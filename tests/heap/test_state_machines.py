"""Each kind of state in a real backend against a dict: namespaces, snapshots held open, and restores."""

from copy import deepcopy

from backend_support import make_backend, prepare, restore, write
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from support_windows import Listing
from tiers import runs_of

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE

PICKLED = Types.PICKLED_BYTE_ARRAY()
LONGS = Types.LIST(Types.LONG())
OWN = KeyGroupRange(0, 1)
MAX_OPEN_SNAPSHOTS = 3

# Few, so that operations meet.
KEYS = (-1, 0, 1, "a")
keys = st.sampled_from(KEYS)
namespaces = st.sampled_from(["n1", "n2", "n3"])
numbers = st.integers(0, 9)
lists = st.lists(numbers, min_size=1, max_size=3)


def change_in_place(value):
    """Change ``value`` as deep as it can be changed."""
    if isinstance(value, dict):
        for part in value.values():
            change_in_place(part)
    elif isinstance(value, list):
        value.append(len(value))


class StateRules(RuleBasedStateMachine):
    """What the five kinds share; the model has what is stored, by key and namespace."""

    #: The types to choose from.
    types = (PICKLED,)

    def __init__(self):
        super().__init__()
        self.backend = None
        self.model = {}
        #: What writes each open snapshot, and the model at that time.
        self.open = []

    @initialize(
        data=st.data(),
        is_namespaced=st.booleans(),
        is_async=st.sampled_from([True, True, False]),
        count=st.sampled_from([0, 2, 2, 2, 2, 2, 280]),
    )
    def make(self, data, is_namespaced, is_async, count):
        """Begin with a few entries, or so many that the maps are about to double."""
        self.type = data.draw(st.sampled_from(self.types), "type")
        self.is_async = is_async
        self.is_namespaced = is_namespaced
        self.namespace_type = Types.STRING() if is_namespaced else VOID_NAMESPACE_TYPE
        self.descriptor = self.describe()
        self.backend = make_backend(own=OWN, max_parallelism=2, async_snapshots=is_async)
        for key in range(count):
            state, where = self.bind(key, "n1")
            state.update_internal(self.stored(key))
            self.model[where] = self.stored(key)

    def describe(self):
        """Return the descriptor."""
        raise NotImplementedError

    def stored(self, numbers):
        """Return what is put in bulk."""
        raise NotImplementedError

    def bind(self, key, namespace):
        """Return the state at ``key`` and ``namespace``, and where the model has it."""
        namespace = namespace if self.is_namespaced else VOID_NAMESPACE
        self.backend.set_current_key(key)
        state = self.backend.get_partitioned_state(self.descriptor, namespace, self.namespace_type)
        return state, (key, namespace)

    def contents(self, backend):
        """Return copies of all that a backend has."""
        found = {}
        table = backend.registered_kv_states.get("s")
        for key, namespace in () if table is None else table.keys_and_namespaces():
            backend.set_current_key(key)
            state = backend.get_partitioned_state(self.descriptor, namespace, self.namespace_type)
            assert (key, namespace) not in found
            found[key, namespace] = deepcopy(state.get_internal())
        return found

    @rule(key=keys, namespace=namespaces)
    def clear(self, key, namespace):
        state, where = self.bind(key, namespace)
        state.clear()
        self.model.pop(where, None)

    @rule()
    def change_everything_in_place(self):
        for key, namespace in self.model:
            if key in KEYS:
                state, where = self.bind(key, namespace)
                change_in_place(state.get_internal())
                change_in_place(self.model[where])

    @rule(namespace=namespaces, remainder=st.integers(0, 2))
    def clear_every_third_of_all_keys(self, namespace, remainder):
        namespace = namespace if self.is_namespaced else VOID_NAMESPACE
        expected = [key for key, where in self.model if where == namespace]
        seen = []
        self.backend.set_current_key("current")

        def function(key, state):
            seen.append(key)
            if len(seen) % 3 == remainder:
                state.clear()
                del self.model[key, namespace]

        self.backend.apply_to_all_keys(namespace, self.namespace_type, self.descriptor, function)
        assert sorted(map(repr, seen)) == sorted(map(repr, expected))
        assert self.backend.get_current_key() == "current"

    @precondition(lambda self: len(self.open) < MAX_OPEN_SNAPSHOTS)
    @rule(key=keys)
    def take_snapshot(self, key):
        self.bind(key, "n1")
        self.hold_snapshot()

    def hold_snapshot(self):
        backend, resources, expected = self.backend, prepare(self.backend), deepcopy(self.model)
        if self.is_async:
            self.open.append((lambda: write(backend, resources), expected))
        else:
            handle = write(backend, resources)
            self.open.append((lambda: handle, expected))

    @precondition(lambda self: self.open)
    @rule(data=st.data(), is_recovery=st.booleans())
    def write_and_restore(self, data, is_recovery):
        """Also of a backend that was left behind by an earlier recovery."""
        writing, expected = self.open.pop(data.draw(st.integers(0, len(self.open) - 1), "which"))
        restored = restore([writing()], own=OWN, max_parallelism=2, async_snapshots=self.is_async)
        assert self.contents(restored) == expected
        if is_recovery:
            self.backend, self.model = restored, expected

    @invariant()
    def invariants_hold(self):
        if self.backend is not None:
            assert self.backend.num_key_value_state_entries() == len(self.model)
            for table in self.backend.registered_kv_states.values():
                for state_map in table.maps:
                    state_map._check()

    def teardown(self):
        if self.backend is not None:
            assert self.contents(self.backend) == self.model
            for writing, expected in self.open:
                restored = restore([writing()], own=OWN, max_parallelism=2, async_snapshots=self.is_async)
                assert self.contents(restored) == expected


class ValueComparison(StateRules):
    types = (PICKLED, LONGS, Types.LONG())

    def describe(self):
        return ValueStateDescriptor("s", self.type)

    def stored(self, numbers):
        return numbers if self.type == Types.LONG() else [numbers]

    @rule(key=keys, namespace=namespaces, value=st.one_of(st.none(), lists))
    def update(self, key, namespace, value):
        state, where = self.bind(key, namespace)
        if value is None:
            state.update(None)
            self.model.pop(where, None)
            return
        if self.type == Types.LONG():
            value = value[0]
        state.update(deepcopy(value))
        self.model[where] = value

    @rule(key=keys, namespace=namespaces, number=numbers)
    def change_in_place(self, key, namespace, number):
        state, where = self.bind(key, namespace)
        value = state.value()
        assert value == self.model.get(where)
        if isinstance(value, list):
            value.append(number)
            assert state.value() is value
            self.model[where].append(number)


class MergingRules(StateRules):
    """Lists, and what reduces or aggregates to one: the model has the concatenation."""

    def add_to_model(self, where, added):
        if added:
            self.model[where] = self.model.get(where, []) + list(added)

    @precondition(lambda self: self.is_namespaced)
    @rule(key=keys, into=namespaces, sources=st.lists(namespaces, max_size=3))
    def merge_namespaces(self, key, into, sources):
        sources = [namespace for namespace in sources if namespace != into]
        state, where = self.bind(key, into)
        state.merge_namespaces(into, sources)
        for namespace in sources:
            self.add_to_model(where, self.model.pop((key, namespace), []))


class ListComparison(MergingRules):
    types = (PICKLED, Types.LONG())

    def describe(self):
        return ListStateDescriptor("s", self.type)

    def stored(self, numbers):
        return [numbers, numbers]

    @rule(key=keys, namespace=namespaces, number=numbers)
    def add(self, key, namespace, number):
        state, where = self.bind(key, namespace)
        state.add(number)
        self.add_to_model(where, [number])

    @rule(key=keys, namespace=namespaces, added=st.lists(numbers, max_size=3))
    def add_all(self, key, namespace, added):
        state, where = self.bind(key, namespace)
        state.add_all(added)
        self.add_to_model(where, added)
        added.append("the caller's own")

    @rule(key=keys, namespace=namespaces, new=st.lists(numbers, max_size=3))
    def update(self, key, namespace, new):
        state, where = self.bind(key, namespace)
        state.update(new)
        self.model.pop(where, None)
        self.add_to_model(where, new)
        new.append("the caller's own")

    @rule(key=keys, namespace=namespaces, number=numbers)
    def change_in_place(self, key, namespace, number):
        """L8: what ``get`` returns is what is stored."""
        state, where = self.bind(key, namespace)
        live = state.get()
        assert list(live) == list(state) == self.model.get(where, [])
        if where in self.model:
            live.append(number)
            self.model[where].append(number)


class Concatenate(Listing):
    """Changes a list in place when it merges, too; the result is a tuple."""

    def get_result(self, accumulator):
        return tuple(accumulator)

    def merge(self, acc_a, acc_b):
        acc_a.extend(acc_b)
        return acc_a


class ConcatenateAnew(Concatenate):
    """The same with a new list at every step."""

    def add(self, value, accumulator):
        return [*accumulator, value]

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


def extended(old, new):
    """Reduce two lists in place."""
    old.extend(new)
    return old


class ReducingComparison(MergingRules):
    types = (PICKLED, LONGS)
    is_in_place = True

    def describe(self):
        return ReducingStateDescriptor("s", extended if self.is_in_place else list.__add__, self.type)

    def stored(self, numbers):
        return [numbers, numbers]

    @rule(key=keys, namespace=namespaces, added=st.one_of(st.none(), lists))
    def add(self, key, namespace, added):
        state, where = self.bind(key, namespace)
        state.add(deepcopy(added))
        if added is None:
            self.model.pop(where, None)
        self.add_to_model(where, added)

    @rule(key=keys, namespace=namespaces)
    def get(self, key, namespace):
        state, where = self.bind(key, namespace)
        assert state.get() == self.model.get(where)


class AggregatingComparison(MergingRules):
    types = (PICKLED, LONGS)
    is_in_place = True

    def describe(self):
        function = Concatenate() if self.is_in_place else ConcatenateAnew()
        return AggregatingStateDescriptor("s", function, self.type)

    def stored(self, numbers):
        return [numbers, numbers]

    @rule(key=keys, namespace=namespaces, number=st.one_of(st.none(), numbers))
    def add(self, key, namespace, number):
        state, where = self.bind(key, namespace)
        state.add(number)
        if number is None:
            self.model.pop(where, None)
        else:
            self.add_to_model(where, [number])

    @rule(key=keys, namespace=namespaces)
    def get(self, key, namespace):
        state, where = self.bind(key, namespace)
        expected = self.model.get(where)
        assert state.get() == (None if expected is None else tuple(expected))


class ReducingAnewComparison(ReducingComparison):
    is_in_place = False


class AggregatingAnewComparison(AggregatingComparison):
    is_in_place = False


class MapComparison(StateRules):
    types = (PICKLED, LONGS)

    def describe(self):
        return MapStateDescriptor("s", Types.STRING(), self.type)

    def stored(self, numbers):
        return {"a": [numbers], str(numbers): None}

    def set_model(self, where, entries):
        """An empty map is no entry."""
        if entries:
            self.model[where] = entries
        else:
            self.model.pop(where, None)

    @rule(key=keys, namespace=namespaces, name=st.sampled_from("abc"), value=st.one_of(st.none(), lists))
    def put(self, key, namespace, name, value):
        state, where = self.bind(key, namespace)
        state.put(name, deepcopy(value))
        self.model.setdefault(where, {})[name] = value

    @rule(key=keys, namespace=namespaces, new=st.dictionaries(st.sampled_from("abcde"), lists, max_size=4))
    def put_all(self, key, namespace, new):
        state, where = self.bind(key, namespace)
        state.put_all(deepcopy(new))
        self.set_model(where, self.model.get(where, {}) | new)

    @rule(key=keys, namespace=namespaces, name=st.sampled_from("abc"))
    def remove(self, key, namespace, name):
        state, where = self.bind(key, namespace)
        state.remove(name)
        entries = self.model.get(where, {})
        entries.pop(name, None)
        self.set_model(where, entries)

    @rule(key=keys, namespace=namespaces, name=st.sampled_from("abc"), number=numbers)
    def change_in_place(self, key, namespace, name, number):
        state, where = self.bind(key, namespace)
        expected = self.model.get(where, {}).get(name)
        value = state.get(name)
        assert value == expected
        if value is not None:
            value.append(number)
            expected.append(number)

    @rule(key=keys, namespace=namespaces)
    def look(self, key, namespace):
        state, where = self.bind(key, namespace)
        expected = self.model.get(where, {})
        assert dict(state.items()) == expected
        assert set(state.keys()) == set(state) == set(expected)
        assert list(state.values()) == [value for _, value in state.items()]
        assert [name for name in "abcde" if state.contains(name)] == sorted(set(expected) & set("abcde"))
        assert state.is_empty() is (not expected)

    @rule(
        key=keys,
        namespace=namespaces,
        actions=st.lists(st.sampled_from(["keep", "remove", "set", "snapshot"]), max_size=6),
    )
    def iterate(self, key, namespace, actions):
        """A snapshot may be taken, and the entry be copied for it, before the iterator changes something."""
        state, where = self.bind(key, namespace)
        entries, iterator = self.model.get(where, {}), iter(state.items())
        for action, (name, value) in zip(actions, iterator, strict=False):
            assert value == entries[name]
            if action == "snapshot":
                self.set_model(where, entries)
                self.hold_snapshot()
            if action == "remove":
                iterator.remove()
                del entries[name]
            elif action != "keep":
                iterator.set_value([7])
                entries[name] = [7]
        self.set_model(where, entries)


TestValueState, TestValueStateInDepth = runs_of(ValueComparison, quick=20, full=80, steps=40)
TestListState, TestListStateInDepth = runs_of(ListComparison, quick=20, full=80, steps=40)
TestMapState, TestMapStateInDepth = runs_of(MapComparison, quick=20, full=80, steps=40)
TestReducingState, TestReducingStateInDepth = runs_of(ReducingComparison, quick=20, full=80, steps=40)
TestReducingStateAnew, TestReducingStateAnewInDepth = runs_of(
    ReducingAnewComparison, quick=20, full=80, steps=40
)
TestAggregatingState, TestAggregatingStateInDepth = runs_of(
    AggregatingComparison, quick=20, full=80, steps=40
)
TestAggregatingStateAnew, TestAggregatingStateAnewInDepth = runs_of(
    AggregatingAnewComparison, quick=20, full=80, steps=40
)
