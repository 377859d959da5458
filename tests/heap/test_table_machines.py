"""Both kinds of state table against a dict: several key groups, namespaces, and snapshots half written."""

from copy import deepcopy

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tiers import runs_of

from pyflinkstate.api import StateKind, Types
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.codec import unchanged
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.backends.types.migration import RegisteredStateMeta

RANGE = KeyGroupRange(3, 4)
MAX_OPEN_SNAPSHOTS = 4

keys = st.integers(0, 11)
namespaces = st.sampled_from(["", "a", "b"])
values = st.one_of(
    st.none(),
    st.integers(0, 9),
    st.lists(st.integers(0, 9), max_size=2),
    st.lists(st.lists(st.integers(0, 9), max_size=1), max_size=2),
)


def group_of(key):
    return RANGE.start + key % len(RANGE)


def change_in_place(value):
    """Change ``value`` as deep as it can be changed."""
    if isinstance(value, list):
        for part in value:
            change_in_place(part)
        value.append(len(value))


@attrs.define
class OpenSnapshot:
    """A snapshot of a table, the key groups of it that are not yet written, and what they should hold."""

    snapshot: object
    groups: object
    expected: dict
    is_namespaced: bool
    unwritten: list = attrs.field(factory=lambda: list(RANGE))

    def write_one(self):
        """Read the next key group and compare."""
        entries = next(self.groups)
        assert entries.key_group == self.unwritten.pop(0)
        assert (entries.namespaces is not None) is self.is_namespaced
        found = dict(zip(entries.entry_keys(), entries.values, strict=True))
        assert len(found) == len(entries)
        assert found == self.expected[entries.key_group]

    def finish(self):
        """Read the rest."""
        while self.unwritten:
            self.write_one()
        assert next(self.groups, None) is None


class TableRules(RuleBasedStateMachine):
    """Each rule does the same to the table and to a dict for each key group, by entry key."""

    kind = None

    def __init__(self):
        super().__init__()
        self.table = self.is_namespaced = None
        self.model = {key_group: {} for key_group in RANGE}
        #: What each transformer of the table was called with.
        self.transformers = []

    @initialize(is_namespaced=st.booleans())
    def make(self, is_namespaced):
        self.is_namespaced = is_namespaced
        namespace_type = Types.STRING() if is_namespaced else VOID_NAMESPACE_TYPE
        self.meta = RegisteredStateMeta("s", StateKind.VALUE, Types.PICKLED_BYTE_ARRAY(), namespace_type)
        self.table = self.kind(self.meta, RANGE)

    def at(self, key, namespace):
        """Return the map and the dict where the entry is, and its entry key."""
        key_group = group_of(key)
        entry_key = (key, namespace) if self.is_namespaced else key
        return self.table.map_of(key_group), self.model[key_group], entry_key

    def all_entries(self):
        """The model over all key groups."""
        return {key: value for group in self.model.values() for key, value in group.items()}

    def take(self):
        expected = deepcopy(self.model)
        if self.table.snapshot_transformer_factory is not None:
            expected = {
                key_group: {key: [value] for key, value in group.items() if isinstance(value, list)}
                for key_group, group in expected.items()
            }
        snapshot = self.table.snapshot()
        return OpenSnapshot(snapshot, snapshot.key_groups(), expected, self.is_namespaced)

    @rule(key=keys, namespace=namespaces, value=values)
    def put(self, key, namespace, value):
        state_map, model, entry_key = self.at(key, namespace)
        state_map.put(entry_key, deepcopy(value))
        model[entry_key] = value

    @rule(start=st.integers(0, 200), count=st.integers(1, 400), namespace=namespaces)
    def put_many(self, start, count, namespace):
        """Enough for the maps to double."""
        for key in range(start, start + count):
            self.put(key, namespace, [key])

    @rule(key=keys, namespace=namespaces)
    def get_and_change_in_place(self, key, namespace):
        state_map, model, entry_key = self.at(key, namespace)
        value = state_map.get(entry_key)
        assert value == model.get(entry_key)
        change_in_place(value)
        change_in_place(model.get(entry_key))

    @rule(key=keys, namespace=namespaces)
    def remove(self, key, namespace):
        state_map, model, entry_key = self.at(key, namespace)
        change_in_place(state_map.remove_and_get_old(entry_key))
        model.pop(entry_key, None)

    @rule(convert=st.sampled_from([unchanged, lambda value: value, lambda value: [value, 0]]))
    def set_meta(self, convert):
        """Give the table another type, with whatever snapshots are open."""
        meta = attrs.evolve(self.meta, stored_type=Types.LIST(self.meta.stored_type))
        maps = self.table.maps
        self.table.set_meta(meta, convert)
        assert self.table.meta is meta
        assert self.table.maps is maps
        for group in self.model.values():
            for key, value in group.items():
                group[key] = convert(value)

    @rule(is_on=st.booleans())
    def set_transformer(self, is_on):
        """Have later snapshots keep lists only, wrapped."""

        def factory():
            calls = []
            self.transformers.append(calls)

            def transformer(value):
                calls.append(None)
                return [value] if isinstance(value, list) else None

            return transformer

        self.table.snapshot_transformer_factory = factory if is_on else None

    @rule()
    def each_snapshot_has_a_transformer_of_its_own(self):
        before = len(self.transformers)
        is_on = self.table.snapshot_transformer_factory is not None
        opened = [self.take() for _ in range(2)]
        made = self.transformers[before:]
        assert made == [[]] * 2 * is_on
        for one in opened:
            one.finish()
        assert [len(calls) for calls in made] == [len(self.table)] * 2 * is_on

    @rule(namespace=namespaces)
    def keys_are_given_once(self, namespace):
        expected = list(self.all_entries())
        if not self.is_namespaced:
            namespace = VOID_NAMESPACE
            expected = [(key, VOID_NAMESPACE) for key in expected]
        found = list(self.table.keys_and_namespaces())
        assert len(found) == len(expected)
        assert set(found) == set(expected)
        found = list(self.table.keys(namespace))
        assert sorted(found) == sorted(key for key, where in expected if where == namespace)

    @rule(max_positions=st.integers(1, 5), remainder=st.integers(0, 2))
    def visit_everything(self, max_positions, remainder):
        """Walk around the table until all was seen; replace and remove some entries on the way."""
        visitor, due, visited = self.table.visitor(max_positions), set(self.all_entries()), 0
        for _ in range(10_000):
            if not due:
                break
            for key, value in zip(*visitor.next_columns(), strict=True):
                group = group_of(key[0] if self.is_namespaced else key)
                model, state_map = self.model[group], self.table.map_of(group)
                assert visitor.state_map is state_map
                assert value == model[key]
                due.discard(key)
                visited += 1
                if visited % 5 == remainder:
                    state_map.put(key, ["visited"])
                    model[key] = ["visited"]
                elif visited % 7 == remainder:
                    state_map.remove(key)
                    del model[key]
        assert due == set()

    @invariant()
    def invariants_hold(self):
        if self.table is not None:
            for state_map in self.table.maps:
                state_map._check()
            assert len(self.table) == sum(map(len, self.model.values()))

    def teardown(self):
        if self.table is not None:
            for key_group, group in self.model.items():
                assert dict(self.table.map_of(key_group).items()) == group
            assert dict(self.table.items()) == self.all_entries()


class CopyOnWriteComparison(TableRules):
    """With snapshots that are written, released and abandoned in any order, amid the other rules."""

    kind = StateTable

    def __init__(self):
        super().__init__()
        self.open = []

    def one_of_open(self, data):
        return data.draw(st.integers(0, len(self.open) - 1), "which")

    @precondition(lambda self: len(self.open) < MAX_OPEN_SNAPSHOTS)
    @rule()
    def take_snapshot(self):
        self.open.append(self.take())

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def write_a_key_group(self, data):
        opened = self.open[self.one_of_open(data)]
        if opened.unwritten:
            opened.write_one()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def write_the_rest(self, data):
        opened = self.open.pop(self.one_of_open(data))
        opened.finish()
        opened.snapshot.release()

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def abandon(self, data):
        self.open.pop(self.one_of_open(data)).snapshot.release()

    def teardown(self):
        for opened in self.open:
            opened.finish()
        super().teardown()
        if self.table is not None:
            assert {state_map._highest_required_snapshot_version for state_map in self.table.maps} == {0}


TestCopyOnWriteTable, TestCopyOnWriteTableInDepth = runs_of(
    CopyOnWriteComparison, quick=40, full=150, steps=40
)
