"""State tables: snapshots released key group by key group, transformers, another type, the visitor."""

import gc

import pytest

from pyflinkstate.api import StateKind, Types
from pyflinkstate.backends.heap.state_table import StateTable
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.migration import RegisteredStateMeta
from pyflinkstate.errors import StateMigrationError

RANGE = KeyGroupRange(5, 14)
KEYS = range(1000)
PICKLED = RegisteredStateMeta("s", StateKind.VALUE, Types.PICKLED_BYTE_ARRAY())
LONGS = RegisteredStateMeta("s", StateKind.VALUE, Types.LIST(Types.LONG()))


def group_of(key):
    return RANGE.start + key % len(RANGE)


def filled_table():
    table = StateTable(PICKLED, RANGE)
    for key in KEYS:
        table.map_of(group_of(key)).put(key, [key])
    return table


@pytest.fixture
def table():
    return filled_table()


def required(table):
    """The highest required version of each map; 0 is none."""
    return [state_map._highest_required_snapshot_version for state_map in table.maps]


def check(table):
    for state_map in table.maps:
        state_map._check()


class TestRelease:
    def test_each_key_group_is_released_when_it_is_written(self, table):
        """Flink: ``testReleaseForSuccessfulSnapshot``."""
        snapshot = table.snapshot()
        assert required(table) == [1] * 10
        written = 0
        for entries in snapshot.key_groups():
            assert required(table) == [0] * written + [1] * (10 - written)
            assert entries.key_group == RANGE.start + written
            assert sorted(entries.keys) == [key for key in KEYS if group_of(key) == entries.key_group]
            assert [[key] for key in entries.keys] == entries.values
            written += 1
        assert written == 10
        assert required(table) == [0] * 10
        check(table)

    def test_an_iteration_that_is_abandoned_releases_the_group_that_it_was_at(self, table):
        snapshot = table.snapshot()
        groups = snapshot.key_groups()
        next(groups)
        groups.close()
        gc.collect()
        assert required(table) == [0] + [1] * 9
        snapshot.release()

    def test_a_written_key_group_is_copied_no_more_and_the_others_still_are(self, table):
        first, last = table.map_of(5).get(0), table.map_of(14).get(9)
        groups = table.snapshot().key_groups()
        next(groups)
        next(groups)
        assert table.map_of(5).get(0) is first
        assert table.map_of(14).get(9) is not last
        assert sum(len(entries) for entries in groups) == 800


class TestSetMeta:
    def test_values_are_copied_as_the_new_type_says(self, table):
        """I12; Flink: ``testSerializerAfterMetaInfoChanged``."""
        nested = [[1]]
        table.map_of(5).put(0, nested)
        table.set_meta(RegisteredStateMeta("s", StateKind.VALUE, Types.LONG()), lambda value: 7)
        table.map_of(5).put(0, nested)
        with table.map_of(5).snapshot():
            # Values of LONG cannot change, so there is nothing to copy.
            assert table.map_of(5).get(0) is nested

    def test_what_flat_values_become_is_copied_for_snapshots_from_then_on(self):
        table = StateTable(RegisteredStateMeta("s", StateKind.VALUE, Types.LONG()), RANGE)
        table.map_of(5).put(0, 1)
        table.set_meta(PICKLED, lambda value: [value])
        snapshot = table.snapshot()
        table.map_of(5).get(0).append(2)
        assert next(snapshot.key_groups()).values == [[1]]
        snapshot.release()


class TestKeys:
    def test_the_table_may_change_while_they_are_iterated_over(self, table):
        seen, keys = [], table.keys()
        for key in keys:
            seen.append(key)
            table.map_of(group_of(key)).remove(key)
        assert sorted(seen) == list(KEYS)
        assert len(table) == 0


class TestVisitor:
    @staticmethod
    def visited(visitor):
        """The keys that one call of the visitor gives."""
        keys, values = visitor.next_columns()
        assert values == [[key] for key in keys]
        return keys

    def test_it_can_start_again_amid_the_table(self, table):
        visitor = table.visitor(3)
        first = self.visited(visitor)
        for _ in range(20):
            self.visited(visitor)
        visitor.restart()
        assert self.visited(visitor) == first

    def test_it_follows_a_table_whose_type_changes(self, table):
        visitor = table.visitor(100)
        visitor.next_columns()
        table.set_meta(LONGS, lambda value: [*value, 0])
        seen = set()
        while len(seen) < 1000:
            keys, values = visitor.next_columns()
            seen.update(keys)
            assert values == [[key, 0] for key in keys]
            assert all(visitor.state_map is table.map_of(group_of(key)) for key in keys)


def test_a_migration_that_fails_half_way_leaves_the_table_as_it_was():
    table = StateTable(RegisteredStateMeta("s", StateKind.VALUE, Types.LONG()), KeyGroupRange(0, 1))
    table.map_of(0).put("a", 1)
    table.map_of(1).put("b", 0)
    with pytest.raises(ZeroDivisionError):
        table.set_meta(RegisteredStateMeta("s", StateKind.VALUE, Types.DOUBLE()), lambda value: 1 / value)
    assert table.meta.stored_type == Types.LONG()
    assert dict(table.items()) == {"a": 1, "b": 0}


class Shy:
    """Its repr raises."""

    def __repr__(self):
        raise RuntimeError


def test_a_value_that_cannot_be_converted_is_named_whatever_its_namespace_prints(table):
    def refuse(value):
        raise ValueError("no")

    meta = RegisteredStateMeta("s", StateKind.VALUE, Types.LONG(), Types.PICKLED_BYTE_ARRAY())
    namespaced = StateTable(meta, RANGE)
    namespaced.map_of(RANGE.start).put(("k", Shy()), 1)
    with pytest.raises(
        StateMigrationError, match=r"key 'k', namespace <Shy, whose repr raised RuntimeError>: no"
    ):
        namespaced.set_meta(meta, refuse)
