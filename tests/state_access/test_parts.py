"""Tables in parts: between them they have the rows of the table, and each can be read in another process."""

import pickle
from itertools import product

import cloudpickle
import pytest
from backend_support import Snapshot, chained, fill, make_backend, one_of_each_kind, state_of, take_snapshot
from operator_support import NUMBERS, snapshot
from read_support import UID, checkpoint_of
from tiers import cases

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access import diff

COUNT = ValueStateDescriptor("count", Types.LONG())


def counting(numbers, own=None, **options):
    backend = make_backend(Types.STRING(), **({} if own is None else {"own": own}), **options)
    for number in numbers:
        state_of(backend, COUNT, f"k{number}").update(number)
    return backend


def rows_of(tables):
    return [row for table in tables for row in table.rows()]


@pytest.fixture
def checkpoint():
    """Two subtasks with every kind of state and timers, the second one with an increment."""
    handles = []
    for subtask in range(2):
        backend = make_backend(Types.STRING(), key_group_range(128, 2, subtask))
        descriptors = one_of_each_kind(lambda declared: declared)
        changes = ChangeHistory(backend)
        written = []
        for checkpoint_id, numbers in ((1, range(100)), (2, range(50, 150))):
            for number in numbers:
                try:
                    backend.set_current_key(f"k{number}")
                except ValueError:
                    continue
                fill(backend, descriptors, f"k{number}", number)
                group = backend.key_group_of(f"k{number}")
                backend.create_timer_queue("event_user-timers").add(Timer(number, f"k{number}"), group)
            changed = changes.cut(checkpoint_id, checkpoint_id - 1 or None)
            written.append(Snapshot.of(backend, changed).write())
        handles.append(chained(*written))
    return checkpoint_of(*handles)


@pytest.mark.parametrize(
    ("what", "number"),
    cases(
        product(["keyed", "entries", "timers"], [1, 3, 128, 1000, None]),
        quick=[("keyed", 3), ("entries", 1000), ("timers", None)],
    ),
)
def test_they_have_the_rows_of_the_table_in_its_order(checkpoint, what, number):
    table = checkpoint.entries(UID, "list") if what == "entries" else getattr(checkpoint, what)(UID)
    parts = table.parts(number)
    assert len(parts) == min(number or 2, 128)
    assert rows_of(parts) == rows_of([table])
    assert len(rows_of([table])) >= 150


def test_only_those_with_wanted_keys(checkpoint):
    table = checkpoint.keyed(UID, ["k7"])
    assert len(table.parts(128)) == 1
    assert rows_of(table.parts(128)) == rows_of([table])
    assert rows_of(checkpoint.keyed(UID, []).parts(3)) == []


def test_they_can_be_pickled(checkpoint):
    table = checkpoint.keyed(UID)
    there = pickle.loads(cloudpickle.dumps(table.parts(3)))
    assert rows_of(there) == rows_of([table])


def test_operator_state_by_subtask():
    states = []
    for number in range(5):
        backend = DefaultOperatorStateBackend()
        backend.get_list_state(NUMBERS).add_all([number, number + 10])
        states.append(OperatorSubtaskState(managed_operator=snapshot(backend)))
    table = checkpoint_of(*states).operator_state(UID)
    for number, sizes in ((None, [2] * 5), (2, [4, 6]), (9, [2] * 5)):
        parts = table.parts(number)
        assert [len(rows_of([part])) for part in parts] == sizes
        assert rows_of(parts) == rows_of([table])


def test_a_difference():
    old = checkpoint_of(take_snapshot(counting(range(50))))
    new = checkpoint_of(take_snapshot(counting(range(25, 75))))
    (found,) = diff(old, new)
    assert len(found.table.parts(4)) == 4
    assert rows_of(found.table.parts(4)) == rows_of([found.table])
    assert found.counts() == {"added": 25, "removed": 25, "changed": 0}


def test_a_difference_between_numbers_of_key_groups_is_one():
    old = checkpoint_of(take_snapshot(counting(range(50))))
    own = key_group_range(16, 1, 0)
    new = checkpoint_of(take_snapshot(counting(range(25, 75), own, max_parallelism=16)), max_parallelism=16)
    (found,) = diff(old, new)
    assert len(found.table.parts(4)) == 1


def test_less_than_one_is_refused(checkpoint):
    with pytest.raises(StateTableError, match="at least 1 part, not in 0"):
        checkpoint.keyed(UID).parts(0)
