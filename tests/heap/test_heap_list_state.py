"""ListState: rows L1 to L8 of the semantics, L1 and L4 as the docstrings improve on them."""

import pytest

from pyflinkstate.api.descriptors import ListStateDescriptor
from pyflinkstate.api.types import Types
from pyflinkstate.errors import StateValueError


@pytest.fixture
def state(backend, declared):
    return backend.get_partitioned_state(ListStateDescriptor("visits", declared(Types.LONG())))


def test_it_is_an_empty_iterable_at_first_and_reading_creates_nothing(backend, state):
    """L1, as the user-facing state of Flink has it."""
    assert list(state.get()) == []
    assert list(state) == []
    assert backend.num_key_value_state_entries() == 0


def test_what_is_added_keeps_its_order(backend, state):
    """L7."""
    state.add(3)
    state.add_all([1, 2])
    state.add(3)
    assert list(state.get()) == list(state) == [3, 1, 2, 3]
    assert backend.num_key_value_state_entries() == 1


def test_update_replaces(state):
    """L7."""
    state.add_all([1, 2])
    state.update([9])
    assert list(state) == [9]


def test_none_cannot_be_added(backend, state):
    """L2."""
    with pytest.raises(StateValueError, match="None cannot be added"):
        state.add(None)
    assert backend.num_key_value_state_entries() == 0


@pytest.mark.parametrize("values", [None, 1, "12", b"12"], ids=repr)
def test_add_all_and_update_take_a_list(state, values):
    """L3; and a str, which would fall to pieces, is no list of values."""
    state.add(7)
    for method in (state.add_all, state.update):
        with pytest.raises(StateValueError, match="a list of values"):
            method(values)
    assert list(state) == [7]


@pytest.mark.parametrize("values", [[2, None], [None], [None, 2]], ids=repr)
def test_add_all_adds_all_or_nothing(state, values):
    """L4: Flink's heap state keeps the elements before the refused one."""
    state.add(1)
    with pytest.raises(StateValueError, match="'visits', key 'k': None"):
        state.add_all(values)
    assert list(state) == [1]


def test_a_refused_add_all_leaves_an_empty_key_empty(backend, state):
    """L4: in Flink an entry with a null list stays, and the next snapshot fails."""
    with pytest.raises(StateValueError):
        state.add_all([2, None])
    assert list(state) == []
    assert backend.num_key_value_state_entries() == 0


def test_update_replaces_all_or_nothing(state):
    """L4."""
    state.add(1)
    with pytest.raises(StateValueError):
        state.update([2, None])
    assert list(state) == [1]


def test_adding_no_elements_is_a_no_op(backend, state):
    """L5."""
    state.add_all([])
    assert backend.num_key_value_state_entries() == 0
    state.add(1)
    state.add_all([])
    assert list(state) == [1]


def test_updating_with_no_elements_clears(backend, state):
    """L6."""
    state.add(1)
    state.update([])
    assert list(state) == []
    assert backend.num_key_value_state_entries() == 0


def test_the_live_list_is_returned(state):
    """L8."""
    state.add(1)
    assert state.get() is state.get()
    state.get().append(2)
    assert list(state) == [1, 2]


def test_the_callers_list_stays_the_callers(state):
    mine = [1, 2]
    state.update(mine)
    mine.append(3)
    assert list(state) == [1, 2]
    state.clear()
    state.add_all(mine)
    mine.clear()
    assert list(state) == [1, 2, 3]


def test_any_iterable_will_do_even_the_state_itself(state):
    state.update(number for number in (1, 2))
    state.add_all((3,))
    state.add_all(state.get())
    assert list(state) == [1, 2, 3, 1, 2, 3]
    state.update(state.get())
    assert list(state) == [1, 2, 3, 1, 2, 3]


def test_declared_elements_are_checked_and_converted(backend):
    state = backend.get_partitioned_state(ListStateDescriptor("ratios", Types.DOUBLE()))
    state.add_all([1, 2.5])
    assert [type(element) for element in state] == [float, float]
    for refused in (lambda: state.add("3"), lambda: state.add_all([3, "4"]), lambda: state.update(["5"])):
        with pytest.raises(StateValueError, match="DOUBLE"):
            refused()
    assert list(state) == [1.0, 2.5]
