"""The soak program passes on the map, and reports maps with a fault: on what, with seed and operation."""

import re

import pytest
import soak_state_map

from pyflinkstate.backends.heap.copy_on_write_state_map import CopyOnWriteStateMap

OPERATIONS = 20_000


class Faulty:
    """A map one of whose methods is replaced; everything else is the real map's."""

    def __init__(self, state_map, **methods):
        self._state_map = state_map
        for name, method in methods.items():
            setattr(self, name, lambda *arguments, method=method: method(state_map, *arguments))

    def __getattr__(self, name):
        return getattr(self._state_map, name)

    def __len__(self):
        return len(self._state_map)


def shares_values(copy_value, *table):
    return CopyOnWriteStateMap(lambda value: value, *table)


def forgets_a_key(copy_value, *table):
    def put(state_map, key, value):
        if key != (7, 3):
            state_map.put(key, value)

    return Faulty(CopyOnWriteStateMap(copy_value, *table), put=put)


class HalfVisitor:
    """Leaves out every other key."""

    def __init__(self, visitor):
        self.has_next = visitor.has_next
        self.visitor = visitor

    def next_columns(self):
        keys, values = self.visitor.next_columns()
        kept = [at for at, key in enumerate(keys) if sum(key) % 2]
        return [keys[at] for at in kept], [values[at] for at in kept]


def visits_half(copy_value, *table):
    def incremental_visitor(state_map, max_positions):
        return HalfVisitor(state_map.incremental_visitor(max_positions))

    return Faulty(CopyOnWriteStateMap(copy_value, *table), incremental_visitor=incremental_visitor)


def crashes(copy_value, *table):
    def get(state_map, key):
        if key == (3, 3):
            raise KeyError("lost")
        return state_map.get(key)

    return Faulty(CopyOnWriteStateMap(copy_value, *table), get=get)


def run(make_map=CopyOnWriteStateMap, seed=42):
    soak_state_map.run(OPERATIONS, seed, make_map, lambda line: None)


@pytest.mark.parametrize("seed", [42, 43])
def test_the_map_passes(seed):
    run(seed=seed)


@pytest.mark.parametrize(
    ("make_map", "found"),
    [
        (shares_values, r"snapshot \d+ is"),
        (forgets_a_key, r"\(7, 3\)"),
        (visits_half, "the visitor left out"),
        (crashes, "KeyError: 'lost'"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_fault_is_found(make_map, found):
    with pytest.raises(soak_state_map.SoakFailure, match=rf"seed 42, operation [\d,]+, .*{found}"):
        run(make_map)


def test_the_seed_leads_to_the_same_operation_again():
    messages = []
    for seed in (5, 5, 6):
        with pytest.raises(soak_state_map.SoakFailure) as failure:
            run(shares_values, seed)
        messages.append(re.sub("seed [0-9]+", "", str(failure.value)))
    assert messages[0] == messages[1] != messages[2]


def test_operations_meet_a_rehash_and_open_snapshots():
    met = []

    def make_map(*arguments):
        def put(state_map, key, value):
            met.append((state_map._rehash is not None, state_map._highest_required_snapshot_version > 0))
            state_map.put(key, value)

        return Faulty(CopyOnWriteStateMap(*arguments), put=put)

    run(make_map)
    assert sum(rehashing for rehashing, _ in met) > 200
    assert sum(snapshot for _, snapshot in met) > len(met) // 2
    assert sum(rehashing and snapshot for rehashing, snapshot in met) > 100


def test_the_program_says_that_all_is_well_and_returns_0(capsys):
    assert soak_state_map.main(["--operations", "2000", "--seed", "7"]) == 0
    assert capsys.readouterr().out == "OK: 2,000 operations, seed 7\n"


def test_the_program_says_what_it_found_and_returns_1(capsys):
    assert soak_state_map.main(["--operations", "20000", "--seed", "7"], shares_values) == 1
    assert re.match("FAILED: seed 7, operation [0-9,]+, table as usual: ", capsys.readouterr().out)
