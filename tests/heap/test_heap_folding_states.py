"""ReducingState and AggregatingState: rows R1 to R3, A1 and A2 of the semantics."""

import pytest
from backend_support import Mean

from pyflinkstate.api.descriptors import AggregatingStateDescriptor, ReducingStateDescriptor
from pyflinkstate.api.functions import AggregateFunction, ReduceFunction
from pyflinkstate.api.types import Types
from pyflinkstate.errors import StateValueError


class Concatenate(AggregateFunction):
    """An accumulator that cannot change; counts how many were made."""

    def __init__(self):
        self.made = 0

    def create_accumulator(self):
        self.made += 1
        return ">"

    def add(self, value, accumulator):
        return accumulator + value

    def get_result(self, accumulator):
        return accumulator.upper()

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


class Latest(ReduceFunction):
    def reduce(self, value1, value2):
        return value2


class TestReducingState:
    @pytest.fixture
    def state(self, backend, declared):
        return backend.get_partitioned_state(
            ReducingStateDescriptor("joined", lambda old, new: f"{old},{new}", declared(Types.STRING()))
        )

    def test_it_is_none_at_first_and_reading_creates_nothing(self, backend, state):
        """R1."""
        assert state.get() is None
        assert backend.num_key_value_state_entries() == 0

    def test_the_first_value_is_stored_and_later_ones_are_reduced_into_it(self, backend, state):
        """R2: reduce(stored, new), in this order."""
        state.add("a")
        assert state.get() == "a"
        state.add("b")
        state.add("c")
        assert state.get() == "a,b,c"
        assert backend.num_key_value_state_entries() == 1

    def test_adding_none_clears(self, backend, state):
        """R3."""
        state.add("a")
        state.add(None)
        assert state.get() is None
        assert backend.num_key_value_state_entries() == 0
        state.add(None)
        state.add("b")
        assert state.get() == "b"

    def test_a_reduce_function_object_will_do(self, backend):
        state = backend.get_partitioned_state(ReducingStateDescriptor("latest", Latest()))
        for number in (0, 1, 2):
            state.add(number)
        assert state.get() == 2

    def test_a_value_that_is_false_is_not_taken_for_none(self, backend):
        state = backend.get_partitioned_state(ReducingStateDescriptor("sum", lambda old, new: old + new))
        state.add(0)
        state.add(0)
        assert state.get() == 0
        assert backend.num_key_value_state_entries() == 1

    def test_a_reduce_function_that_raises_leaves_the_state_as_it_was(self, backend):
        state = backend.get_partitioned_state(ReducingStateDescriptor("sum", lambda old, new: old + new))
        state.add(1)
        with pytest.raises(TypeError):
            state.add("a")
        assert state.get() == 1

    def test_a_result_of_another_type_is_refused(self, backend):
        descriptor = ReducingStateDescriptor("sum", lambda old, new: str(old + new), Types.LONG())
        state = backend.get_partitioned_state(descriptor)
        state.add(1)
        with pytest.raises(StateValueError, match=r"'sum', key 'k': the reduce function's result: '3'"):
            state.add(2)
        assert state.get() == 1


class TestAggregatingState:
    @pytest.fixture
    def state(self, backend, declared):
        accumulator_type = declared(Types.LIST(Types.LONG()))
        return backend.get_partitioned_state(AggregatingStateDescriptor("mean", Mean(), accumulator_type))

    def test_it_is_none_at_first_and_reading_creates_nothing(self, backend, state):
        """R1."""
        assert state.get() is None
        assert backend.num_key_value_state_entries() == 0

    def test_the_result_is_that_of_the_accumulator(self, backend, state):
        """A1, with an accumulator that changes in place (A2)."""
        state.add(1)
        assert state.get() == 1.0
        state.add(4)
        assert state.get() == 2.5
        assert backend.num_key_value_state_entries() == 1

    def test_the_accumulator_is_what_is_stored(self, backend, state):
        """A1."""
        state.add(1)
        state.add(4)
        table = backend.registered_kv_states["mean"]
        assert list(table.items()) == [("k", [5, 2])]

    def test_adding_none_clears(self, backend, state):
        """R3."""
        state.add(1)
        state.add(None)
        assert state.get() is None
        assert backend.num_key_value_state_entries() == 0
        state.add(None)
        state.add(6)
        assert state.get() == 6.0

    def test_the_accumulator_is_made_by_the_first_add(self, backend, declared):
        """A1 and A2, with an accumulator that cannot change."""
        function = Concatenate()
        descriptor = AggregatingStateDescriptor("text", function, declared(Types.STRING()))
        state = backend.get_partitioned_state(descriptor)
        state.get()
        assert function.made == 0
        state.add("a")
        state.add("b")
        assert function.made == 1
        assert state.get() == ">AB"
        state.clear()
        state.add("c")
        assert function.made == 2
        assert state.get() == ">C"

    def test_keys_do_not_share_an_accumulator(self, backend, state):
        state.add(1)
        backend.set_current_key("other")
        state.add(3)
        assert state.get() == 3.0
        backend.set_current_key("k")
        assert state.get() == 1.0

    def test_an_accumulator_of_another_type_is_refused(self, backend):
        state = backend.get_partitioned_state(AggregatingStateDescriptor("text", Concatenate(), Types.LONG()))
        with pytest.raises(StateValueError, match="'text', key 'k': the accumulator: '>a'"):
            state.add("a")
        assert backend.num_key_value_state_entries() == 0
