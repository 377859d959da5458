"""ValueState by rows V1 to V5 of the semantics, however it is run."""

import pytest
from contract_backends import LONG, STRING, lives

from pyflinkstate import Types, ValueStateDescriptor
from pyflinkstate.errors import DescriptorTypeError, StateValueError

SPEND = ValueStateDescriptor("spend", LONG)
WITH_42 = ValueStateDescriptor("spend", LONG, default_value=42)


def test_v1_the_default_is_read_where_nothing_is_stored_and_reading_it_creates_no_entry(everywhere):
    spend = everywhere.state(WITH_42)
    assert [spend.value(), spend.value()] == [42, 42]
    assert everywhere.entries() == 0


def test_v1_a_changed_default_is_changed_for_that_reader_alone(everywhere):
    trips = ValueStateDescriptor("trips", default_value={"seen": [1]})
    state = everywhere.state(trips)
    state.run(lambda trips: trips.value()["seen"].append(2))
    assert state.value() == {"seen": [1]}
    assert everywhere.state(trips, "other").value() == {"seen": [1]}
    assert trips.default_value == {"seen": [1]}
    assert everywhere.entries() == 0


@pytest.mark.parametrize("declared_default", [1, 1.0], ids=repr)
def test_v1_the_default_is_converted_to_the_declared_type(everywhere, declared_default):
    ratio = ValueStateDescriptor("ratio", Types.DOUBLE(), default_value=declared_default)
    assert type(everywhere.state(ratio).value()) is float


@pytest.mark.parametrize(
    ("value_type", "default"),
    [(LONG, "42"), (LONG, 2**63), (LONG, True), (STRING, 1), (Types.LIST(LONG), [1, None])],
    ids=str,
)
def test_v1_a_default_of_another_type_is_refused_by_the_descriptor(value_type, default):
    with pytest.raises(DescriptorTypeError, match="'spend': the default value"):
        ValueStateDescriptor("spend", value_type, default_value=default)


@pytest.mark.parametrize("default", [{}, {"default_value": None}, {"default_value": 42}], ids=str)
@pytest.mark.parametrize("clear", [lambda state: state.update(None), lambda state: state.clear()])
def test_v2_v3_after_update_with_none_or_clear_the_default_is_back(everywhere, default, clear):
    spend = everywhere.state(ValueStateDescriptor("spend", LONG, **default))
    spend.update(1)
    assert everywhere.entries() == 1
    for _ in range(2):
        clear(spend)
        assert spend.value() == default.get("default_value")
        assert everywhere.entries() == 0


@pytest.mark.parametrize("stored", [0, "", False, [], {}, ()], ids=repr)
def test_v3_a_stored_value_that_is_false_is_not_taken_for_nothing(everywhere, stored):
    state = everywhere.state(ValueStateDescriptor("any", default_value=42))
    state.update(stored)
    assert state.value() == stored
    assert type(state.value()) is type(stored)
    assert everywhere.entries() == 1


def test_v3_the_default_is_not_in_the_snapshot(everywhere):
    everywhere.state(WITH_42).value()
    with_43 = ValueStateDescriptor("spend", LONG, default_value=43)
    assert everywhere.restarted().state(with_43).value() == 43
    assert everywhere.restarted().state(SPEND).value() is None


def test_v3_within_a_run_the_first_descriptors_default_stays(everywhere):
    """G7: the state is there already, and is the same object."""
    everywhere.state(WITH_42).value()
    assert everywhere.state(SPEND).value() == 42


def test_v4_with_time_to_live_the_default_is_ignored(everywhere):
    spend = lives(ValueStateDescriptor("spend", LONG, default_value=42), 100)
    assert everywhere.state(spend).value() is None
    everywhere.state(spend).update(1)
    everywhere.clock.now_ms = 99
    assert everywhere.state(spend).value() == 1
    everywhere.clock.now_ms = 100
    assert everywhere.state(spend).value() is None


def test_a_refused_value_leaves_the_old_one(everywhere):
    spend = everywhere.state(SPEND)
    spend.update(7)
    for refused in ("1", 1.5, True, 2**63, [1]):
        with pytest.raises(StateValueError, match=r"state 'spend', key 'k'.*LONG") as error:
            spend.update(refused)
        assert error.value.context.items() >= {"state": "spend", "key": "'k'"}.items()
    assert spend.value() == 7


def test_a_value_is_converted_to_the_declared_type_or_refused(everywhere):
    ratio = everywhere.state(ValueStateDescriptor("ratio", Types.DOUBLE()))
    ratio.update(1)
    assert type(ratio.value()) is float
    with pytest.raises(StateValueError):
        ratio.update(10**400)
