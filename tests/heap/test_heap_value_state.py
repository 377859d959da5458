"""ValueState: rows V1 to V3 and V5 of the semantics."""

import pytest

from pyflinkstate.api.descriptors import ValueStateDescriptor
from pyflinkstate.api.types import Types
from pyflinkstate.errors import StateValueError


@pytest.fixture
def state(backend, declared):
    return backend.get_partitioned_state(ValueStateDescriptor("spend", declared(Types.LONG())))


def test_it_is_none_at_first_and_reading_creates_nothing(backend, state):
    """V1."""
    assert state.value() is None
    assert backend.num_key_value_state_entries() == 0


def test_update_replaces(backend, state):
    for number in (1, 0, -5):
        state.update(number)
        assert state.value() == number
    assert backend.num_key_value_state_entries() == 1


def test_update_with_none_clears(backend, state):
    """V2."""
    state.update(1)
    state.update(None)
    assert state.value() is None
    assert backend.num_key_value_state_entries() == 0
    state.update(None)
    assert backend.num_key_value_state_entries() == 0


def test_clear_empties(backend, state):
    """V3."""
    state.update(1)
    state.clear()
    assert state.value() is None
    assert backend.num_key_value_state_entries() == 0
    state.clear()
    state.update(2)
    assert state.value() == 2


def test_false_values_are_values(backend):
    state = backend.get_partitioned_state(ValueStateDescriptor("any"))
    for nothing in (0, "", False, [], {}, ()):
        state.update(nothing)
        assert state.value() == nothing
        assert backend.num_key_value_state_entries() == 1


def test_the_live_object_is_returned(backend, declared):
    """V5: heap state hands out what it holds."""
    list_type = declared(Types.LIST(Types.LONG()))
    state = backend.get_partitioned_state(ValueStateDescriptor("list", list_type))
    state.update([1])
    assert state.value() is state.value()
    state.value().append(2)
    assert state.value() == [1, 2]


def test_a_declared_value_is_converted_on_the_way_in(backend):
    state = backend.get_partitioned_state(ValueStateDescriptor("ratio", Types.DOUBLE()))
    state.update(1)
    assert type(state.value()) is float


@pytest.mark.parametrize("value", ["1", 1.5, True, 2**63, [1]], ids=repr)
def test_a_value_of_another_type_is_refused(backend, value):
    state = backend.get_partitioned_state(ValueStateDescriptor("spend", Types.LONG()))
    state.update(7)
    with pytest.raises(StateValueError, match="LONG"):
        state.update(value)
    assert state.value() == 7


def test_a_number_beyond_double_is_refused_as_a_state_value(backend):
    state = backend.get_partitioned_state(ValueStateDescriptor("ratio", Types.DOUBLE()))
    with pytest.raises(StateValueError):
        state.update(10**400)
