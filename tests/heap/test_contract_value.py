"""Value, list, reducing and aggregating state by rows V, L, R and A of the semantics."""

import copy
from collections import deque
from pickle import dumps, loads

import pytest
from contract_backends import LONG, PICKLED, STRING, lives
from slot_functions import Mean

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReduceFunction,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import ConcurrentModificationError, DescriptorTypeError, StateValueError

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


# --- ListState by rows L1 to L8 ----------------------------------------------------------------------------


@pytest.fixture(params=["for ever", "for a time"])
def visits(everywhere, request):
    """A list state, also one that expires: what a user sees of both is the same."""
    descriptor = ListStateDescriptor("visits", LONG)
    return everywhere.state(descriptor if request.param == "for ever" else lives(descriptor, 1000))


def elements(state):
    return state.run(lambda visits: list(visits.get()))


def test_l1_the_state_itself_is_iterable(visits):
    visits.add_all([3, 1, 2])
    assert visits.run(list) == [3, 1, 2]
    assert visits.run(lambda state: [*state, *state]) == [3, 1, 2, 3, 1, 2]


@pytest.mark.parametrize("method", ["add_all", "update"])
@pytest.mark.parametrize("values", [None, 1, "ab", b"ab", object()], ids=lambda value: type(value).__name__)
def test_l3_add_all_and_update_take_a_list(everywhere, visits, method, values):
    with pytest.raises(StateValueError, match="only a list of values can be"):
        getattr(visits, method)(values)
    assert everywhere.entries() == 0
    visits.add(1)
    with pytest.raises(StateValueError):
        getattr(visits, method)(values)
    assert elements(visits) == [1]


@pytest.mark.parametrize("method", ["add_all", "update"])
@pytest.mark.parametrize(
    "make", [list, tuple, deque, iter, dict.fromkeys], ids=["list", "tuple", "deque", "iterator", "dict"]
)
def test_l3_anything_that_gives_values_is_a_list(visits, method, make):
    getattr(visits, method)(make([3, 1, 2]))
    assert elements(visits) == [3, 1, 2]


@pytest.mark.parametrize("method", ["add_all", "update"])
@pytest.mark.parametrize("values", [[2, None], [None, 2], [2, "wrong"], [2, 2**63]], ids=str)
def test_l4_all_or_nothing_is_stored(visits, method, values):
    """Flink's heap state keeps what comes before the None."""
    visits.add(1)
    with pytest.raises(StateValueError):
        getattr(visits, method)(values)
    assert elements(visits) == [1]


@pytest.mark.parametrize("method", ["add_all", "update"])
@pytest.mark.parametrize("values", [[2, None], [None], [2, "wrong"]], ids=str)
def test_l4_what_is_refused_leaves_no_entry_that_a_snapshot_would_stumble_on(
    everywhere, visits, method, values
):
    """Flink's heap state has an entry without a value then, and the next checkpoint fails."""
    with pytest.raises(StateValueError):
        getattr(visits, method)(values)
    assert visits.get_internal() is None
    assert everywhere.entries() == 0
    assert everywhere.restarted().entries() == 0


@pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "for a time"])
def test_l4_none_is_refused_without_a_declared_type_too(everywhere, ttl):
    descriptor = ListStateDescriptor("any")
    state = everywhere.state(lives(descriptor, 1000) if ttl else descriptor)
    state.add(1)
    for method, value in (("add", None), ("add_all", [2, None]), ("update", [2, None])):
        with pytest.raises(StateValueError, match=r"state 'any', key 'k'.*None"):
            getattr(state, method)(value)
    assert elements(state) == [1]


def test_l4_an_iterable_that_fails_adds_nothing(visits):
    def failing():
        yield 2
        raise KeyError("gone")

    def add(state):
        with pytest.raises(KeyError, match="gone"):
            state.add_all(failing())

    visits.add(1)
    visits.run(add)
    assert elements(visits) == [1]


def test_l7_a_list_may_be_added_to_itself(visits):
    visits.add_all([1, 2])
    visits.run(lambda state: state.add_all(state.get()))
    assert elements(visits) == [1, 2, 1, 2]
    visits.run(lambda state: state.update(state.get()))
    assert elements(visits) == [1, 2, 1, 2]


class TestWhileItIsIteratedOver:
    """Java's ``ArrayList`` is fail-fast. Lists that are replaced or removed are iterated over as they were.

    PyFlink 2.3 on ``for x in state.get(): ...`` with the list [1, 2]; on the last three Java agrees:

        ===================== =========================== ===================
        what the loop does    process mode                thread mode
        ===================== =========================== ===================
        ``add(x + 10)``       never ends                  sees [1, 2]
        ``add_all([x + 10])`` never ends                  sees [1, 2]
        ``update([7, 8, 9])`` sees [1, 2]                 sees [1, 2]
        ``clear()``           sees [1, 2]                 sees [1, 2]
        ``add(11)``, break    leaves [1, 2, 11]           leaves [1, 2, 11]
        ===================== =========================== ===================
    """

    @staticmethod
    def loop(state, change, limit=10):
        """What a loop over the state sees that makes the change at each element, and what ended it."""
        seen = []
        try:
            for element in state.get():
                seen.append(element)
                change(state, element)
                if len(seen) == limit:
                    return seen, "endless"
        except ConcurrentModificationError as error:
            return seen, str(error)
        return seen, "ended"

    @pytest.mark.parametrize(
        "change",
        [
            lambda state, element: state.add(element + 10),
            lambda state, element: state.add_all([element + 10]),
        ],
        ids=["add", "add_all"],
    )
    @pytest.mark.parametrize("size", [1, 2, 5])
    def test_adding_ends_it_with_an_error(self, visits, change, size):
        visits.add_all(list(range(size)))
        seen, end = visits.run(lambda state: self.loop(state, change))
        assert seen == [0]
        assert "state 'visits': the list was changed during iteration" in end
        assert elements(visits) == [*range(size), 10]

    def test_adding_at_the_last_element_does_so_too(self, visits):
        visits.add_all([1, 2])
        add_at_last = lambda state, element: state.add(3) if element == 2 else None  # noqa: E731
        seen, end = visits.run(lambda state: self.loop(state, add_at_last))
        assert (seen, end != "ended") == ([1, 2], True)

    def test_adding_and_leaving_the_loop_is_allowed(self, visits):
        visits.add_all([1, 2])
        seen, _ = visits.run(lambda state: self.loop(state, lambda state, _: state.add(11), limit=1))
        assert seen == [1]
        assert elements(visits) == [1, 2, 11]

    @pytest.mark.parametrize(
        ("change", "left"),
        [
            (lambda state, _: state.update([7, 8, 9]), [7, 8, 9]),
            (lambda state, _: state.clear(), []),
            (lambda state, element: (state.update([7]), state.add(element)), [7, 2]),
            (lambda state, element: (state.clear(), state.add(element)), [2]),
        ],
        ids=["update", "clear", "update and add", "clear and add"],
    )
    def test_a_list_that_is_replaced_is_seen_to_its_end(self, visits, change, left):
        visits.add_all([1, 2])
        assert visits.run(lambda state: self.loop(state, change)) == ([1, 2], "ended")
        assert elements(visits) == left

    def test_a_copy_may_be_iterated_over(self, visits):
        visits.add_all([1, 2])
        visits.run(lambda state: [state.add(element + 10) for element in list(state.get())])
        assert elements(visits) == [1, 2, 11, 12]


def test_what_is_handed_out_is_a_plain_list_to_who_keeps_it(everywhere, declared):
    visits = everywhere.state(ListStateDescriptor("visits", declared(Types.LIST(LONG))))
    visits.add([1])
    copies = visits.run(
        lambda state: [make(state.get()) for make in (copy.copy, copy.deepcopy, lambda x: loads(dumps(x)))]
    )
    assert copies == [[[1]]] * 3
    assert [type(one) for one in copies] == [list] * 3
    assert visits.run(lambda state: copy.copy(state.get())[0] is state.get()[0])


def test_values_are_converted_on_the_way_in(everywhere):
    ratios = everywhere.state(ListStateDescriptor("ratios", Types.DOUBLE()))
    ratios.add(1)
    ratios.add_all([2])
    assert list(map(type, elements(ratios))) == [float, float]
    ratios.update([3])
    assert list(map(type, elements(ratios))) == [float]


# --- ReducingState and AggregatingState by rows R1 to R4, A1 and A2 ----------------------------------------


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


WRONG_TYPE = "'sum', key 'k': the reduce function's result"


@pytest.mark.parametrize(
    ("result", "type_info", "message"),
    [
        *((result, LONG, WRONG_TYPE) for result in ("3", 2**63, 1.5)),
        (None, PICKLED, "the reduce function returned None"),  # or there would be an entry without a value
    ],
    ids=repr,
)
def test_a_wrong_result_is_refused_and_the_old_value_stays(everywhere, result, type_info, message):
    state = everywhere.state(ReducingStateDescriptor("sum", lambda old, new: result, type_info))
    state.add(1)
    with pytest.raises(StateValueError, match=message):
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
