"""ListState by rows L1 to L8 of the semantics, however it is run; L9 is with the namespaces."""

import copy
from collections import deque
from pickle import dumps, loads

import pytest
from contract_backends import LONG, lives

from pyflinkstate import ListStateDescriptor, Types
from pyflinkstate.errors import ConcurrentModificationError, StateValueError


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
