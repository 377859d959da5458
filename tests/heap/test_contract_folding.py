"""ReducingState and AggregatingState by rows R1 to R4, A1 and A2 of the semantics, however they are run.

Merging (M1) is with the namespaces.
"""

import pytest
from contract_backends import LONG, STRING
from slot_functions import Mean

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
    Types,
)
from pyflinkstate.errors import StateValueError

SUM = ReducingStateDescriptor("sum", lambda old, new: old + new, LONG)
MEAN = AggregatingStateDescriptor("mean", Mean(), Types.LIST(LONG))

both = pytest.mark.parametrize("descriptor", [SUM, MEAN], ids=lambda descriptor: descriptor.name)


class Counting(AggregateFunction):
    """Counts how often an accumulator was made."""

    def __init__(self):
        self.made = 0

    def create_accumulator(self):
        self.made += 1
        return 0

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return f"={accumulator}"

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class JoinWithComma(ReduceFunction):
    def reduce(self, value1, value2):
        return f"{value1},{value2}"


def test_r2_the_first_value_is_stored_without_a_call_of_the_function(everywhere):
    def fail(old, new):
        raise AssertionError("called")

    state = everywhere.state(ReducingStateDescriptor("first", fail, LONG))
    state.add(1)
    assert state.get() == 1


@pytest.mark.parametrize(
    "function", [JoinWithComma(), lambda old, new: f"{old},{new}"], ids=["object", "callable"]
)
def test_r2_later_values_are_reduced_into_what_is_stored_in_this_order(everywhere, declared, function):
    state = everywhere.state(ReducingStateDescriptor("joined", function, declared(STRING)))
    for value, expected in (("a", "a"), ("b", "a,b"), ("c", "a,b,c"), ("a", "a,b,c,a")):
        state.add(value)
        assert state.get() == expected
    assert everywhere.entries() == 1


@pytest.mark.parametrize("result", ["3", 2**63, 1.5], ids=repr)
def test_a_result_of_another_type_is_refused_and_the_old_value_stays(everywhere, result):
    state = everywhere.state(ReducingStateDescriptor("sum", lambda old, new: result, LONG))
    state.add(1)
    with pytest.raises(StateValueError, match="'sum', key 'k': the reduce function's result"):
        state.add(2)
    assert state.get() == 1


@both
def test_a_function_that_raises_leaves_the_old_value(everywhere, descriptor):
    def add(state):
        with pytest.raises((TypeError, StateValueError)):
            state.add("text")

    state = everywhere.state(descriptor)
    state.add(1)
    state.run(add)
    assert state.get() == 1


def test_a_result_of_none_is_refused_and_the_old_value_stays(everywhere):
    """Or there would be an entry without a value."""
    nothing = everywhere.state(ReducingStateDescriptor("nothing", lambda old, new: None))
    nothing.add(1)
    with pytest.raises(StateValueError, match="the reduce function returned None"):
        nothing.add(2)
    assert nothing.get() == 1


def test_a1_the_accumulator_is_made_by_the_first_add(everywhere, declared):
    function = Counting()
    state = everywhere.state(AggregatingStateDescriptor("counting", function, declared(LONG)))
    state.get()
    state.clear()
    state.add(None)
    assert function.made == 0
    state.add(3)
    state.add(4)
    assert function.made == 1
    state.clear()
    state.add(5)
    assert function.made == 2
    assert state.get() == "=5"


def test_a1_the_accumulator_is_what_is_stored_and_get_gives_its_result(everywhere, declared):
    state = everywhere.state(AggregatingStateDescriptor("mean", Mean(), declared(Types.LIST(LONG))))
    state.add(1)
    assert state.get() == 1.0
    state.add(4)
    assert state.get() == 2.5
    assert state.get_internal() == [5, 2]
    assert everywhere.entries() == 1


def test_a1_an_accumulator_of_another_type_is_refused_and_the_old_one_stays(everywhere):
    class Wrong(Mean):
        def add(self, value, accumulator):
            return super().add(value, accumulator) if value else "wrong"

    state = everywhere.state(AggregatingStateDescriptor("mean", Wrong(), Types.LIST(LONG)))
    state.add(7)
    with pytest.raises(StateValueError, match="'mean', key 'k': the accumulator: 'wrong'"):
        state.add(0)
    assert state.get() == 7.0


def test_a1_an_accumulator_that_is_forgotten_to_be_returned_is_refused(everywhere):
    """Or all that was added would be lost in silence."""

    class Forgetful(Mean):
        def add(self, value, accumulator):
            super().add(value, accumulator)

    state = everywhere.state(AggregatingStateDescriptor("mean", Forgetful()))
    with pytest.raises(StateValueError, match="the aggregate function returned None"):
        state.add(7)
    assert everywhere.entries() == 0
